/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a session, shared by session*.c only. */
#ifndef TRACER_PROBE_SESSION_STATE_H
#define TRACER_PROBE_SESSION_STATE_H

#include "probe/attach.h"
#include "probe/features.h"
#include "probe/plan_target.h"
#include "probe/seccomp.h"
#include "probe/session.h"

#define MEMBER_MODULES 16 /* looks at what is mapped that are kept */

/* Zero-initialise. */
struct member_symbols {
	struct modules *modules[MEMBER_MODULES]; /* the newest last */
	size_t count;
	size_t watched, named; /* trace_unnamed_next()'s cursors: whose files are open, which have names */
	uint64_t looked_ns;
};

struct member {
	pid_t pid;
	int pidfd;                     /* -1 once the process has ended */
	size_t index;                  /* in the trace */
	struct python_runtime runtime; /* version_hex 0: there is none */
	uint32_t layers;               /* 1 << enum event_layer for each that is traced */
	struct member_symbols symbols;
	enum event_mode mode;
	int large_blocks;                   /* growth mode: they are traced one by one */
	int heap_unreadable;                /* there will be no census */
	uint64_t census_ns, census_cost_ns; /* when the last one ended, and what it took */
};

struct session {
	struct session_opts opts;
	struct features features;
	struct attach *attach;
	struct plan_caches plans;
	struct symbols *symbols; /* NULL: no native frame has been seen */
	struct trace *trace;
	struct member **members;
	size_t count;
	uint32_t next_space;
	int capture_error;
	struct seccomp_answer seccomp;
	uint64_t loss_ns; /* when the loss counters were last read */
};

/* Every record, whether BPF made it or the session, goes the same way: into the capture, then the trace. */
int session_feed(struct session *session, const void *record, size_t size);
/* Brings in the records that are there; context is the session. */
void session_pull(void *context);
void member_close(struct member *member);
/* Reads the member's heap, if it runs and has one. 0; -ENOTSUP it cannot be read; -errno. */
int member_census(struct session *session, struct member *member, int baseline, int freeze);
/* The same; what went wrong is told. */
void member_reconcile(struct session *session, struct member *member, int baseline, int freeze);
/* From here on addresses can be named; it is no error that they cannot. 0, -ENOMEM. */
int member_symbols_begin(struct session *session, struct member *member);
void member_symbols_end(struct member *member);
/* Has the files of addresses that are new opened. */
void member_symbols_watch(struct session *session, struct member *member, uint64_t now);
/* Feeds the names of the addresses that have none yet. 0, -errno. */
int member_symbols_name(struct session *session, struct member *member);
void session_name(struct session *session);
/* Reads the heaps that were not read for a while: every half second, or less often if that costs more than 2 % of the time. */
void session_census_due(struct session *session, uint64_t now);

#endif
