/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/image_blocks.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

#define OBJECT_STEP  16u /* objects are as far apart, or further */
#define HOOKS_BEFORE 16u /* bytes that the debug hooks prepend to a block */
#define STEP_BYTES   16384u
#define HOOKS_BYTES  24u /* bytes that they add in total */

static int pool_add(const struct heap_pool *pool, void *context)
{
	struct image_blocks *blocks = context;

	if (!pool->block_bytes)
		return 0;
	if (ARRAY_GROW(blocks->pools, blocks->capacity, blocks->count))
		return 1;
	struct image_blocks_pool *added = &blocks->pools[blocks->count++];
	*added = (struct image_blocks_pool){.start = pool->start,
					    .end = pool->end,
					    .address = pool->address,
					    .block_bytes = pool->block_bytes,
					    .count = pool->count};
	for (uint32_t i = 0; i < pool->count && i < BLOCKS_PER_POOL; i++)
		if (heap_pool_live(pool, i))
			added->live[i / 64] |= 1ull << i % 64;
	return 0;
}

static int image_read(void *context, uint64_t address, void *out, size_t bytes)
{
	const uint8_t *at = image_at(context, address, bytes);

	if (!at)
		return -EFAULT;
	memcpy(out, at, bytes);
	return 0;
}

/* The tables of segments without a pool are not made: their size may be absurd. */
static int pools_place(struct image_blocks *blocks)
{
	const struct image *image = blocks->image;
	uint32_t pool_bytes = image->offsets.heap.pool_bytes;

	/* Without the GIL a piece of a page is about as large, and not aligned. */
	blocks->step_shift = __builtin_ctz(pool_bytes ? pool_bytes : STEP_BYTES);
	blocks->pool_at = calloc(image->count + 1, sizeof(*blocks->pool_at));
	if (!blocks->pool_at)
		return -ENOMEM;
	for (size_t i = 0; i < blocks->count; i++) {
		const struct image_blocks_pool *pool = &blocks->pools[i];
		const struct image_segment *segment = image_segment(image, pool->start);
		int shift = blocks->step_shift;

		if (!segment || pool->end <= pool->start)
			continue;
		uint64_t first = segment->start >> shift;
		uint64_t last =
			((pool->end < segment->end ? pool->end : segment->end) - 1) >> shift;
		uint32_t **table = &blocks->pool_at[segment - image->segments];
		if (!*table)
			*table = calloc((segment->end >> shift) - first + 1, sizeof(**table));
		if (!*table)
			return -ENOMEM;
		for (uint64_t step = pool->start >> shift; step <= last; step++)
			if (!(*table)[step - first])
				(*table)[step - first] = (uint32_t)i + 1;
	}
	return 0;
}

int image_blocks_read(struct image_blocks *blocks, const struct image *image)
{
	struct memory_reader source = {.read = image_read, .context = (void *)image};
	size_t kept = 0;

	*blocks = (struct image_blocks){.image = image};
	int err = chunks_read(&blocks->chunks, image);
	if (err)
		return err;
	err = heap_walk_source(&source, &image->offsets, image->heads, image->head_count, pool_add,
			       blocks, &blocks->walk);
	/* PYTHONMALLOC=malloc, or a build without pymalloc: there are no pools. */
	blocks->no_pools = err == -ENODATA;
	if (err && !blocks->no_pools)
		return err;
	if (blocks->walk.pools != blocks->count)
		return -ENOMEM;
	SORT_BY(blocks->pools, blocks->count, start);
	/* A forged heap may have an arena twice. */
	for (size_t i = 0; i < blocks->count; i++)
		if (!kept || blocks->pools[kept - 1].end <= blocks->pools[i].start)
			blocks->pools[kept++] = blocks->pools[i];
	blocks->count = kept;
	return pools_place(blocks);
}

void image_blocks_free(struct image_blocks *blocks)
{
	for (size_t i = 0; blocks->pool_at && i < blocks->image->count; i++)
		free(blocks->pool_at[i]);
	free(blocks->pool_at);
	free(blocks->pools);
	chunks_free(&blocks->chunks);
	id_map_free(&blocks->chunk_tables);
	memset(blocks, 0, sizeof(*blocks));
}

const struct image_blocks_pool *image_blocks_pool(const struct image_blocks *blocks,
						  uint64_t address)
{
	const struct image_segment *segment = image_segment(blocks->image, address);

	return segment ? image_blocks_pool_in(blocks, segment, address) : NULL;
}

/* The number of the live block that begins at address in its pool; -1: there is none. */
static int block_number(const struct image_blocks_pool *pool, uint64_t address)
{
	uint64_t at = address - pool->address;

	if (address < pool->address || at % pool->block_bytes)
		return -1;
	at /= pool->block_bytes;
	return at < BLOCKS_PER_POOL && pool->live[at / 64] >> at % 64 & 1 ? (int)at : -1;
}

uint64_t image_blocks_bytes(const struct image_blocks *blocks, uint64_t address)
{
	const struct image_blocks_pool *pool = image_blocks_pool(blocks, address);

	if (!pool)
		return chunks_bytes(&blocks->chunks, address);
	return block_number(pool, address) < 0 ? 0 : pool->block_bytes;
}

int image_blocks_table(struct image_blocks *blocks, uint64_t address)
{
	uint64_t bytes = image_blocks_bytes(blocks, address);

	if (!bytes) {
		address -= HOOKS_BEFORE;
		bytes = image_blocks_bytes(blocks, address);
		if (!bytes || !image_blocks_hooks(blocks->image, address, bytes))
			return 0;
	}
	struct image_blocks_pool *pool =
		(struct image_blocks_pool *)image_blocks_pool(blocks, address);
	if (!pool)
		return id_map_put(&blocks->chunk_tables, address, 1);
	int number = block_number(pool, address);
	if (number >= 0)
		pool->tables[number / 64] |= 1ull << number % 64;
	return 0;
}

int image_blocks_object(const struct image_blocks_pool *pool, uint64_t address, int mark)
{
	uint64_t step = (address - pool->address) / OBJECT_STEP;

	if (address < pool->address || address % OBJECT_STEP || step >= BLOCKS_PER_POOL)
		return 0;
	if (mark)
		((struct image_blocks_pool *)pool)->objects[step / 64] |= 1ull << step % 64;
	return pool->objects[step / 64] >> step % 64 & 1;
}

void image_blocks_number(struct image_blocks *blocks, const uint64_t *addresses, size_t count)
{
	for (size_t i = 0; i < blocks->count; i++) {
		struct image_blocks_pool *pool = &blocks->pools[i];
		uint16_t sum = 0;

		pool->first = (uint32_t)keys_from(addresses, count, pool->address);
		for (size_t word = 0; word < BLOCKS_PER_POOL / 64; word++) {
			pool->before[word] = sum;
			sum += (uint16_t)__builtin_popcountll(pool->objects[word]);
		}
	}
}

uint32_t image_blocks_object_number(const struct image_blocks_pool *pool, uint64_t address)
{
	uint64_t step = (address - pool->address) / OBJECT_STEP, word;

	if (!image_blocks_object(pool, address, 0))
		return UINT32_MAX;
	word = pool->objects[step / 64] & ((1ull << step % 64) - 1);
	return pool->first + pool->before[step / 64] + (uint32_t)__builtin_popcountll(word);
}

bool image_blocks_is_table(const struct image_blocks *blocks, uint64_t address)
{
	const struct image_blocks_pool *pool = image_blocks_pool(blocks, address);

	if (!pool)
		return id_map_find(&blocks->chunk_tables, address) != ID_MAP_NONE;
	int number = block_number(pool, address);
	return number >= 0 && pool->tables[number / 64] >> number % 64 & 1;
}

uint32_t image_blocks_hooks(const struct image *image, uint64_t address, uint64_t bytes)
{
	const uint8_t *block = bytes < HOOKS_BYTES ? NULL : image_at(image, address, HOOKS_BYTES);
	uint64_t asked;

	if (!block || (block[8] != 'o' && block[8] != 'm' && block[8] != 'r') ||
	    memcmp(block + 9, "\xfd\xfd\xfd\xfd\xfd\xfd\xfd", 7))
		return 0;
	memcpy(&asked, block, sizeof(asked));
	return be64toh(asked) <= bytes - HOOKS_BYTES ? HOOKS_BEFORE : 0;
}
