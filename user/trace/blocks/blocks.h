/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of live blocks of one process: {domain, address} -> {bytes, stack}. Open addressing in
 * segments that grow one at a time, so that growth neither stalls the reader nor doubles its
 * memory. At a million blocks it uses at most 60 bytes per live block.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"

struct block {
	uint64_t address;
	uint64_t bytes : 59;
	/* it starts EVENT_HOOKS_BEFORE bytes inside the allocator's larger block (debug hooks) */
	uint64_t hooked : 1;
	/* it is in a pymalloc pool, so heap walks show it */
	uint64_t pooled : 1;
	/* of the last heap walk that showed it, or current when it was added */
	uint64_t epoch : 1;
	uint64_t rounded : 1; /* bytes is the size class; the requested size is unknown */
	/* requested from pymalloc, which passed it on to malloc; stays set when it shrinks */
	uint64_t large : 1;
	uint32_t stack : 31; /* index of its stack in the trace (STACK_EMPTY: none) */
	/* copied by fork, and not allocated or reused by the child since */
	uint32_t inherited : 1;
	uint32_t domain;
	/*
	 * when it was allocated, since its process was first traced, of a fork its first ancestor
	 * whose blocks it has; UINT32_MAX: that or later
	 */
	uint32_t born_ms;
	uint32_t owner; /* who has allocated it, or an object in it (block_owners.h) */
};

#define BLOCK_STACK_MAX ((1u << 31) - 1)

/* What the allocator was asked for, which debug hooks make larger, and where it has put that. */
static inline uint64_t block_allocator_bytes(const struct block *block)
{
	return block->bytes + (block->hooked ? EVENT_HOOKS_BYTES : 0);
}

/* The size class that pymalloc rounds it up to. */
static inline uint64_t block_class_bytes(const struct block *block)
{
	uint64_t bytes = block_allocator_bytes(block);

	return (bytes ? bytes + EVENT_BLOCK_STEP - 1 : EVENT_BLOCK_STEP) / EVENT_BLOCK_STEP *
	       EVENT_BLOCK_STEP;
}

static inline uint64_t block_allocator_address(const struct block *block)
{
	return block->address - (block->hooked ? EVENT_HOOKS_BEFORE : 0);
}

struct account;
struct blocks;

/* account: charged for the table, borrowed until blocks_free(); NULL: none. 0, -ENOMEM. */
int blocks_new(struct blocks **out, struct account *account);
/* Copies the blocks into a new table. 0; -ENOMEM, -EDQUOT, *out untouched. */
int blocks_copy(struct blocks **out, const struct blocks *blocks, struct account *account);
void blocks_free(struct blocks *blocks);
/*
 * Adds or replaces a block. Returns 0: added; 1: replaced, the old block is in *old; -ENOMEM,
 * -EDQUOT; -EINVAL: address 0, which no block has.
 */
int blocks_put(struct blocks *blocks, const struct block *block, struct block *old);
/* Removes a block. 1 and *old if it was there, otherwise 0. */
int blocks_take(struct blocks *blocks, uint64_t address, uint32_t domain, struct block *old);
/* Borrowed until the next put or take; NULL if absent. */
const struct block *blocks_find(const struct blocks *blocks, uint64_t address, uint32_t domain);
/* The block of Python's own domain (0) that the allocator has at address. The same. */
const struct block *blocks_at_allocator(const struct blocks *blocks, uint64_t address);
/*
 * The block that contains the byte at address. A block of Python's own domain (0) has priority, and
 * is found without a scan if it starts at most BLOCKS_NEAR bytes before address, as the block of
 * every object does. Otherwise the whole table is scanned; of several blocks (domains overlap) the
 * one that starts last is returned. Borrowed as above; NULL: none.
 */
#define BLOCKS_NEAR 1024u
const struct block *blocks_containing(const struct blocks *blocks, uint64_t address);
/*
 * Another object has the block of that address and domain: sets stack, owner and born_ms, and
 * clears inherited. 1; 0: there is no such block.
 */
int blocks_retrace(struct blocks *blocks, const struct block *by);
/*
 * A heap walk found a live block at address in a pool of size class class_bytes: is it the one in
 * the table? 1: yes, its epoch is set; 0: no block, or one that does not fit. The address is the
 * allocator's, also for hooked blocks. is_mimalloc: that is the allocator, not pymalloc.
 */
int blocks_confirm(struct blocks *blocks, uint64_t address, uint32_t class_bytes, int is_mimalloc,
		   unsigned int epoch);
/* Sets the epoch of the pooled block at address (its own, not the allocator's), if there is one. */
void blocks_keep(struct blocks *blocks, uint64_t address, unsigned int epoch);
/* Sets the epoch of every block. */
void blocks_confirm_all(struct blocks *blocks, unsigned int epoch);
/* Marks every block as inherited. */
void blocks_inherit_all(struct blocks *blocks);
/* Sets the epoch of every pooled block for whose address is_kept() returns non-zero. */
void blocks_keep_if(struct blocks *blocks, unsigned int epoch,
		    bool (*is_kept)(const void *context, uint64_t address), const void *context);
/* Removes every pooled block of the other epoch; removed() is called before each removal. */
void blocks_sweep(struct blocks *blocks, unsigned int epoch,
		  void (*removed)(void *context, const struct block *block), void *context);
size_t blocks_count(const struct blocks *blocks);
size_t blocks_memory(const struct blocks *blocks);
/*
 * Iterates in no particular order. *cursor starts at 0; NULL at the end. The table must not change
 * during the iteration.
 */
const struct block *blocks_next(const struct blocks *blocks, size_t *cursor);
