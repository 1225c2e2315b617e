/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the walk of an allocator visits, put together: adjacent blocks of one kind are one run, and
 * what overlaps an earlier run, or is not behind it, is left out and counted. Pure.
 */
#pragma once

#include "runtime/malloc/allocator.h"

struct runs {
	allocator_run_fn visit;
	void *context;
	struct allocator_totals *totals;
	struct allocator_run last; /* not visited yet; count 0: none */
	uint64_t end;              /* of what was put so far */
};

/* 0; what visit() returned. Of a block of 0 bytes there is nothing. */
int runs_put(struct runs *runs, uint64_t address, uint64_t block_bytes, uint64_t count,
	     enum allocator_kind kind);
/*
 * Puts count blocks of one size by their states (enum allocator_kind: used, cached or free), and
 * counts them in the class; class: NULL: none. As runs_put().
 */
int runs_put_blocks(struct runs *runs, uint64_t address, uint64_t block_bytes,
		    const uint8_t *states, uint64_t count, struct allocator_class *class);
/* Visits the last run. */
int runs_end(struct runs *runs);
/* The class of that size, made if it is new; NULL: there are too many. Valid until the next. */
struct allocator_class *runs_class(struct allocator_totals *totals, uint64_t block_bytes);
