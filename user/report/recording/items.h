/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte strings that are numbered in the order in which they were first seen. Zero-initialise;
 * account may be set.
 */
#pragma once

#include "report/pprof/pprof_wire.h"
#include "util/id_map.h"

struct items {
	struct account *account; /* borrowed; NULL: none */
	unsigned char *bytes;
	size_t size, capacity;
	uint32_t *ends; /* offsets in bytes */
	size_t count, end_capacity;
	struct id_map index; /* hash -> number, of the first `indexed` items */
	size_t indexed;
};

/* Adds an item without looking for an equal one. 0, -ENOMEM, -EDQUOT, -EOVERFLOW (4 GiB). */
int items_add(struct items *items, struct span item);
/* The number of the item, which is added if it is new. Errors as above. */
int items_intern(struct items *items, struct span item, uint32_t *number);
/* Borrowed until the next item is added; number is below the count. */
struct span items_get(const struct items *items, size_t number);
void items_free(struct items *items);
