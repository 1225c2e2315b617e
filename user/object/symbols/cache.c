/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/array.h"
#include "util/hash.h"

#define CAPACITY_MIN 1024u

/* Its slot, or the free one for it. */
static struct cache_slot *slot_find(struct cache_slot *slots, size_t capacity, uint32_t file,
				    uint64_t offset)
{
	size_t at = hash_u64(offset ^ (uint64_t)file << 40) & (capacity - 1);

	while (slots[at].file && (slots[at].file != file || slots[at].offset != offset))
		at = (at + 1) & (capacity - 1);
	return &slots[at];
}

uint32_t cache_find(const struct cache *cache, uint32_t file, uint64_t offset,
		    const struct symbols_frame **frames)
{
	if (!cache->capacity)
		return 0;
	const struct cache_slot *slot = slot_find(cache->slots, cache->capacity, file, offset);
	*frames = cache->frames + slot->first;
	return slot->count;
}

static int cache_grow(struct cache *cache)
{
	size_t capacity = cache->capacity ? 2 * cache->capacity : CAPACITY_MIN;
	struct cache_slot *slots;
	int err = account_charge(cache->account, capacity * sizeof(*slots));

	if (err)
		return err;
	slots = calloc(capacity, sizeof(*slots));
	if (!slots) {
		account_uncharge(cache->account, capacity * sizeof(*slots));
		return -ENOMEM;
	}
	for (size_t i = 0; i < cache->capacity; i++)
		if (cache->slots[i].file)
			*slot_find(slots, capacity, cache->slots[i].file, cache->slots[i].offset) =
				cache->slots[i];
	free(cache->slots);
	account_uncharge(cache->account, cache->capacity * sizeof(*slots));
	cache->slots = slots;
	cache->capacity = capacity;
	return 0;
}

int cache_add(struct cache *cache, uint32_t file, uint64_t offset,
	      const struct symbols_frame frames[], uint32_t count)
{
	int err = 0;

	if (2 * (cache->used + 1) > cache->capacity)
		err = cache_grow(cache);
	err = err
		      ?: array_reserve_in(cache->account, &cache->frames, &cache->frame_capacity,
					  cache->frame_count, count, sizeof(*cache->frames));
	if (err)
		return err;
	struct cache_slot *slot = slot_find(cache->slots, cache->capacity, file, offset);
	*slot = (struct cache_slot){
		.offset = offset, .file = file, .count = count, .first = cache->frame_count};
	memcpy(cache->frames + cache->frame_count, frames, count * sizeof(*frames));
	cache->frame_count += count;
	cache->used++;
	return 0;
}

void cache_free(struct cache *cache)
{
	account_uncharge(cache->account, cache_memory(cache));
	free(cache->slots);
	free(cache->frames);
	*cache = (struct cache){.account = cache->account};
}

size_t cache_memory(const struct cache *cache)
{
	return cache->capacity * sizeof(*cache->slots) +
	       cache->frame_capacity * sizeof(*cache->frames);
}
