/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without --overhead: measures what the probes cost the processes that ran before, in the first
 * COST_NOTICE_NS after attaching. If that is more than COST_NOTICE_SHARE of their CPU time, it is
 * logged once, with cheaper modes. Included by user/member/ and user/session/ only.
 */
#ifndef TRACER_MEMBER_COST_H
#define TRACER_MEMBER_COST_H

#include <stdint.h>

#define COST_NOTICE_NS    300000000ull
#define COST_NOTICE_SHARE 0.5

struct session;
struct member;

/* Zero-initialise. */
struct session_cost {
	int counts;        /* hits and their cost are being counted */
	int done;          /* it was measured, or cannot be */
	uint64_t begin_ns; /* 0: not yet */
};

/* To be called before the probes of a running process are placed. */
void session_cost_prepare(struct session *session);
/* To be called after they are placed. */
void member_cost_begin(struct session *session, struct member *member);
/*
 * Begins to measure what a trap costs here, once. To be called before privileges are dropped, and
 * not in an attach. The result is waited for when it is needed: what happens in the first tenth of
 * a second, libraries that are mapped and their unwind tables, is to be attended to.
 */
void session_cost_trap_begin(struct session *session);
/* Measures when COST_NOTICE_NS have passed. */
void session_cost_due(struct session *session, uint64_t now_ns);

#endif
