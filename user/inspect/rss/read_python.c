/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pymalloc's arenas. Every byte of an arena is in a pool in use (its header, its live and its free
 * blocks, what is left at its end), or in a free pool.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/rss/reading.h"
#include "util/array.h"
#include "util/sorted.h"

struct python_reader {
	struct memory_reading *reading;
	struct memory_region region; /* of the arena; account NULL: none */
	uint64_t arena, arena_bytes;
	uint64_t live; /* bytes of the arena's blocks in use */
	int has_pages; /* the arena is a segment of mimalloc's */
	int skip, err;
};

#define SPARSE_SHARE 4u /* an arena is sparse if at most a quarter of it is in use */

static void sparse_add(struct python_reader *reader)
{
	struct memory_reading *reading = reader->reading;
	int err = ARRAY_GROW(reading->sparse, reading->sparse_capacity, reading->sparse_count);

	if (err)
		reader->err = err;
	else
		reading->sparse[reading->sparse_count++] =
			(struct memory_sparse){reader->arena, reader->live};
}

static void arena_end(struct python_reader *reader)
{
	if (reader->region.account) {
		memory_region_take(&reader->region, reader->region.end, MEMORY_PY_FREE_POOLS, 0);
		/* mimalloc gives back each page without blocks. */
		if (!reader->has_pages && reader->live <= reader->arena_bytes / SPARSE_SHARE)
			sparse_add(reader);
	}
	reader->region.account = NULL;
	reader->live = 0;
}

static void arena_begin(struct python_reader *reader, const struct heap_pool *pool)
{
	arena_end(reader);
	reader->arena = pool->arena;
	reader->arena_bytes = pool->arena_bytes;
	reader->has_pages = pool->arena_head != 0;
	int err = memory_region_open(&reader->reading->account, pool->arena,
				     pool->arena + pool->arena_bytes, &reader->region);
	/* An arena that overlaps another is a contradiction; what it has stays "other". */
	reader->skip = err != 0;
	if (err == -ENOMEM)
		reader->err = err;
	if (!err && pool->arena_head)
		memory_region_take(&reader->region, pool->arena + pool->arena_head,
				   MEMORY_PY_HEADERS, 0);
}

static enum memory_kind block_kind(const struct heap_pool *pool, uint32_t block)
{
	if (block >= pool->count || pool->state[block] == HEAP_BLOCK_FREE)
		return MEMORY_PY_PINNED;
	return pool->state[block] == HEAP_BLOCK_LIVE ? MEMORY_PY_LIVE : MEMORY_PY_WAITING;
}

/* Takes blocks in runs of the same state. */
static void blocks_take(struct python_reader *reader, const struct heap_pool *pool)
{
	uint32_t capacity = (uint32_t)((pool->end - pool->address) / pool->block_bytes), i = 0;
	struct memory_region *region = &reader->region;

	while (i < capacity) {
		enum memory_kind kind = block_kind(pool, i);
		uint32_t first = i;

		while (i < capacity && block_kind(pool, i) == kind)
			i++;
		reader->live += kind == MEMORY_PY_PINNED ? 0 : (i - first) * pool->block_bytes;
		memory_region_take(region, pool->address + (uint64_t)i * pool->block_bytes, kind,
				   i - first);
	}
	memory_region_take(region, pool->end, MEMORY_PY_HEADERS, 0);
}

static int blocks_search(struct python_reader *reader, const struct heap_pool *pool)
{
	struct memory_large *large = &reader->reading->large;
	int err = 0;

	for (uint32_t i = 0; i < pool->count && !err && large->count; i++)
		if (heap_pool_live(pool, i))
			err = memory_large_search(large, pool->content + i * pool->block_bytes,
						  pool->content_bytes < pool->block_bytes
							  ? pool->content_bytes
							  : pool->block_bytes);
	return err;
}

static int pool_visit(const struct heap_pool *pool, void *context)
{
	struct python_reader *reader = context;

	if (pool->arena != reader->arena || (!reader->region.account && !reader->skip))
		arena_begin(reader, pool);
	if (reader->skip || reader->err)
		return reader->err;
	memory_region_take(&reader->region, pool->start, MEMORY_PY_FREE_POOLS, 0);
	if (!pool->block_bytes) {
		memory_region_take(&reader->region, pool->end, MEMORY_PY_UNREAD, 1);
		return 0;
	}
	memory_region_take(&reader->region, pool->address, MEMORY_PY_HEADERS, 1);
	blocks_take(reader, pool);
	reader->err = blocks_search(reader, pool);
	return reader->err;
}

int memory_python_read(struct memory_reading *reading)
{
	struct python_reader reader = {.reading = reading};
	int err = heap_read_pools(&reading->runtime, pool_visit, &reader, &reading->report->heap);

	arena_end(&reader);
	if (!err)
		err = reader.err;
	if (!err && reading->glibc)
		err = memory_large_follow(&reading->large, reading->glibc->reader);
	for (size_t i = 0; i < reading->large.count; i++)
		reading->report->large_blocks += reading->large.blocks[i].python;
	return err;
}

/* Whether a block is in a sparse arena. */
static int is_sparse(uint64_t address, void *context)
{
	const struct memory_reading *reading = context;
	uint64_t bytes = reading->runtime.offsets->heap.arena_bytes;
	size_t above = SORTED_ABOVE(reading->sparse, reading->sparse_count, address, address);

	return above && address - reading->sparse[above - 1].address < bytes;
}

int memory_pins_read(struct memory_reading *reading)
{
	struct memory_pins *pins = &reading->report->pins;

	if (!reading->sparse_count)
		return 0;
	SORT_BY(reading->sparse, reading->sparse_count, address);
	pins->arenas = reading->sparse_count;
	pins->bytes = pins->arenas * reading->runtime.offsets->heap.arena_bytes;
	return heap_types_read_some(&reading->runtime, is_sparse, reading, &pins->types);
}
