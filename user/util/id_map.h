/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from 64-bit keys to 32-bit values (open addressing; it does not shrink). Zero-initialise;
 * seed and account may be set before the first put, so that the source of the keys can neither
 * choose collisions nor exhaust memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/account.h"
#include "util/hash.h"

#define ID_MAP_NONE UINT32_MAX /* no value can be this */

struct id_slot {
	uint64_t key;
	uint32_t value;
};

struct id_map {
	struct id_slot *slots;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
	uint64_t seed;
	struct account *account; /* borrowed; NULL: none */
};

/* Adds or replaces. 0, -ENOMEM, -EDQUOT. */
int id_map_put(struct id_map *map, uint64_t key, uint32_t value);
/*
 * Makes room for one item of size bytes after count, as array_reserve_in() with the map's account,
 * and puts its place under the key. The caller fills it. 0, -ENOMEM, -EOVERFLOW, -EDQUOT.
 */
int id_map_append(struct id_map *map, uint64_t key, void *items, size_t *capacity, size_t count,
		  size_t size);
/* Removes a key, if present. */
void id_map_remove(struct id_map *map, uint64_t key);
/*
 * Copies from, including its seed, to out, which must be empty and may have an account. 0, -ENOMEM,
 * -EDQUOT.
 */
int id_map_copy(struct id_map *out, const struct id_map *from);
void id_map_free(struct id_map *map);

/* The key's value, ID_MAP_NONE when absent. */
static inline uint32_t id_map_find(const struct id_map *map, uint64_t key)
{
	if (!map->capacity)
		return ID_MAP_NONE;
	for (size_t i = hash_u64(key ^ map->seed);; i++) {
		const struct id_slot *slot = &map->slots[i & (map->capacity - 1)];

		if (slot->value == ID_MAP_NONE || slot->key == key)
			return slot->value;
	}
}

static inline size_t id_map_memory(const struct id_map *map)
{
	return map->capacity * sizeof(*map->slots);
}
