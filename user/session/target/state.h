/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a session, which its targets share. Included by user/session/target/, user/session/
 * and their tests only.
 */
#pragma once

#include "attach/attach.h"
#include "attach/links/features.h"
#include "attach/selftest/hit_cost.h"
#include "attach/selftest/seccomp.h"
#include "attach/unwind/loader.h"
#include "object/symbols/symbols.h"
#include "proc/container/container_names.h"
#include "session/session.h"
#include "session/target/cost.h"
#include "session/target/symbols.h"
#include "trace/trace.h"
#include "util/siphash.h"

/* Records drained at once; then the time and the ends of processes are checked. */
#define SESSION_DRAIN_BATCH (1u << 16)

struct session {
	struct session_opts opts;
	struct features features;
	struct attach *attach;
	struct plan_caches plans;
	struct symbols *symbols; /* NULL: no native frame has been seen */
	struct names_time names_time;
	struct unwind_loader *unwind; /* NULL: native stacks are walked by frame pointers */
	struct trace *trace;
	struct target **targets;
	size_t count, target_capacity;
	int ends; /* epoll descriptor for the targets' pidfds */
	uint32_t next_space_id;
	int capture_error;
	struct siphash_key label_key;         /* session_opts.hash_labels */
	uint64_t limit_ns, limit_duration_ns; /* see session/session.c; 0: no limit */
	int walk; /* a heap is being walked: the limit does not apply until it ends */
	struct session_end end;
	uint64_t records;   /* drained so far */
	size_t census_turn; /* index of the target whose heap is walked next */
	size_t window_turn; /* the same of the windows that begin, and rechecks */
	size_t judge_turn;  /* the same of the governor */
	uint64_t first_ns;  /* no target's first window begins before */
	double part;        /* of each target's budget (machine.h); 0: not told yet */
	uint64_t part_ns;   /* when that was told */
	int links_lost;     /* the loss of the process that holds the probes was reported */
	/* of targets that are freed: what was not read, since it was swapped out */
	uint64_t bytes_swapped;
	size_t processes_swapped;
	struct seccomp_answer seccomp;
	struct hit_cost hit_cost;
	struct session_cost cost;
	uint64_t loss_ns;                      /* when the loss counters were last read */
	struct collections_entry *collections; /* by index in the trace (collections.c) */
	size_t collections_count, collections_capacity;
	size_t translators; /* processes under a translator that are known */
	int translators_looked;
	int barred_logged;        /* a process with threads whose returns are not probed was */
	uint64_t returns_missing; /* LOSS_RETURN, as last looked at */
	int missing_logged;       /* the features that this kernel lacks were logged */
	size_t attach_logs, refusals, label_logs,
		debugger_logs; /* only the first SESSION_LOGS of each are logged */

	/* Processes that appear while the session runs (session/follow.c): */
	struct candidate *candidates;
	size_t candidate_count, candidate_capacity;
	size_t inherited;       /* number of targets with inherited set */
	struct map_watch *maps; /* NULL: mmap events are not available */
	uint64_t maps_lost;
	uint64_t process_lost; /* LOSS_PROCESS at the last scan of /proc */
	uint64_t followed_ns;  /* when they were last looked at */

	/* Where probes are placed (place.c, headroom.c): */
	pid_t *expected;
	size_t expected_count;
	struct file_users *users;
	uint64_t users_ns;
	/* memory left to each cgroup as of headroom_ns, less the probes placed since */
	struct memory_headroom *headroom;
	uint64_t headroom_ns;
	struct container_names container_names;

	/* Programs traced from their first instruction (session/follow.c): */
	struct execd *execs; /* sorted by time */
	size_t execd_count, execd_capacity;
	uint8_t *files_settled; /* by struct file.number: see execd_files_settle() */
	size_t files_settled_capacity;
	/* programs that ended unexamined, and before it was known whether they are wanted */
	size_t ended_unexamined, ended_unnamed, ended_resting;
};

/*
 * Every record, from BPF or from the session, is written to the capture and then fed to the trace.
 * 0; the trace's error where its account is full.
 */
int session_feed(struct session *session, const void *record, size_t size);
/* Feeds EVENT_SYMBOL. binary: what is mapped there; NULL: not known. */
int session_feed_symbol(struct session *session, const struct target *target, uint64_t address,
			const struct symbols_frame *frames, uint32_t count,
			const struct symbols_binary *binary, int slow);
/* Drains the ring buffer; its records go through session_feed(). context is the session. */
void session_pull(void *context);
