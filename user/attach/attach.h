/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface to the BPF side: loads the programs, registers targets, places the probes of a plan
 * and delivers the ring buffer's records. Probes live as long as their file descriptors: however
 * the tracer ends, the kernel removes them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "abi/label.h"
#include "abi/sample.h"
#include "abi/target.h"
#include "attach/links/features.h"
#include "attach/stream.h"
#include "attach/unwind/store.h"
#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

struct attach;

struct attach_opts {
	size_t ring_bytes; /* a power of two and a multiple of the page size; 0: 64 MiB */
	int no_session;    /* act as on a kernel without uprobe.session */
	int no_multi;      /* act as on a kernel without uprobe_multi: perf-event uprobes */
	/* Programs that no process of the session needs are not loaded. */
	int no_native;                      /* nothing but Python's allocators is traced */
	int no_python;                      /* nothing of Python's allocators is */
	int pages;                          /* page faults are, and nothing else */
	int sampling;                       /* targets may be sampled: abi_target.sample_bytes */
	enum abi_label_source label_source; /* what is told with the blocks of targets */
	int counting;                       /* probe hits may be counted: attach_count() */
	enum abi_watch watch;
	/* initial target entry for exec'd programs; NULL: none yet */
	const struct abi_target *execd;
	/*
	 * attach empty programs, to measure the cost of the probes themselves (tools/bench/bare.c)
	 */
	int empty;
	stream_record_fn record;
	void (*meanwhile)(void *context); /* as for stream_open() */
	void *context;
};

/* Loads the programs. 0; -EPERM; -errno (error_set() has the kernel's reason). */
int attach_new(struct attach **out, const struct features *features,
	       const struct attach_opts *opts);
/*
 * The process that holds the probes (link_keeper.h).
 * - attach_holder(): its pid; 0: it has ended.
 * - attach_check(): 0 if it holds every probe; -EOWNERDEAD it was killed.
 * - attach_confine(): drops its privileges as privileges_drop(0, attaches). 0, -errno.
 */
pid_t attach_holder(const struct attach *attach);
int attach_check(const struct attach *attach);
int attach_confine(struct attach *attach, int attaches);
/* As link_keeper_sweep(). */
int attach_sweep(struct attach *attach, const char *path);
/* Page faults are traced: attach_hits() are the nanoseconds that these have taken. */
bool attach_hits_are_ns(const struct attach *attach);
/* Detaches everything; NULL is legal. */
void attach_free(struct attach *attach);

/*
 * Registers a process with the programs, or updates the entry of this address space. Without an
 * entry the process's probes do nothing. 0; -ESRCH the entry has another address-space id: the
 * process has exec'd another program; -errno.
 */
int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target);
/*
 * Is the process registered with this address-space id (abi_target.space_id)? An exec removes the
 * entry, or replaces it with another id.
 */
bool attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space_id);
/*
 * Disables the process's probes from now on: its tables are final. If the process has exec'd and
 * its new program is already registered, although no record of it has been drained, that entry has
 * another address-space id and stays.
 */
void attach_forget(struct attach *attach, uint32_t tgid, uint32_t space_id);
/*
 * What is told with the process's blocks from now on, and those of its children; the code objects
 * of ABI_LABEL_LOCAL. 0, -errno.
 */
int attach_label(struct attach *attach, uint32_t tgid, const struct abi_label *label,
		 const struct abi_label_key *keys, const struct abi_label_code *codes,
		 size_t count);
/*
 * Reports the process's children and execs from now on, although it is not a target. Requires
 * ABI_WATCH_CHILDREN. 0, -errno.
 */
int attach_follow(struct attach *attach, uint32_t tgid);
/*
 * The memory of the maps that unwind tables are loaded into, valid until attach_free(). To be
 * called once. 0; -EOPNOTSUPP: this kernel's walks follow frame pointers; -errno.
 */
int attach_unwind_areas(struct attach *attach, struct unwind_areas *out);
/* From now on stacks are walked by tables. */
void attach_unwind_begin(struct attach *attach);
/* For poll(): readable when a walk asks for a table. Borrowed; -1: none does. */
int attach_unwind_fd(const struct attach *attach);
bool attach_unwind_is_wanted(const struct attach *attach);
/* Delivers the files whose table was asked for since the last call. */
void attach_unwind_wanted(struct attach *attach,
			  void (*each)(void *context, const struct event_unwind_file *file),
			  void *context);
/* As unwind_loader_opts.publish. */
void attach_unwind_publish(struct attach *attach, const struct abi_unwind_key *key,
			   uint32_t number);
/*
 * Places every site of the plan in the process (all its threads, no other process) or, with pid -1,
 * in every process that has the file mapped, now or later. In the latter case the programs ignore
 * processes that are not targets, and a forked child is traced from its first instruction. Sites
 * that are already placed in the same way are skipped. 0; -ESRCH the process has ended; -errno.
 * After a failure, attach_detach() removes what was placed.
 */
int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		 pid_t pid);
/* Is each probe a perf event? */
bool attach_is_by_events(const struct attach *attach);
/* How many more probes can be placed, if each takes a descriptor. SIZE_MAX: unlimited. */
size_t attach_probes_left(const struct attach *attach);
/* Groups of a process's probes: bits. */
enum attach_group {
	ATTACH_POOL_FREES = 1, /* plan_site_is_pool_free() */
	/* needed until the end: the start of the interpreter's shutdown; Task.set_name() */
	ATTACH_LAST = 2,
	ATTACH_OTHERS = 4,
	ATTACH_MALLOC = 8,  /* malloc and its kin */
	ATTACH_POOLED = 16, /* plan_site_is_pooled(): in place in windows only, where there are */
	ATTACH_PASSED_ON = 32, /* plan_site_is_passed_on() */
	/* plan_site_is_new_pool(): not in place where small blocks are traced one by one */
	ATTACH_NEW_POOLS = 64,
	ATTACH_ALL = 127,
};
/* As attach_sites(), for the sites of these groups only. */
int attach_groups(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		  pid_t pid, unsigned int groups);
/*
 * The number of the file's pages that the kernel copies in each process where these sites are
 * placed. The copies are charged to that process's memory. Sites that are already placed cost
 * nothing.
 */
size_t attach_pages(const struct attach *attach, const struct plan *plan,
		    const struct elf_file *file, pid_t pid, unsigned int groups);
/*
 * Removes the probes of these groups that were placed in this process only. wait: on return no
 * program runs at them any more, which takes the kernel tens of milliseconds (not possible with
 * perf-event uprobes).
 */
void attach_drop(struct attach *attach, pid_t pid, unsigned int groups, int wait);
/* Does the file have sites that are placed in every process? */
bool attach_is_everywhere(const struct attach *attach, const struct elf_file *file);
/*
 * Adds blocks to the map of sampled blocks (abi/sample.h), so that the programs report when they
 * are freed. 0; -E2BIG the map is full; -errno.
 */
int attach_sampled(struct attach *attach, const struct sampled_key *keys, size_t count);

/*
 * The cost of probes, with opts.counting.
 * - attach_count(): starts or stops the counting.
 * - attach_hits(): approximate number of probe hits of a process since attach_target().
 * - attach_run_time(): total run time and number of runs of all programs while a descriptor of
 *   attach_stats() was open (a kernel counter with a cost of its own).
 * 0, -errno.
 */
void attach_count(struct attach *attach, int on);
int attach_hits(struct attach *attach, uint32_t tgid, uint64_t *hits);
int attach_stats(void); /* a descriptor, or -errno */
int attach_run_time(struct attach *attach, uint64_t *run_ns, uint64_t *runs);
/*
 * Places the empty program on one offset of a file, in one process, to measure the cost of a trap.
 * Only one such probe at a time; attach_drop() removes it.
 */
int attach_empty(struct attach *attach, const char *path, uint64_t offset, pid_t pid);
/*
 * Removes every probe; records in the ring buffer stay. attach_free() calls it too. No probe can
 * be placed afterwards. Targets that were forgotten (attach_forget()) emit no more records in any
 * case. 1: the probes are removed; 0: the kernel needs longer than LINKS_END_MS, and the removal
 * continues after we have ended.
 */
int attach_detach(struct attach *attach);
/*
 * Does the removal take long? The kernel needs a tenth of a second for each perf-event uprobe, and
 * tens of ms for each link.
 */
int attach_detaches_slowly(const struct attach *attach);
/*
 * The number of threads of a process (0: of all targets) that may not return from a function with a
 * return probe: bpf/returns.h. *tgid becomes the process of one of them, if there are any. -errno:
 * not known.
 */
int attach_barred_threads(struct attach *attach, uint32_t *tgid);
/* Is some probe in a file, for all processes? */
bool attach_is_in_files(const struct attach *attach);
/* How the probes are attached: "one uprobe_multi session link …". Static. */
const char *attach_backend(const struct attach *attach);

/* Delivers pending records, about limit at most. Returns their number or the callback's error. */
int attach_drain(struct attach *attach, size_t limit);
/* The loss counters, summed over processors. */
int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT]);
