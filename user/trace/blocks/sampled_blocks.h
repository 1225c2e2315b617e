/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of blocks that were seen in windows of probes, by address, besides the table of
 * blocks: in which window, and what heap walks found in them. A block that was seen may die between
 * windows, and its address be used again, so it counts only while every walk shows the same in it.
 *
 * Open addressing: finding, adding and removing take constant time, however many there are.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sampled_block {
	uint64_t address; /* the allocator's; never 0 */
	/* as in struct event_census_kind; kind 0: no walk has shown the block yet */
	uint32_t kind, print;
	uint32_t window; /* number of the window, from 0 */
	/* SAMPLED_BLOCK_OBJECT: index of its stack in the trace, and owner as in struct block */
	uint32_t stack, owner;
	uint32_t flags; /* SIGHTING_* */
	uint32_t domain;
	/* until a walk has shown it: 1 + place in deaths of the block that it follows; 0: none */
	uint32_t follows;
	uint64_t made_ns;  /* when it was allocated; 0: not known */
	uint64_t shown_ns; /* when a walk has shown it first */
	uint64_t seen_ns;  /* when a walk has shown it last */
};

/* address is an object's, whose block is not known yet */
#define SAMPLED_BLOCK_OBJECT 1u
/* it is a block of malloc's, in no pool */
#define SAMPLED_BLOCK_LARGE 2u
/* its allocation was seen while all of its kind were: it stands for itself only */
#define SAMPLED_BLOCK_CERTAIN 4u
/* of the native layer: print has the units of its chunk, 0 until a walk has shown it */
#define SAMPLED_BLOCK_NATIVE 8u

/* More than that are not kept, since walks would take too long. */
#define SAMPLED_BLOCKS_MAX (1u << 20)

struct account;

/* Zero-initialise; account may be set before the first put. */
struct sampled_blocks {
	struct sampled_block *slots;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
	struct account *account; /* borrowed; NULL: none */
};

/* Adds or replaces. 0; -ENOMEM, -EDQUOT (also beyond SAMPLED_BLOCKS_MAX); -EINVAL: address 0. */
int sampled_blocks_put(struct sampled_blocks *sampled_blocks,
		       const struct sampled_block *sampled_block);
/* Borrowed until the next put or remove; its address must not be changed. NULL: absent. */
struct sampled_block *sampled_blocks_find(const struct sampled_blocks *sampled_blocks,
					  uint64_t address);
/* 1: removed; 0: absent. */
int sampled_blocks_remove(struct sampled_blocks *sampled_blocks, uint64_t address);
/*
 * Iterates in no particular order. *cursor starts at 0; NULL at the end. Nothing may be added or
 * removed meanwhile.
 */
const struct sampled_block *sampled_blocks_next(const struct sampled_blocks *sampled_blocks,
						size_t *cursor);
/* Copies to out, which is empty and may have an account. 0; -ENOMEM, -EDQUOT. */
int sampled_blocks_copy(struct sampled_blocks *out, const struct sampled_blocks *from);
/* Leaves the empty table. */
void sampled_blocks_free(struct sampled_blocks *sampled_blocks);
