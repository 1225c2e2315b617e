/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/pool_openers.h"

#include "trace/blocks/kind_counts.h"
#include "util/array.h"
#include "util/hash.h"

int pool_openers_put(struct pool_openers *openers, const struct pool_opener *opener)
{
	uint32_t known = id_map_find(&openers->index, opener->pool);
	int err;

	if (known != ID_MAP_NONE) {
		openers->items[known] = *opener;
		return 0;
	}
	err = id_map_append(&openers->index, opener->pool, &openers->items, &openers->capacity,
			    openers->count, sizeof(*openers->items));
	if (!err)
		openers->items[openers->count++] = *opener;
	return err;
}

const struct pool_opener *pool_openers_find(const struct pool_openers *openers, uint64_t pool)
{
	uint32_t known = id_map_find(&openers->index, pool);

	return known == ID_MAP_NONE ? NULL : &openers->items[known];
}

void pool_openers_renumber(struct pool_openers *openers, const uint8_t *map)
{
	for (size_t i = 0; i < openers->count; i++)
		openers->items[i].cohort = map[openers->items[i].cohort];
}

void pool_openers_free(struct pool_openers *openers)
{
	struct account *account = openers->index.account;

	id_map_free(&openers->index);
	ARRAY_RELEASE(account, openers, items, capacity);
	*openers = (struct pool_openers){.index.account = account};
}

static uint64_t taken_key(const struct taken_count *count)
{
	return hash_u64(kind_key(count->kind, count->bytes, count->cohort)) ^
	       ((uint64_t)count->owner << 32 | count->stack);
}

/* Adds what like has. */
static int taken_add(struct taken_counts *counts, const struct taken_count *like)
{
	uint64_t key = taken_key(like);
	uint32_t known = id_map_find(&counts->index, key);
	int err;

	for (uint32_t g = 0; known != ID_MAP_NONE && g < POOL_GROUPS; g++)
		counts->items[known].blocks[g] += like->blocks[g];
	if (known != ID_MAP_NONE)
		return 0;
	err = id_map_append(&counts->index, key, &counts->items, &counts->capacity, counts->count,
			    sizeof(*counts->items));
	if (!err)
		counts->items[counts->count++] = *like;
	return err;
}

int taken_counts_add(struct taken_counts *counts, const struct pool_opener *opener, uint32_t kind,
		     uint32_t bytes, uint32_t cohort)
{
	struct taken_count like = {.kind = kind,
				   .bytes = bytes,
				   .cohort = cohort,
				   .stack = opener->stack,
				   .owner = opener->owner};

	like.blocks[hash_u64(opener->pool) % POOL_GROUPS] = 1;
	return taken_add(counts, &like);
}

void taken_counts_renumber(struct taken_counts *counts, const uint8_t *map)
{
	struct taken_counts joined = {.index.account = counts->index.account};

	for (size_t i = 0; i < counts->count; i++) {
		struct taken_count like = counts->items[i];

		like.cohort = map[like.cohort];
		taken_add(&joined, &like);
	}
	taken_counts_free(counts);
	*counts = joined;
}

void taken_counts_free(struct taken_counts *counts)
{
	struct account *account = counts->index.account;

	id_map_free(&counts->index);
	ARRAY_RELEASE(account, counts, items, capacity);
	*counts = (struct taken_counts){.index.account = account};
}
