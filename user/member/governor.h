/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's governor: measures what the probes cost each process, and changes its mode
 * accordingly. Included by user/member/ and user/session/ only.
 */
#ifndef TRACER_MEMBER_GOVERNOR_H
#define TRACER_MEMBER_GOVERNOR_H

#include <stdint.h>
#include <time.h>

#include "overhead/governor.h"

#define EARLY_LEAST_NS   30000000ull /* over which a process is seen to be busy */
#define EARLY_BUSY_SHARE 0.05        /* of a CPU */

struct session;
struct member;
struct plan_target;

struct member_governor {
	struct governor governor;
	clockid_t clock;      /* CPU time of the process */
	int early;            /* it begins in windows, although another mode was requested */
	enum event_mode mode; /* that one */
	int careful;          /* it must not cost much, even before the first measurement */
	double rate;          /* CPUs that it took while it was planned */
	uint64_t measured_ns, cpu_ns, hits;
	uint64_t looked_ns; /* between two measurements: when the hits were looked at */
};

/* Opens the process's CPU clock. 0, -ESRCH. */
int member_clock_begin(struct member *member);
/* Begins a period. Returns the hits so far. */
uint64_t member_measure_begin(struct session *session, struct member *member);
/* The period since. 0, -ESRCH: the process has ended. */
int member_period(struct session *session, const struct member *member, uint64_t now_ns,
		  struct governor_period *out);
/* 0, -errno with its reason: there can be no governor. */
int session_governor_begin(struct session *session);
/*
 * With --overhead: a process that ran before begins in windows, so that the budget holds from the
 * first moment; if a mode was asked for, only a busy one does. The first is called before it is
 * planned; the second after member_planned(), sets member->mode, and may wait for EARLY_LEAST_NS.
 */
void member_busy_begin(const struct session *session, struct member *member);
void member_begin_early(const struct session *session, struct member *member,
			const struct plan_target *plan);
/* A process has come under trace. 0, -errno. */
int member_governor_begin(struct session *session, struct member *member);
/* Measures at most once a period, and changes the modes of processes that cost too much. */
void session_governor_due(struct session *session, uint64_t now_ns);

#endif
