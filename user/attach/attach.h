/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF side in hand: loads the programs, tells them of targets, places the probes of a plan and
 * hands over the ring buffer's records. Probes live as long as their file descriptors: when the
 * tracer ends, in whatever way, the kernel takes them out.
 */
#ifndef TRACER_ATTACH_ATTACH_H
#define TRACER_ATTACH_ATTACH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "abi/sample.h"
#include "abi/target.h"
#include "attach/features.h"
#include "attach/stream.h"
#include "elf/elf_file.h"
#include "plan/plan.h"

#define ATTACH_PAGE_BYTES 4096u /* of text that are copied at a time */

struct attach;

struct attach_opts {
	size_t ring_bytes; /* a power of two and a multiple of the page size; 0: 64 MiB */
	int no_session;    /* as on a kernel without uprobe.session */
	int no_multi;      /* as on a kernel without uprobe_multi: perf-event uprobes */
	int sampling;      /* targets may have a sample taken: abi_target.sample_bytes */
	int counting;      /* hits of probes may be counted: attach_count() */
	enum abi_watch watch;
	/* what programs that are called become; NULL: nothing yet */
	const struct abi_target *newborn;
	int empty; /* programs that do nothing: what the probes themselves cost (tools/bare.c) */
	stream_record_fn record;
	void *context;
};

/* Loads the programs. 0; -EPERM; -errno (error_set tells what the kernel refused). */
int attach_new(struct attach **out, const struct features *features,
	       const struct attach_opts *opts);
/*
 * The process that holds the probes (links_holder.h; 0: there is none any more): is it there, with
 * every probe? 0; -EOWNERDEAD it was killed. What rights it keeps from here on: as
 * privileges_drop(0, attaches). 0, -errno.
 */
pid_t attach_holder(const struct attach *attach);
int attach_check(const struct attach *attach);
int attach_confine(struct attach *attach, int attaches);
/* As links_holder_sweep(). */
int attach_sweep(struct attach *attach, const char *path);
/* Detaches everything; NULL is legal. */
void attach_free(struct attach *attach);

/*
 * Makes a process known to the programs, or what is known of it by this space another; without it
 * its probes do nothing. 0; -ESRCH it is known by another space: it has called the next program;
 * -errno.
 */
int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target);
/*
 * Is it known to the programs, by this space (struct abi_target.space)? An exec makes it unknown,
 * or known by another.
 */
int attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space);
/*
 * From here on its probes do nothing: the moment at which its tables stop. The next program of the
 * process may be known already, of which no record has been drained yet: it has another space, and
 * stays.
 */
void attach_forget(struct attach *attach, uint32_t tgid, uint32_t space);
/*
 * From here on we hear of its children and of its programs, though it is no target. With
 * ABI_WATCH_CHILDREN. 0, -errno.
 */
int attach_follow(struct attach *attach, uint32_t tgid);
/*
 * Places every site of the plan in the process (all its threads, no other process), or, pid -1, in
 * every process that has the file mapped, now or later: there the programs look at targets only,
 * and a fork's child is traced from its first instruction. What is placed already in this way is
 * not placed again. 0; -ESRCH the process is gone; -errno. What was placed before a failure is
 * taken out by attach_detach().
 */
int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		 pid_t pid);
/* Is each probe a perf event? */
int attach_is_by_events(const struct attach *attach);
/* How many more probes there can be: where each takes a descriptor. SIZE_MAX: any number. */
size_t attach_probes_left(const struct attach *attach);
/* Which of a process's probes: bits. */
enum attach_group {
	ATTACH_POOL_FREES = 1, /* plan_site_is_pool_free() */
	/* what is wanted until the end: where the interpreter begins to shut down */
	ATTACH_LAST = 2,
	ATTACH_OTHERS = 4,
	ATTACH_ALL = 7,
};
/* The same for the sites of these groups alone. */
int attach_groups(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		  pid_t pid, unsigned int groups);
/*
 * Of so many pages of the file the kernel makes a copy in each process that these are placed in,
 * which is charged to that process's memory; what is placed already costs none.
 */
size_t attach_pages(const struct attach *attach, const struct plan *plan,
		    const struct elf_file *file, pid_t pid, unsigned int groups);
/*
 * Takes out what of these groups was placed in this process alone. wait: when it returns no program
 * runs there any more, which takes the kernel tens of milliseconds (with perf-event uprobes nobody
 * can wait for that).
 */
void attach_drop(struct attach *attach, pid_t pid, unsigned int groups, int wait);
/* Has the file sites that are placed in every process? */
int attach_is_everywhere(const struct attach *attach, const struct elf_file *file);
/* Takes out what was placed in this process alone, without waiting for that. */
void attach_release(struct attach *attach, pid_t pid);
/*
 * Puts blocks into the map of those that are in a sample (abi/sample.h): the programs tell of their
 * ends. 0; -E2BIG there is no room for all; -errno.
 */
int attach_sampled(struct attach *attach, const struct sampled_key *keys, size_t count);

/*
 * What probes have cost, with opts.counting, once it is asked for: how often a process has hit one
 * since attach_target(), about; how long all programs ran and how often, while a descriptor of
 * attach_stats() was open (a counter of the kernel's, which costs itself). 0, -errno.
 */
void attach_count(struct attach *attach, int on);
int attach_hits(struct attach *attach, uint32_t tgid, uint64_t *hits);
int attach_stats(void); /* a descriptor, or -errno */
int attach_run_time(struct attach *attach, uint64_t *run_ns, uint64_t *runs);
/*
 * Puts the empty program on one place of a file, in one process: what a trap costs. One such probe
 * at a time; attach_release() takes it out.
 */
int attach_empty(struct attach *attach, const char *path, uint64_t offset, pid_t pid);
/*
 * Takes every probe out; records already in the ring buffer stay. attach_free() does it, too. None
 * can be placed any more. Where that takes the kernel longer than LINKS_END_MS it is not waited
 * for, and goes on after we have ended: of targets that were forgotten (attach_forget()) no record
 * comes any more in any case.
 */
void attach_detach(struct attach *attach);
/*
 * Is it so? The kernel needs a tenth of a second for each perf-event uprobe, and tens of ms for
 * each link.
 */
int attach_detaches_slowly(const struct attach *attach);
/* How the probes are attached: "one uprobe_multi session link …". Static. */
const char *attach_backend(const struct attach *attach);

/*
 * Hands over records that are there, at most about limit of them. Returns their number or the
 * callback's error.
 */
int attach_drain(struct attach *attach, size_t limit);
/* The loss counters, summed over processors. */
int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT]);

#endif
