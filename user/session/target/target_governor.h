/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's governor: measures what the probes cost each process, and changes its mode
 * accordingly. Included by user/session/target/ and user/session/ only.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#include "session/overhead/governor.h"

#define EARLY_LEAST_NS   30000000ull /* over which a process is seen to be busy */
#define EARLY_BUSY_SHARE 0.05        /* of a CPU */

struct session;
struct target;
struct plan_target;

struct target_governor {
	struct governor governor;
	clockid_t clock;      /* CPU time of the process */
	int early;            /* it begins in windows, although another mode was requested */
	enum event_mode mode; /* that one */
	int careful;          /* it must not cost much, even before the first measurement */
	double rate;          /* CPUs that it took while it was planned, or lately */
	uint64_t measured_ns, cpu_ns, hits;
	uint64_t looked_ns; /* between two measurements: when the hits were looked at */
};

/* Opens the process's CPU clock. 0, -ESRCH. */
int target_clock_begin(struct target *target);
/* CPUs that it takes; of one of which nothing is known, WINDOWS_RATE_MIN. */
double target_rate(const struct target *target);
/* The part of each process's budget that the machine's leaves: above 0, at most 1. */
double session_budget_part(struct session *session, uint64_t now_ns);
/* Begins a period. Returns the hits so far. */
uint64_t target_measure_begin(struct session *session, struct target *target);
/* The period since. 0, -ESRCH: the process has ended. */
int target_period(struct session *session, const struct target *target, uint64_t now_ns,
		  struct governor_period *out);
/* 0, -errno with its reason: there can be no governor. */
int session_governor_begin(struct session *session);
/*
 * With --overhead: a process that ran before begins in windows, so that the budget holds from the
 * first moment; if a mode was asked for, only a busy one does. The first is called before it is
 * planned; the second after target_planned(), sets target->mode, and may wait for EARLY_LEAST_NS.
 */
void target_busy_begin(const struct session *session, struct target *target);
void target_begin_early(const struct session *session, struct target *target,
			const struct plan_target *plan);
/* A process has come under trace. 0, -errno. */
int target_governor_begin(struct session *session, struct target *target);
/* Measures at most once a period, and changes the modes of processes that cost too much. */
void session_governor_due(struct session *session, uint64_t now_ns);
