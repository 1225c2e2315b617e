/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/fingerprints.h"

#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/array.h"
#include "util/hash.h"

static uint32_t found_bits(uint32_t kind, uint32_t print)
{
	return (uint32_t)(hash_u64((uint64_t)kind << 32 | print) >> 40) * FINGERPRINT_COHORTS;
}

bool fingerprint_is(uint32_t block, uint32_t kind, uint32_t print)
{
	return block && block - fingerprint_cohort(block) == found_bits(kind, print);
}

uint32_t fingerprint_found(uint32_t *block, uint32_t kind, uint32_t print, uint32_t cohort)
{
	if (!fingerprint_cohort(*block) || !fingerprint_is(*block, kind, print))
		*block = found_bits(kind, print) | cohort;
	return fingerprint_cohort(*block);
}

static void blocks_free(struct fingerprints *fingerprints, struct fingerprint_pool *pool)
{
	free(pool->blocks);
	account_uncharge(fingerprints->account, pool->count * sizeof(*pool->blocks));
	pool->blocks = NULL;
	pool->count = 0;
}

/* Makes room for so many blocks; new ones are 0. */
static int blocks_resize(struct fingerprints *fingerprints, struct fingerprint_pool *pool,
			 uint32_t count)
{
	size_t old = pool->count * sizeof(*pool->blocks), bytes = count * sizeof(*pool->blocks);
	uint32_t *blocks;

	if (count <= pool->count)
		return 0;
	if (account_resize(fingerprints->account, old, bytes))
		return -1;
	blocks = realloc(pool->blocks, bytes);
	if (!blocks) {
		account_uncharge(fingerprints->account, bytes - old);
		return -1;
	}
	memset(blocks + pool->count, 0, bytes - old);
	pool->blocks = blocks;
	pool->count = count;
	return 0;
}

static struct fingerprint_pool *pool_find(const struct fingerprints *fingerprints, uint64_t pool)
{
	uint32_t known = id_map_find(&fingerprints->index, pool);

	return known == ID_MAP_NONE ? NULL : &fingerprints->pools[known];
}

static struct fingerprint_pool *pool_add(struct fingerprints *fingerprints, uint64_t pool)
{
	if (ARRAY_RESERVE(fingerprints->account, fingerprints, pools, count, capacity, 1) ||
	    id_map_put(&fingerprints->index, pool, (uint32_t)fingerprints->count))
		return NULL;
	fingerprints->pools[fingerprints->count] = (struct fingerprint_pool){.pool = pool};
	return &fingerprints->pools[fingerprints->count++];
}

struct fingerprint_pool *fingerprints_pool(struct fingerprints *fingerprints,
					   const struct fingerprint_pool *shown, int *fresh)
{
	struct fingerprint_pool *pool = pool_find(fingerprints, shown->pool);

	*fresh = !pool;
	if (!pool)
		pool = pool_add(fingerprints, shown->pool);
	if (!pool)
		return NULL;
	if (pool->block_bytes != shown->block_bytes || pool->address != shown->address)
		blocks_free(fingerprints, pool);
	pool->address = shown->address;
	pool->block_bytes = shown->block_bytes;
	pool->walk = fingerprints->walk;
	return blocks_resize(fingerprints, pool, shown->count) ? NULL : pool;
}

uint32_t fingerprints_class(const struct fingerprints *fingerprints, uint64_t pool)
{
	const struct fingerprint_pool *found = pool_find(fingerprints, pool);

	return found ? found->block_bytes : 0;
}

uint32_t *fingerprints_find(const struct fingerprints *fingerprints, uint64_t pool,
			    uint64_t address)
{
	const struct fingerprint_pool *found = pool_find(fingerprints, pool);
	uint64_t number;

	if (!found || !found->block_bytes || address < found->address ||
	    (address - found->address) % found->block_bytes)
		return NULL;
	number = (address - found->address) / found->block_bytes;
	return number < found->count ? &found->blocks[number] : NULL;
}

void fingerprints_walk(struct fingerprints *fingerprints)
{
	fingerprints->walk++;
}

void fingerprints_sweep(struct fingerprints *fingerprints)
{
	for (size_t i = fingerprints->count; i--;) {
		struct fingerprint_pool *pool = &fingerprints->pools[i];

		if (pool->walk == fingerprints->walk)
			continue;
		id_map_remove(&fingerprints->index, pool->pool);
		blocks_free(fingerprints, pool);
		*pool = fingerprints->pools[--fingerprints->count];
		/* It is in the map already: no memory is needed. */
		if (i < fingerprints->count)
			id_map_put(&fingerprints->index, pool->pool, (uint32_t)i);
	}
}

void fingerprints_renumber(struct fingerprints *fingerprints,
			   const uint8_t map[FINGERPRINT_COHORTS])
{
	for (size_t i = 0; i < fingerprints->count; i++) {
		const struct fingerprint_pool *pool = &fingerprints->pools[i];

		for (uint32_t j = 0; j < pool->count; j++) {
			uint32_t cohort = fingerprint_cohort(pool->blocks[j]);

			pool->blocks[j] += map[cohort] - cohort;
		}
	}
}

void fingerprints_free(struct fingerprints *fingerprints)
{
	for (size_t i = 0; i < fingerprints->count; i++)
		blocks_free(fingerprints, &fingerprints->pools[i]);
	id_map_free(&fingerprints->index);
	ARRAY_RELEASE(fingerprints->account, fingerprints, pools, capacity);
	*fingerprints = (struct fingerprints){.account = fingerprints->account,
					      .index.account = fingerprints->account};
}
