/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the blocks of a pool, as records (abi/event_windows.h): by it the trace recognises
 * blocks that it saw in a window of probes, and counts blocks by type and size class.
 */
#pragma once

#include <stddef.h>

#include "abi/events.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/runtime.h"

struct heap_kinds;

/*
 * For one walk: what an address was found to be holds until heap_kinds_free(). 0; as
 * heap_types_read(). runtime must outlive it.
 */
int heap_kinds_new(struct heap_kinds **out, const struct python_runtime *runtime);
void heap_kinds_free(struct heap_kinds *kinds); /* NULL is legal */

#define HEAP_KINDS_BYTES                                                                           \
	(sizeof(struct event_census_kinds) + EVENT_POOL_BLOCKS * sizeof(struct event_census_kind))

/* What is in a block that begins with this content, `bytes` of it. */
struct event_census_kind heap_kinds_of(struct heap_kinds *kinds, const uint8_t *content,
				       uint32_t bytes);

/*
 * Writes the EVENT_CENSUS_KINDS of a pool to out, of HEAP_KINDS_BYTES bytes, 8-byte aligned. The
 * caller sets the header's time, process and thread.
 */
void heap_kinds_record(struct heap_kinds *kinds, const struct heap_pool *pool, uint64_t id,
		       struct event_census_kinds *out);

struct heap_kinds_opts {
	uint64_t until_ns; /* CLOCK_MONOTONIC; later no further pool is read */
	/* Takes a record, borrowed for the call. Non-zero ends the walk. */
	int (*record)(void *context, const void *record, size_t size);
	void *context;
};

/*
 * Reads these pools, by their addresses, and passes on what is in them; a pool that is not there
 * any more is one of free blocks. 0, also if the time did not suffice: *done is the number of pools
 * that were read; -ESRCH; -errno as heap_kinds_new(); errors of record().
 */
int heap_kinds_read(const struct python_runtime *runtime, const uint64_t *pools, size_t count,
		    const struct heap_kinds_opts *opts, size_t *done);
