/* SPDX-License-Identifier: Apache-2.0 */
/* How many blocks of each kind, size class and cohort there are on a heap. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/id_map.h"

/* Further kinds count as EVENT_KIND_OTHER. */
#define KINDS_MAX 65536u

struct kind_count {
	uint32_t kind, bytes, cohort;
	uint64_t live;
};

/* index finds the item (kind_key()). index.account may be set before the first one is added. */
struct kind_counts {
	struct id_map index;
	struct kind_count *items;
	size_t count, capacity;
};

static inline uint64_t kind_key(uint32_t kind, uint32_t bytes, uint32_t cohort)
{
	return (uint64_t)kind << 32 | bytes << 8 | cohort;
}

/* Adds like->live blocks. 0; -ENOMEM, -EDQUOT: they are not counted. */
int kind_counts_add(struct kind_counts *counts, const struct kind_count *like);
/* Leaves none, with the same account. */
void kind_counts_free(struct kind_counts *counts);
