/* SPDX-License-Identifier: Apache-2.0 */
/* What the cyclic collectors of a session's targets have done: for views and metrics. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/cpython/collector_state.h"

struct session;

enum collections_kind {
	COLLECTIONS_DONE,
	COLLECTIONS_FREED,         /* objects */
	COLLECTIONS_UNCOLLECTABLE, /* the same */
	COLLECTIONS_NS,            /* their duration */
	COLLECTIONS_KINDS
};

/* collections.flags */
#define COLLECTIONS_TIMED   1u /* COLLECTIONS_NS is known: 3.15 and later */
#define COLLECTIONS_RUNNING 2u /* one is running now */
#define COLLECTIONS_MORE    4u /* there are more interpreters than these */

/* Of one process. */
struct collections {
	uint64_t time_ns; /* when it was read, CLOCK_MONOTONIC; 0: nothing is known */
	uint32_t flags;
	uint32_t collectors; /* one for each interpreter */
	uint32_t off;        /* those that do not run by themselves */
	/* of the first interpreter, as in struct collector_generation */
	int32_t count[COLLECTOR_GENERATIONS], threshold[COLLECTOR_GENERATIONS];
	uint32_t reserved;
	/* Of all, since they began. They never fall: interpreters that ended stay in them. */
	uint64_t sums[COLLECTIONS_KINDS][COLLECTOR_GENERATIONS];
};

static inline uint64_t collections_sum(const struct collections *collections,
				       enum collections_kind kind)
{
	const uint64_t *of = collections->sums[kind];

	return of[0] + of[1] + of[2];
}

/*
 * Reads those of the running targets, and feeds them to the trace: of all, for a snapshot;
 * otherwise of those that were not read within the last second and, of more than 32 targets, within
 * as many seconds as there are 32s: so that it is read often enough for a view, and what that takes
 * is bounded.
 */
void collections_read(struct session *session, bool all);
/* Of a process by its index in the trace and its PID, as of the last time; NULL: not known. */
const struct collections *collections_of(const struct session *session, size_t process,
					 uint32_t pid);
void collections_free(struct session *session);
