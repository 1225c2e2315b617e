/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF side in hand: loads the programs, tells them of targets, places the probes of a plan and hands over
 * the ring buffer's records. Probes live as long as their file descriptors: when the tracer ends, in whatever
 * way, the kernel takes them out.
 */
#ifndef TRACER_PROBE_ATTACH_H
#define TRACER_PROBE_ATTACH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "abi/target.h"
#include "probe/features.h"
#include "probe/plan.h"
#include "probe/stream.h"
#include "target/elf_file.h"

struct attach;

struct attach_opts {
	size_t ring_bytes; /* a power of two and a multiple of the page size; 0: 64 MiB */
	int no_session;    /* as on a kernel without uprobe.session */
	int no_multi;      /* as on a kernel without uprobe_multi: perf-event uprobes */
	int sampling;      /* targets may have a sample taken: abi_target.sample_bytes */
	enum abi_watch watch;
	int empty; /* programs that do nothing: what the probes themselves cost (tools/bare.c) */
	stream_record_fn record;
	void *context;
};

/* Loads the programs. 0; -EPERM; -errno (error_set tells what the kernel refused). */
int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts);
/* Detaches everything; NULL is legal. */
void attach_free(struct attach *attach);

/* Makes a process known to the programs; without it its probes do nothing. 0, -errno. */
int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target);
/* From here on its probes do nothing: the moment at which its tables stop. */
void attach_forget(struct attach *attach, uint32_t tgid);
/* From here on we hear of its children and of its programs, though it is no target. With ABI_WATCH_CHILDREN. 0, -errno. */
int attach_follow(struct attach *attach, uint32_t tgid);
/*
 * Places every site of the plan in the process (all its threads, no other process), or, pid -1, in every process that has
 * the file mapped, now or later: there the programs look at targets only, and a fork's child is traced from its first
 * instruction. What is placed already in this way is not placed again. 0; -ESRCH the process is gone; -errno. What was placed
 * before a failure is taken out by attach_detach().
 */
int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file, pid_t pid);
/* Has the file sites that are placed in every process? */
int attach_is_everywhere(const struct attach *attach, const struct elf_file *file);
/* Takes out what was placed in this process alone, without waiting for that. */
void attach_release(struct attach *attach, pid_t pid);
/* Takes every probe out; records already in the ring buffer stay. attach_free() does it, too. */
void attach_detach(struct attach *attach);
/* Would attach_detach() take long? The kernel needs a tenth of a second for each perf-event uprobe. */
int attach_detaches_slowly(const struct attach *attach);
/* How the probes are attached: "one uprobe_multi session link …". Static. */
const char *attach_backend(const struct attach *attach);

/* Hands over records that are there, at most about limit of them. Returns their number or the callback's error. */
int attach_drain(struct attach *attach, size_t limit);
/* The loss counters, summed over processors. */
int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT]);

#endif
