/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of live blocks of one process: {domain, address} -> {bytes, traceback}. Open addressing
 * in segments that grow one at a time, so that growing neither stalls the reader nor doubles its
 * memory; at most 60 bytes a live block at a million blocks.
 */
#ifndef TRACER_TRACE_BLOCKS_H
#define TRACER_TRACE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct block {
	uint64_t address;
	uint64_t bytes : 59;
	/* it begins EVENT_HOOKS_BEFORE bytes within the allocator's, which is larger */
	uint64_t hooked : 1;
	/* it lies in one of pymalloc's pools, and a reading of the heap shows it */
	uint64_t pooled : 1;
	uint64_t epoch : 1;   /* of the last reading that showed it, or since which it is there */
	uint64_t rounded : 1; /* bytes is that of the size class: what was asked for is not known */
	/* asked of pymalloc, which passed it on to malloc; it stays so when it shrinks */
	uint64_t large : 1;
	uint32_t traceback : 31; /* index in the trace's tracebacks */
	/* a fork has copied it, and the child has not been given it anew */
	uint32_t inherited : 1;
	uint32_t domain;
};

#define BLOCK_TRACEBACK_MAX ((1u << 31) - 1)

struct account;
struct blocks;

/* account: that the table is charged to, borrowed until blocks_free(); NULL: none. 0, -ENOMEM. */
int blocks_new(struct blocks **out, struct account *account);
/* The same blocks in a table of their own. 0; -ENOMEM, -EDQUOT, *out untouched. */
int blocks_copy(struct blocks **out, const struct blocks *blocks, struct account *account);
void blocks_free(struct blocks *blocks);
/*
 * Adds or replaces; *old is the block replaced (bytes etc.) and 1 is returned; 0 when new; -ENOMEM,
 * -EDQUOT; -EINVAL for address 0, which no block has.
 */
int blocks_put(struct blocks *blocks, const struct block *block, struct block *old);
/* Removes; 1 and *old when it was there, 0 when not. */
int blocks_take(struct blocks *blocks, uint64_t address, uint32_t domain, struct block *old);
/* Borrowed until the next put or take; NULL when absent. */
const struct block *blocks_find(const struct blocks *blocks, uint64_t address, uint32_t domain);
/*
 * The block that holds the byte at address, wherever in it that lies: of Python's own domain (0) if
 * there is one, which is found at once within BLOCKS_NEAR bytes of its start, as every object is;
 * else the table is read through, and of several (domains overlap) the one that starts last counts.
 * Borrowed as above; NULL: none.
 */
#define BLOCKS_NEAR 1024u
const struct block *blocks_containing(const struct blocks *blocks, uint64_t address);
/* Gives the block another traceback, from when on it is not inherited; 1, 0 when it is absent. */
int blocks_retrace(struct blocks *blocks, uint64_t address, uint32_t domain, uint32_t traceback);
/*
 * Is the block that a reading of the heap shows at address, in a pool of such blocks, the one in
 * the table? 1: it gets this epoch; 0: none is there or one that does not fit. The address is the
 * allocator's, also of hooked ones.
 */
int blocks_confirm(struct blocks *blocks, uint64_t address, uint32_t class_bytes,
		   unsigned int epoch);
/* Gives the pooled block at address (its own) this epoch, if there is one. */
void blocks_keep(struct blocks *blocks, uint64_t address, unsigned int epoch);
/* Gives every block this epoch. */
void blocks_confirm_all(struct blocks *blocks, unsigned int epoch);
/* Makes every block an inherited one. */
void blocks_inherit_all(struct blocks *blocks);
/* Gives every pooled block this epoch whose address is_kept() says so of. */
void blocks_keep_if(struct blocks *blocks, unsigned int epoch,
		    int (*is_kept)(const void *context, uint64_t address), const void *context);
/* Takes out every pooled block of the other epoch; removed() is told of each. */
void blocks_sweep(struct blocks *blocks, unsigned int epoch,
		  void (*removed)(void *context, const struct block *block), void *context);
size_t blocks_count(const struct blocks *blocks);
size_t blocks_memory(const struct blocks *blocks);
/*
 * Iteration in no order: *cursor starts at 0; NULL at the end. The table must not change meanwhile.
 */
const struct block *blocks_next(const struct blocks *blocks, size_t *cursor);

#endif
