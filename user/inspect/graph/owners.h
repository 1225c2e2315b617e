/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which object a block of memory belongs to: as itself, or as a table or buffer that it owns. Pure.
 */
#pragma once

#include "inspect/graph/graph.h"

struct owner {
	uint64_t address;
	uint32_t object;
};

/* Zero-initialise; owners_free() releases. */
struct owners {
	struct owner *entries; /* by address; of several at one, the object itself is first */
	size_t count, capacity;
};

/* 0, -ENOMEM. */
int owners_read(struct owners *out, const struct graph *graph);
void owners_free(struct owners *owners);
/* The object that owns the block of bytes at address; GRAPH_NONE: none was found. */
uint32_t owners_find(const struct owners *owners, uint64_t address, uint64_t bytes);
