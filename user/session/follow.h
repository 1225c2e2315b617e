/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following processes that appear while a session runs: candidates, which are watched and not
 * traced because they may come to run Python, and programs that BPF traces from their first
 * instruction, as processes without Python.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "probe/process/late.h"

struct modules;
struct session;
struct session_opts;
struct target;

/* 0, -ENOMEM. */
int follow_new(struct session *session);
void follow_free(struct session *session);
/*
 * Called with each record before the trace is fed; attaches nothing. 1: the record is consumed here
 * and not fed.
 */
int follow_takes(struct session *session, const void *record);
/* The same after the trace was fed. */
void follow_note(struct session *session, const void *record);
/* Does what those records ask for. Not to be called while records are drained. */
void follow_step(struct session *session);
/* lost: LOSS_PROCESS. If it has grown, looks for processes whose records were lost. */
void follow_lost(struct session *session, uint64_t lost);

struct candidate {
	struct late late;
	/* everything it maps was inspected and nothing is wanted, or it was refused */
	int settled;
	int examined;     /* it has been settled once: nothing was missed before that */
	int native;       /* it is also wanted without Python */
	bool refused;     /* it cannot be traced without Python */
	int wanted;       /* as session_opts.wanted() returned: a process may be gone by then */
	bool rests;       /* it has not used session_opts.after_cpu_ns so far */
	clockid_t clock;  /* of its CPU time */
	uint64_t cpu_ns;  /* CPU time that it had used before it was found */
	uint64_t born_ns; /* when it appeared, or last mapped a file with code */
	uint64_t next_ns; /* when it is inspected next */
};

/*
 * A process that ran before becomes a candidate, which is attached to once it has used
 * session_opts.after_cpu_ns from now on. 0; -ESRCH; -ENOMEM.
 */
int candidate_await(struct session *session, pid_t pid);
/* Valid until the next call of this module. NULL: there is none. */
struct candidate *candidate_find(struct session *session, uint32_t pid);
/* The layers that BPF traces in new programs: 1 << enum event_layer for each; 0: none. */
uint32_t execd_layers(const struct session_opts *opts);
/*
 * Inspects an exec'd target. 1: it has no Python, and its probes are placed, or *err says why not,
 * or it is gone, or no allocator is in it so far; 0: it runs Python: its records were discarded,
 * and it is to be attached to as a Python process.
 */
int execd_settle(struct session *session, struct target *target, int *err);
/* Marks these files as probed: a process that maps no others needs no inspection. */
void execd_files_settle(struct session *session, const struct modules *modules);
/* At the end of the session: discards the targets without an allocator. */
void execs_end(struct session *session);
