/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probes cost the processes: the share of their CPU time, for the trace (EVENT_COST).
 * Without --overhead it is logged once a process has run for COST_NOTICE_NS; and if it is more than
 * COST_NOTICE_SHARE, then or whenever that is, once, with cheaper modes. Included by
 * user/session/target/ and user/session/ only.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#include "proc/threads.h"

#define COST_NOTICE_NS    300000000ull
#define COST_NOTICE_SHARE 0.5

struct session;
struct target;

/* Zero-initialise. */
struct session_cost {
	int counts;          /* hits and their cost are being counted */
	int failed;          /* they cannot be */
	int said, reported;  /* it was logged; it was more than COST_NOTICE_SHARE */
	uint64_t recheck_ns; /* when processes are looked at next; 0: there is none */
};

/* Of a target. Zero-initialise. */
struct target_cost {
	int begun;
	clockid_t clock;
	uint64_t begin_cpu_ns;
	struct threads_time waited; /* when it was read last */
	uint64_t wait_ns;
	uint64_t hits;    /* those that are part of */
	double probes_ns; /* what the probes took */
};

/* To be called before the probes of a process are placed. */
void session_cost_prepare(struct session *session);
/* To be called after they are placed. ran: it ran before, and is one that a caveat may be about. */
void target_cost_begin(struct session *session, struct target *target, int ran);
/*
 * Feeds what it has run and what the probes took, as of now. To be called before its mode changes,
 * too.
 */
void target_cost_feed(struct session *session, struct target *target, uint64_t now_ns);
/*
 * Begins to measure what a trap costs here, once. To be called before privileges are dropped, and
 * not in an attach. The result is waited for when it is needed: what happens in the first tenth of
 * a second, libraries that are mapped and their unwind tables, is to be attended to.
 */
void session_cost_trap_begin(struct session *session);
/* Looks at the processes every COST_NOTICE_NS until it is logged. */
void session_cost_due(struct session *session, uint64_t now_ns);
