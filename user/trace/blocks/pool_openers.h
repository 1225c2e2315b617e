/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who took a pool of pymalloc's into use: the stack of the request that found all pools of its size
 * class full. And how many of the blocks that a heap walk has found are in such pools.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/id_map.h"

struct pool_opener {
	uint64_t pool;
	uint32_t stack, owner; /* as in struct block */
	uint32_t cohort;       /* of blocks that were allocated just then */
};

/* index finds the item (address of the pool). index.account may be set before the first one. */
struct pool_openers {
	struct id_map index;
	struct pool_opener *items;
	size_t count, capacity;
};

/* Pools are divided into so many groups at random. */
#define POOL_GROUPS 16u

/* Blocks of a kind, size class and cohort in pools that a stack and owner have taken. */
struct taken_count {
	uint32_t kind, bytes, cohort, stack, owner;
	uint32_t blocks[POOL_GROUPS];
};

struct taken_counts {
	struct id_map index;
	struct taken_count *items;
	size_t count, capacity;
};

/* The pool's earlier opener is forgotten. 0; -ENOMEM, -EDQUOT: nobody is known to have taken it. */
int pool_openers_put(struct pool_openers *openers, const struct pool_opener *opener);
/* NULL: it is not known who took it. */
const struct pool_opener *pool_openers_find(const struct pool_openers *openers, uint64_t pool);
/* Gives each cohort another number. */
void pool_openers_renumber(struct pool_openers *openers, const uint8_t *map);
/* Leaves none, with the same account. */
void pool_openers_free(struct pool_openers *openers);

/* Counts a block in a pool, of a cohort. 0; -ENOMEM, -EDQUOT: it is not counted. */
int taken_counts_add(struct taken_counts *counts, const struct pool_opener *opener, uint32_t kind,
		     uint32_t bytes, uint32_t cohort);
/* Gives each cohort another number; those of equal number are one. */
void taken_counts_renumber(struct taken_counts *counts, const uint8_t *map);
void taken_counts_free(struct taken_counts *counts);
