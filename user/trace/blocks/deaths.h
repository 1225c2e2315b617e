/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last blocks seen in windows that died, or whose addresses were used again: a ring. They tell
 * how long blocks live, who allocated those that are older than the trace, and how often an address
 * is given to a block that cannot be told from the one before.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/hash.h"

#define DEATHS_MAX  65536u
#define DEATHS_NONE UINT32_MAX

struct death {
	uint32_t stack, window, kind, flags; /* flags: the caller's */
	uint32_t owner;                      /* as in struct block */
	uint32_t bytes, class_bytes;
	uint32_t print;  /* as in sampled_blocks.h */
	uint32_t hidden; /* reused_ns, and a recheck has found there what was there before */
	uint64_t made_ns, shown_ns; /* as in sampled_blocks.h */
	uint64_t died_ns;
	/* A window has shown its address allocated again, or (malloc's) freed; 0: none has */
	uint64_t reused_ns;
};

/* Blocks of one row die alike: what rates are known by. */
static inline uint64_t death_row_key(uint32_t stack, uint32_t kind, uint32_t class_bytes)
{
	return hash_u64((uint64_t)kind << 32 | class_bytes) ^ stack;
}

struct account;

/* Zero-initialise; account may be set before the first one. */
struct deaths {
	struct death *items;
	size_t count, capacity, last; /* last: where the newest one is */
	struct account *account;      /* borrowed; NULL: none */
};

/* Adds one, in the place of the oldest if there are too many. Its place; DEATHS_NONE: no memory. */
uint32_t deaths_add(struct deaths *deaths, const struct death *death);
/* Leaves the empty ring. */
void deaths_free(struct deaths *deaths);
