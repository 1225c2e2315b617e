/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What heap walks found at each address of pymalloc's pools, and since which walk: a block whose
 * address shows something else than before is another block. Four bytes a block.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/id_map.h"

/*
 * A cohort is a number of walks in a row, below FINGERPRINT_COHORTS. 0: the address is free, or its
 * block is to be shown by the next walk.
 */
#define FINGERPRINT_COHORTS 256u

/* The blocks of a pool. */
struct fingerprint_pool {
	uint64_t pool, address; /* of the pool; of its first block */
	uint32_t block_bytes, count;
	uint32_t *blocks; /* 24 bits of what was found << 8 | cohort */
	uint32_t walk;    /* that has shown the pool last */
};

struct account;

/* Zero-initialise; account may be set before the first pool. */
struct fingerprints {
	struct id_map index; /* address of a pool -> its number in pools */
	struct fingerprint_pool *pools;
	size_t count, capacity;
	uint32_t walk;
	struct account *account; /* borrowed; NULL: none */
};

/* A walk begins, or its end: pools that it has not shown are dropped. */
void fingerprints_walk(struct fingerprints *fingerprints);
void fingerprints_sweep(struct fingerprints *fingerprints);
/*
 * The pool that the walk shows, with zeros for blocks that are new in it; borrowed until the next
 * call. *fresh: no walk before has shown it. If its blocks have another size now, all begin anew.
 * NULL: no memory.
 */
struct fingerprint_pool *fingerprints_pool(struct fingerprints *fingerprints,
					   const struct fingerprint_pool *shown, int *fresh);
/* The block at an address of a pool that some walk has shown; NULL: none. */
uint32_t *fingerprints_find(const struct fingerprints *fingerprints, uint64_t pool,
			    uint64_t address);
/* The size of the blocks of a pool; 0: no walk has shown it. */
uint32_t fingerprints_class(const struct fingerprints *fingerprints, uint64_t pool);
/*
 * Something was found in a block: the cohort of that block, which is `cohort` if it is another one
 * than before.
 */
uint32_t fingerprint_found(uint32_t *block, uint32_t kind, uint32_t print, uint32_t cohort);
/* Is it what was found there before? */
bool fingerprint_is(uint32_t block, uint32_t kind, uint32_t print);

static inline uint32_t fingerprint_cohort(uint32_t block)
{
	return block % FINGERPRINT_COHORTS;
}

/* Gives blocks of each cohort the number that map has for it. */
void fingerprints_renumber(struct fingerprints *fingerprints,
			   const uint8_t map[FINGERPRINT_COHORTS]);
/* Leaves the empty table. */
void fingerprints_free(struct fingerprints *fingerprints);
