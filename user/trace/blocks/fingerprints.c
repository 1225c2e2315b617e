/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/fingerprints.h"

#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/array.h"
#include "util/hash.h"

static uint32_t found_bits(uint32_t kind, uint32_t print)
{
	return (uint32_t)(hash_u64((uint64_t)kind << 32 | print) >> 40) * IDENTITY_COHORTS;
}

int identity_is(uint32_t block, uint32_t kind, uint32_t print)
{
	return block && block - identity_cohort(block) == found_bits(kind, print);
}

uint32_t identity_found(uint32_t *block, uint32_t kind, uint32_t print, uint32_t cohort)
{
	if (!identity_cohort(*block) || !identity_is(*block, kind, print))
		*block = found_bits(kind, print) | cohort;
	return identity_cohort(*block);
}

static void blocks_free(struct identities *identities, struct identity_pool *pool)
{
	free(pool->blocks);
	account_uncharge(identities->account, pool->count * sizeof(*pool->blocks));
	pool->blocks = NULL;
	pool->count = 0;
}

/* Makes room for so many blocks; new ones are 0. */
static int blocks_resize(struct identities *identities, struct identity_pool *pool, uint32_t count)
{
	size_t old = pool->count * sizeof(*pool->blocks), bytes = count * sizeof(*pool->blocks);
	uint32_t *blocks;

	if (count <= pool->count)
		return 0;
	if (account_resize(identities->account, old, bytes))
		return -1;
	blocks = realloc(pool->blocks, bytes);
	if (!blocks) {
		account_uncharge(identities->account, bytes - old);
		return -1;
	}
	memset(blocks + pool->count, 0, bytes - old);
	pool->blocks = blocks;
	pool->count = count;
	return 0;
}

static struct identity_pool *pool_find(const struct identities *identities, uint64_t pool)
{
	uint32_t known = id_map_find(&identities->index, pool);

	return known == ID_MAP_NONE ? NULL : &identities->pools[known];
}

static struct identity_pool *pool_add(struct identities *identities, uint64_t pool)
{
	if (ARRAY_RESERVE(identities->account, identities, pools, count, capacity, 1) ||
	    id_map_put(&identities->index, pool, (uint32_t)identities->count))
		return NULL;
	identities->pools[identities->count] = (struct identity_pool){.pool = pool};
	return &identities->pools[identities->count++];
}

struct identity_pool *identities_pool(struct identities *identities,
				      const struct identity_pool *shown, int *fresh)
{
	struct identity_pool *pool = pool_find(identities, shown->pool);

	*fresh = !pool;
	if (!pool)
		pool = pool_add(identities, shown->pool);
	if (!pool)
		return NULL;
	if (pool->block_bytes != shown->block_bytes || pool->address != shown->address)
		blocks_free(identities, pool);
	pool->address = shown->address;
	pool->block_bytes = shown->block_bytes;
	pool->walk = identities->walk;
	return blocks_resize(identities, pool, shown->count) ? NULL : pool;
}

uint32_t *identities_find(const struct identities *identities, uint64_t pool, uint64_t address)
{
	const struct identity_pool *found = pool_find(identities, pool);
	uint64_t number;

	if (!found || !found->block_bytes || address < found->address ||
	    (address - found->address) % found->block_bytes)
		return NULL;
	number = (address - found->address) / found->block_bytes;
	return number < found->count ? &found->blocks[number] : NULL;
}

void identities_walk(struct identities *identities)
{
	identities->walk++;
}

void identities_sweep(struct identities *identities)
{
	for (size_t i = identities->count; i--;) {
		struct identity_pool *pool = &identities->pools[i];

		if (pool->walk == identities->walk)
			continue;
		id_map_remove(&identities->index, pool->pool);
		blocks_free(identities, pool);
		*pool = identities->pools[--identities->count];
		/* It is in the map already: no memory is needed. */
		if (i < identities->count)
			id_map_put(&identities->index, pool->pool, (uint32_t)i);
	}
}

void identities_renumber(struct identities *identities, const uint8_t map[IDENTITY_COHORTS])
{
	for (size_t i = 0; i < identities->count; i++) {
		const struct identity_pool *pool = &identities->pools[i];

		for (uint32_t j = 0; j < pool->count; j++) {
			uint32_t cohort = identity_cohort(pool->blocks[j]);

			pool->blocks[j] += map[cohort] - cohort;
		}
	}
}

void identities_free(struct identities *identities)
{
	for (size_t i = 0; i < identities->count; i++)
		blocks_free(identities, &identities->pools[i]);
	id_map_free(&identities->index);
	ARRAY_RELEASE(identities->account, identities, pools, capacity);
	*identities = (struct identities){.account = identities->account,
					  .index.account = identities->account};
}
