/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* One pool of a heap walk (heap.h): its blocks, its free list, and its record. */
#pragma once

#include "python/heap_walk.h"

/*
 * Marks the block at offset `at` from the pool's first block as free. 0; -1: no block begins there,
 * or it is on the list twice.
 */
static __always_inline int block_mark_free(struct heap_walk *walk, __u64 at)
{
	__u32 number =
		(at / EVENT_BLOCK_STEP & (EVENT_POOL_BLOCKS - 1)) * walk->inverse >> INVERSE_SHIFT;
	__u64 *live = &walk->record.live[number / 64 & (POOL_WORDS - 1)];

	if (number >= walk->carved || at != (__u64)number * walk->block_bytes ||
	    !(*live >> (number & 63) & 1))
		return -1;
	*live &= ~(1ull << (number & 63));
	return 0;
}

/* Follows up to LINKS_PER_TURN links of a pool's free list: then the call's cost is negligible. */
static long free_list_turn(__u32 index UNUSED, void *context)
{
	struct heap_walk *walk = ((struct heap_turn *)context)->walk;
	struct pool_copy *copy = ((struct heap_turn *)context)->copy;
	__u64 block = walk->block, at;
	int i;

	for (i = 0; i < LINKS_PER_TURN && block; i++) {
		at = block - RECORD(walk)->address;
		if (block_mark_free(walk, at)) {
			walk->inconsistent = 1;
			break;
		}
		at += walk->heap.pool_header_size;
		block = copy->words[at / sizeof(__u64) & (POOL_BYTES_MAX / sizeof(__u64) - 1)];
	}
	walk->steps += i;
	walk->free_count += i;
	walk->block = block;
	return !block || walk->inconsistent;
}

/*
 * Marks all blocks that were ever handed out as live; those on the free list are cleared later. The
 * words behind those blocks are not sent.
 */
static __always_inline void pool_fill(struct heap_walk *walk)
{
	__u32 word = walk->carved / 64;

	__builtin_memset(walk->record.live, 0xff, sizeof(walk->record.live));
	if (word < POOL_WORDS)
		walk->record.live[word] = (1ull << (walk->carved & 63)) - 1;
}

static __always_inline void pool_output(struct heap_walk *walk)
{
	__u32 words = (RECORD(walk)->count + 63) / 64, bytes;

	if (words > POOL_WORDS)
		words = POOL_WORDS;
	bytes = sizeof(struct event_census_pool) + words * sizeof(__u64);
	header_fill(&RECORD(walk)->header, EVENT_CENSUS_POOL, bytes);
	RECORD(walk)->id = walk->id;
	walk->steps += STEPS_RECORD;
	if (record_output(&walk->record, bytes, LOSS_PROCESS))
		walk->failed = 1;
}

#define HEAD_U32(walk, offset) (*(__u32 *)((__u8 *)(walk)->head + OFFSET_WITHIN(offset, 44, 4)))
#define HEAD_U64(walk, offset) (*(__u64 *)((__u8 *)(walk)->head + OFFSET_WITHIN(offset, 40, 8)))

/*
 * Decodes the pool's header in walk->head into RECORD(walk), carved and the free list's head. If it
 * is not a valid header, walk->inconsistent is set.
 */
static __always_inline void pool_head(struct heap_walk *walk, __u64 pool)
{
	__u32 szidx = HEAD_U32(walk, walk->heap.pool_szidx);
	__u32 next = HEAD_U32(walk, walk->heap.pool_nextoffset);

	walk->block = HEAD_U64(walk, walk->heap.pool_freeblock);
	walk->block_bytes = (szidx + 1) * EVENT_BLOCK_STEP;
	walk->free_count = 0;
	RECORD(walk)->address = pool + walk->heap.pool_header_size;
	walk->inconsistent = walk->unread || szidx >= EVENT_SMALL_BYTES / EVENT_BLOCK_STEP ||
			     next < walk->heap.pool_header_size || next > walk->heap.pool_bytes;
	if (walk->inconsistent)
		return;
	walk->carved = (next - walk->heap.pool_header_size) / walk->block_bytes;
	walk->inverse = (1u << INVERSE_SHIFT) / (szidx + 1) + 1;
}

/*
 * Marks the blocks on the pool's free list as free in RECORD(walk). The copy ends with the link of
 * the last block handed out: pages after it may never have been touched and not be resident.
 */
static __always_inline void pool_links(struct heap_turn *turn, __u64 pool)
{
	struct heap_walk *walk = turn->walk;
	__u32 bytes = walk->heap.pool_header_size + (walk->carved - 1) * walk->block_bytes +
		      sizeof(__u64);

	if (!walk->carved || bytes > POOL_BYTES_MAX)
		bytes = POOL_BYTES_MAX;
	walk->steps += bytes / 64 * STEPS_LINE;
	if (bpf_probe_read_user(turn->copy->words, bytes, (void *)pool))
		walk->inconsistent = 1;
	else
		bpf_loop(EVENT_POOL_BLOCKS / LINKS_PER_TURN + 1, free_list_turn, turn, 0);
}

/* The next pool of the arena. */
static __always_inline void pool_next(struct heap_turn *turn)
{
	struct heap_walk *walk = turn->walk;
	__u64 pool = walk->pool;
	__u32 count;

	walk->pool += walk->heap.pool_bytes;
	walk->steps += STEPS_POOL;
	walk->unread = bpf_probe_read_user(walk->head, sizeof(walk->head), (void *)pool) != 0;
	count = HEAD_U32(walk, walk->heap.pool_count);
	if (!count && !walk->unread)
		return;
	pool_head(walk, pool);
	if (!walk->inconsistent) {
		pool_fill(walk);
		if (walk->block)
			pool_links(turn, pool);
	}
	if (walk->inconsistent || walk->carved - walk->free_count != count) {
		walk->pools_unreadable++;
		RECORD(walk)->block_bytes = 0;
		RECORD(walk)->count =
			(walk->heap.pool_bytes - walk->heap.pool_header_size) / EVENT_BLOCK_STEP;
	} else {
		walk->blocks += count;
		RECORD(walk)->block_bytes = walk->block_bytes;
		RECORD(walk)->count = walk->carved;
	}
	pool_output(walk);
}
