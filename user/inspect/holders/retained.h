/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retained sizes: what would be freed with an object, which is what it dominates. What several
 * roots hold is retained by none of them. Pure.
 */
#pragma once

#include "inspect/graph/graph.h"

struct retained_sum {
	uint64_t bytes, count;
};

struct retained {
	const struct graph *graph;
	uint32_t *idom; /* graph->count: held by several roots, or by itself a root */
	uint32_t *child_start, *children; /* of each object, and of graph->count */
	uint64_t *bytes;                  /* by object, with its own */
	uint32_t *counts;                 /* the same, objects */
	struct retained_sum
		*types; /* by type: an object inside of another of its type counts once */
};

/* 0, -ENOMEM. The graph is borrowed until retained_free(). */
int retained_new(struct retained **out, const struct graph *graph);
void retained_free(struct retained *retained);
/*
 * What would be freed with the objects of each of count groups. group_of: the group of each object;
 * GRAPH_NONE: none. An object inside of another one of its group counts once. Of a group that is
 * `apart` only that counts which is in no other object with a group; apart NULL: none is. sums is
 * the caller's, zeroed. 0, -ENOMEM.
 */
int retained_groups(const struct retained *retained, const uint32_t *group_of, size_t count,
		    const uint8_t *apart, struct retained_sum *sums);
/* The same of one group: the objects of which `matched` is not 0. 0, -ENOMEM. */
int retained_together(const struct retained *retained, const uint8_t *matched,
		      struct retained_sum *sum);
/*
 * The `most` objects that retain most, or as many as there are, *count, in this order; the caller
 * frees. matched: by object, 1 if it is one of them; NULL: each is. NULL: no memory.
 */
uint32_t *retained_largest(const struct retained *retained, const uint8_t *matched, size_t most,
			   size_t *count);
