/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who took a pool of pymalloc's into use: the stack of the request that found all pools of its size
 * class full. And how many of the blocks that a heap walk has found are in such pools.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/id_map.h"

struct pool_taker {
	uint64_t pool;
	uint32_t stack;
	uint32_t cohort; /* of blocks that were allocated just then */
};

/* index finds the item (address of the pool). index.account may be set before the first one. */
struct pool_takers {
	struct id_map index;
	struct pool_taker *items;
	size_t count, capacity;
};

/* Pools are divided into so many groups at random. */
#define POOL_GROUPS 16u

/* Blocks of a kind, size class and cohort in pools that a stack has taken. */
struct taken_count {
	uint32_t kind, bytes, cohort, stack;
	uint32_t blocks[POOL_GROUPS];
};

struct taken_counts {
	struct id_map index;
	struct taken_count *items;
	size_t count, capacity;
};

/* The pool's earlier taker is forgotten. 0; -ENOMEM, -EDQUOT: nobody is known to have taken it. */
int pool_takers_put(struct pool_takers *takers, const struct pool_taker *taker);
/* NULL: it is not known who took it. */
const struct pool_taker *pool_takers_find(const struct pool_takers *takers, uint64_t pool);
/* Gives each cohort another number. */
void pool_takers_renumber(struct pool_takers *takers, const uint8_t *map);
/* Leaves none, with the same account. */
void pool_takers_free(struct pool_takers *takers);

/* Counts a block in a pool, of a cohort. 0; -ENOMEM, -EDQUOT: it is not counted. */
int taken_counts_add(struct taken_counts *counts, const struct pool_taker *taker, uint32_t kind,
		     uint32_t bytes, uint32_t cohort);
/* Gives each cohort another number; those of equal number are one. */
void taken_counts_renumber(struct taken_counts *counts, const uint8_t *map);
void taken_counts_free(struct taken_counts *counts);
