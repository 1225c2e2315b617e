/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where there is no budget: what the probes take of those processes that ran before, in the first
 * COST_NOTICE_NS after the attaching. Is it more than COST_NOTICE_SHARE of their CPU time, that is
 * said once, with cheaper ways. session*.c only.
 */
#ifndef TRACER_SESSION_SESSION_COST_H
#define TRACER_SESSION_SESSION_COST_H

#include <stdint.h>

#define COST_NOTICE_NS    300000000ull
#define COST_NOTICE_SHARE 0.5

struct session;
struct member;

/* Zero-initialise. */
struct session_cost {
	int counts;        /* hits are counted, and what a hit costs */
	int done;          /* it was looked at, or cannot be */
	uint64_t begin_ns; /* 0: not yet */
};

/* Before the probes of a process are placed that runs already. */
void session_cost_prepare(struct session *session);
/* They are. */
void member_cost_begin(struct session *session, struct member *member);
/* Looks when it is time to. */
void session_cost_due(struct session *session, uint64_t now_ns);

#endif
