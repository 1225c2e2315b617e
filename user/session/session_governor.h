/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's governor: what its probes cost each process, and the changes of mode that follow.
 * session*.c only.
 */
#ifndef TRACER_SESSION_SESSION_GOVERNOR_H
#define TRACER_SESSION_SESSION_GOVERNOR_H

#include <stdint.h>
#include <time.h>

#include "session/governor.h"

struct session;
struct member;

/* What a hit costs, for all processes of the session. Zero-initialise. */
struct hit_cost {
	double trap_ns, run_ns; /* before and after a program; the program itself */
	int stats;              /* the kernel counts, since the two below; else -1 */
	uint64_t stats_run_ns, stats_runs;
	unsigned int periods; /* since it was counted last */
};

struct member_governor {
	struct governor governor;
	clockid_t clock; /* CPU time of the process */
	uint64_t measured_ns, cpu_ns, hits;
};

/* Measures what a trap costs, and has the kernel count the rest. 0, -errno with its reason. */
int hit_cost_begin(struct session *session);
/* Takes over what the kernel has counted; once a period. */
void hit_cost_look(struct session *session);
/* The process's clock. 0, -ESRCH. */
int member_clock_begin(struct member *member);
/* A period begins. Returns the hits so far. */
uint64_t member_measure_begin(struct session *session, struct member *member);
/* What it was since. 0, -ESRCH: it has ended. */
int member_period(struct session *session, const struct member *member, uint64_t now_ns,
		  struct governor_period *out);
/* 0, -errno with its reason: then there can be no governor. */
int session_governor_begin(struct session *session);
void session_governor_end(struct session *session);
/* A process has come under trace. 0, -errno. */
int member_governor_begin(struct session *session, struct member *member);
/* Once a period at most: measures, and changes the modes of processes that cost too much. */
void session_governor_due(struct session *session, uint64_t now_ns);

/*
 * From here on the process is traced in that way; the record of it tells what it was for. 0; -errno
 * with its reason: it cannot be, and is traced as before or not at all. EVENT_MODE_OFF cannot fail
 * but for want of memory.
 */
int member_mode_change(struct session *session, struct member *member,
		       const struct governor_step *step, double cost, double budget);

#endif
