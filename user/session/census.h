/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reading of a target's heap, as records: the trace makes of them which of its blocks live
 * (trace/trace_census.c), and a capture replays to the same.
 */
#ifndef TRACER_SESSION_CENSUS_H
#define TRACER_SESSION_CENSUS_H

#include <stddef.h>

#include "abi/events.h"
#include "python/runtime.h"

struct census_opts {
	int baseline; /* the first one: what is on the heap is older than the trace */
	int freeze;   /* stop the target for it */
	/* of some pools tell what the types of the objects in it say of their sizes */
	int types;
	/* A record of the reading, borrowed for the call. Non-zero ends it. */
	int (*record)(void *context, const void *record, size_t size);
	/*
	 * Bring in the events that are there: before a reading's first record, now and then during
	 * it, before its last.
	 */
	void (*refresh)(void *context);
	void *context;
};

/*
 * Reads the heap. Whatever happens, a begun census is ended by a record. 0; -ENOTSUP no heap that
 * can be read; -ENODATA it is empty, or none of pymalloc's; -ESRCH; -EBUSY, -ETIMEDOUT it could not
 * be stopped (then nothing was read); other errors of record().
 */
int census_take(const struct python_runtime *runtime, const struct census_opts *opts);

#endif
