/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of an image: pymalloc's or mimalloc's, exactly, and glibc's, by the header in front of
 * each. Pure.
 */
#pragma once

#include <stdbool.h>

#include "inspect/graph/chunks.h"
#include "util/id_map.h"

/* A pool has at most 16 KiB, unless it is one block; without the GIL it is a piece of a page. */
#define BLOCKS_PER_POOL 1024u

struct image_blocks_pool {
	uint64_t start, end; /* of its memory */
	uint64_t address;    /* of its first block */
	uint64_t block_bytes;
	uint32_t count;
	uint64_t live[BLOCKS_PER_POOL / 64]; /* by block number */
	/* beginnings of objects, by steps of 16 bytes from the first block on */
	uint64_t objects[BLOCKS_PER_POOL / 64];
	/* of image_blocks_number(): the first object's, and those before each word of `objects` */
	uint32_t first;
	uint16_t before[BLOCKS_PER_POOL / 64];
	uint64_t tables[BLOCKS_PER_POOL / 64]; /* of live: tables of objects with a known layout */
};

struct image_blocks {
	const struct image *image;
	struct image_blocks_pool *pools; /* by start */
	size_t count, capacity;
	/* by segment: the number, plus 1, of the first pool in each step of memory; 0: none */
	uint32_t **pool_at;
	int step_shift;
	struct heap_walk walk;
	int no_pools; /* 1: another allocator has all objects */
	struct chunks chunks;
	struct id_map chunk_tables; /* the same for glibc's blocks, by address */
};

/* 0; as heap_walk_source(). The caller frees with image_blocks_free(), also after a failure. */
int image_blocks_read(struct image_blocks *blocks, const struct image *image);
void image_blocks_free(struct image_blocks *blocks);

/* The pool whose memory covers address; NULL: none. */
const struct image_blocks_pool *image_blocks_pool(const struct image_blocks *blocks,
						  uint64_t address);
/* The same, of an address in a segment of the image. */
static inline const struct image_blocks_pool *
image_blocks_pool_in(const struct image_blocks *blocks, const struct image_segment *segment,
		     uint64_t address)
{
	const uint32_t *table = blocks->pool_at[segment - blocks->image->segments];
	int shift = blocks->step_shift;
	size_t i = table ? table[(address >> shift) - (segment->start >> shift)] : 0;

	/* A step holds one of pymalloc's pools, or a few pieces of mimalloc's pages. */
	for (; i && i <= blocks->count && blocks->pools[i - 1].start <= address; i++)
		if (address < blocks->pools[i - 1].end)
			return &blocks->pools[i - 1];
	return NULL;
}
/*
 * The usable bytes of the live block that begins at address: of a pool, or of glibc's malloc, whose
 * header must be plausible. 0: there is none.
 */
uint64_t image_blocks_bytes(const struct image_blocks *blocks, uint64_t address);
/*
 * The bytes that CPython's debug hooks have put in front of the request in a block of bytes at
 * address: 16, or 0 without hooks.
 */
uint32_t image_blocks_hooks(const struct image *image, uint64_t address, uint64_t bytes);

/*
 * Marks the live block at address, or at address behind debug hooks, as the table of an object
 * whose layout is known: no other object owns it. 0, -ENOMEM.
 */
int image_blocks_table(struct image_blocks *blocks, uint64_t address);
/*
 * Whether an object that was marked begins at address, which is in the pool; mark: marks it before
 * that.
 */
int image_blocks_object(const struct image_blocks_pool *pool, uint64_t address, int mark);
/*
 * Numbers the objects of all pools by the sorted addresses of all objects, once no object is added
 * any more.
 */
void image_blocks_number(struct image_blocks *blocks, const uint64_t *addresses, size_t count);
/* The number of the object that begins at address in the pool; UINT32_MAX: none. */
uint32_t image_blocks_object_number(const struct image_blocks_pool *pool, uint64_t address);
bool image_blocks_is_table(const struct image_blocks *blocks, uint64_t address);
