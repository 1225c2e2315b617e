/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target: one traced process of a session, from target_new() until session_targets_bury() frees
 * it. target.c describes its life.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "runtime/cpython/runtime.h"
#include "session/target/cost.h"
#include "session/target/symbols.h"
#include "session/target/target_governor.h"
#include "session/target/target_windows.h"

struct session;
struct plan_target;

/* Of a record that the session makes of one of its targets. */
#define RECORD_HEADER(record_type, record, time, pid)                                              \
	{                                                                                          \
		.type = (record_type), .size = sizeof(record), .time_ns = (time),                  \
		.tgid = (uint32_t)(pid), .tid = (uint32_t)(pid)                                    \
	}

struct target {
	pid_t pid;
	int pidfd;    /* -1: the process ended before it could be opened */
	int gone;     /* the pidfd reports its end */
	int begun;    /* its first record is in the stream, and index is valid */
	int ended;    /* its table is complete; the trace may have reused index */
	int released; /* its private probes are out; those of this pid are another target's */
	/* forked by a target; whether it needs probes of its own is not known yet */
	int inherited;
	/* BPF made it a target when it called exec; its files are not inspected yet */
	int execd;
	int no_allocator;   /* execd, and no allocator is in its files so far */
	uint64_t mapped_ns; /* when it mapped another file with code; 0: nothing new */
	size_t index;       /* in the trace */
	struct event_target announced;
	struct python_runtime runtime; /* version_hex 0: there is none */
	uint32_t layers;               /* 1 << enum event_layer for each traced layer */
	struct target_symbols symbols;
	enum event_mode mode;
	int self_sampled;                   /* its native blocks are those that it samples itself */
	int private_probes;                 /* its probes are per-process, not in files */
	pid_t debugger;                     /* that was told of last; 0: none */
	int contradicted;                   /* an inconsistency in its figures was logged */
	int large_blocks;                   /* growth, windows: large blocks are traced */
	int large_windowed;                 /* windows: large blocks, too, in windows only */
	int pools_off;                      /* windows: nothing between them */
	int reuse_unseen, ends_unseen;      /* as in struct plan */
	int tasks_unreported;               /* EVENT_MODE_TASKS_UNREPORTED */
	uint64_t label_ns;                  /* when its variable is looked for again; 0: never */
	unsigned int label_looks;           /* how often it was not there */
	int heap_unreadable;                /* its heap is never walked */
	uint64_t rss_ns;                    /* when its RSS was last read */
	size_t thread_cursor;               /* where threads without a name are looked for */
	int baseline_due;                   /* the next walk is a baseline: its blocks are older */
	uint64_t census_ns, census_cost_ns; /* when the last walk ended, and its duration */
	int off;                            /* its probes are out; mode is the previous one */
	struct target_cost cost;
	struct target_governor governor;
	struct target_windows windows;
};

/* Are its page faults traced, and nothing else? */
static inline bool target_is_pages(const struct target *target)
{
	return target->layers == 1u << EVENT_LAYER_PAGES;
}

/* Are its windows, if there are any, those of the native layer? */
static inline bool target_is_native(const struct target *target)
{
	return !(target->layers & 1u << EVENT_LAYER_PYTHON);
}

int session_targets_begin(struct session *session);
void session_targets_free(struct session *session);
/* How many have not ended. */
size_t session_targets_running(const struct session *session);
/* The target with this pid that has begun and not ended; else NULL. */
struct target *target_find(struct session *session, uint32_t tgid);
/* The session owns the new target. 0, -errno. */
int target_new(struct session *session, pid_t pid, struct target **out);
/* Feeds its first record. 0, -errno. */
int target_begin(struct session *session, struct target *target, const struct event_target *record);
/*
 * Makes its first record and feeds it. name is as in struct process_info; ns_pid 0: not known. 0,
 * -errno.
 */
int target_announce(struct session *session, struct target *target, const char *name, pid_t ns_pid,
		    int from_start, uint64_t time_ns);
/* EVENT_MODE_* flags that accompany the mode in records. */
uint32_t target_mode_flags(const struct target *target);
/* Takes over a plan's mode, layers and target configuration. */
void target_planned(struct target *target, const struct plan_target *plans);
/*
 * What it is planned by when its mode changes, or its child is attached to: the session's options;
 * of one in which mapped memory alone is traced, that layer.
 */
struct plan_target_opts target_plan_opts(const struct session *session,
					 const struct target *target);
/* Gives up on an attachment. Frees the target unless it has begun; what runs leaves no table. */
void target_abandon(struct session *session, struct target *target);
/* Removes the private probes of ended targets with this pid, before those of a new one come. */
void session_targets_release(struct session *session, pid_t pid);
/*
 * Notices which processes are gone, and frees all targets that have ended; the trace keeps their
 * tables. Members are freed here only. Not to be called while records are drained or targets are
 * iterated.
 */
void session_targets_bury(struct session *session);
/* Feeds a record of its end: EVENT_EXIT, or EVENT_EXEC if it runs another program now. */
void target_end(struct session *session, struct target *target, uint32_t type);
/* BPF stops tracing it. */
void target_forget(struct session *session, const struct target *target);
/* Ends a target whose records are to be discarded: BPF stops tracing it, and it has no table. */
void target_discard(struct session *session, struct target *target);
/* Feeds the record that discards what there is of this pid. */
void discard_feed(struct session *session, uint32_t pid);
