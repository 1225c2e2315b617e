/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk of a target's heap, as records: the trace finds out from them which blocks are live
 * (trace/process/census.c), and replaying a capture gives the same result.
 */
#pragma once

#include <stddef.h>

#include "abi/events.h"
#include "runtime/cpython/runtime.h"

struct census_opts {
	int baseline; /* the blocks on the heap are older than the trace */
	int freeze;   /* stop the target during the walk */
	/* for a sample of the pools, emit the requested sizes that the objects' types imply */
	int types;
	int kinds; /* emit what is in the blocks of every pool (heap_kinds.h) */
	/* Takes a record of the walk, borrowed for the call. Non-zero ends the walk. */
	int (*record)(void *context, const void *record, size_t size);
	/*
	 * Drains pending events: before the walk's first record, periodically during it, before its
	 * last record.
	 */
	void (*refresh)(void *context);
	void *context;
};

/*
 * Walks the heap. Once begun, a census is always ended by an EVENT_CENSUS_DONE record. 0; -ENOTSUP
 * the heap cannot be read; -ENODATA it is empty, or not pymalloc's; -ESRCH; -EBUSY, -ETIMEDOUT the
 * target could not be stopped (and nothing was read); errors of record().
 */
int census_take(const struct python_runtime *runtime, const struct census_opts *opts);
