/* SPDX-License-Identifier: Apache-2.0 */
#include "util/id_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

static struct id_slot *slot_find(const struct id_map *map, uint64_t key)
{
	for (size_t i = hash_u64(key ^ map->seed);; i++) {
		struct id_slot *slot = &map->slots[i & (map->capacity - 1)];

		if (slot->value == ID_MAP_NONE || slot->key == key)
			return slot;
	}
}

/* Allocates slots for its capacity. While the map grows, both tables exist and are charged. */
static int slots_new(struct id_map *map)
{
	int err = account_charge(map->account, id_map_memory(map));

	if (err)
		return err;
	map->slots = malloc(id_map_memory(map));
	if (map->slots)
		return 0;
	account_uncharge(map->account, id_map_memory(map));
	return -ENOMEM;
}

static int id_map_grow(struct id_map *map)
{
	struct id_map grown = *map;

	grown.capacity = map->capacity ? map->capacity * 2 : 16;
	int err = slots_new(&grown);
	if (err)
		return err;
	for (size_t i = 0; i < grown.capacity; i++)
		grown.slots[i].value = ID_MAP_NONE;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].value != ID_MAP_NONE)
			*slot_find(&grown, map->slots[i].key) = map->slots[i];
	free(map->slots);
	account_uncharge(map->account, id_map_memory(map));
	*map = grown;
	return 0;
}

int id_map_put(struct id_map *map, uint64_t key, uint32_t value)
{
	if (map->count * 4 >= map->capacity * 3) {
		int err = id_map_grow(map);
		if (err)
			return err;
	}
	struct id_slot *slot = slot_find(map, key);
	map->count += slot->value == ID_MAP_NONE;
	*slot = (struct id_slot){.key = key, .value = value};
	return 0;
}

int id_map_append(struct id_map *map, uint64_t key, void *items, size_t *capacity, size_t count,
		  size_t size)
{
	int err = array_reserve_in(map->account, items, capacity, count, 1, size);

	return err ?: id_map_put(map, key, (uint32_t)count);
}

/*
 * Backward-shift deletion: every following entry whose home slot is not after the hole moves into
 * it and leaves a new hole.
 */
void id_map_remove(struct id_map *map, uint64_t key)
{
	struct id_slot *slot = map->capacity ? slot_find(map, key) : NULL;
	size_t mask = map->capacity - 1, hole, home;

	if (!slot || slot->value == ID_MAP_NONE)
		return;
	hole = (size_t)(slot - map->slots);
	for (size_t at = (hole + 1) & mask; map->slots[at].value != ID_MAP_NONE;
	     at = (at + 1) & mask) {
		home = hash_u64(map->slots[at].key ^ map->seed) & mask;
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		map->slots[hole] = map->slots[at];
		hole = at;
	}
	map->slots[hole].value = ID_MAP_NONE;
	map->count--;
}

int id_map_copy(struct id_map *out, const struct id_map *from)
{
	struct id_map copy = *from;

	copy.account = out->account;
	if (from->capacity) {
		int err = slots_new(&copy);
		if (err)
			return err;
		memcpy(copy.slots, from->slots, from->capacity * sizeof(*copy.slots));
	}
	*out = copy;
	return 0;
}

void id_map_free(struct id_map *map)
{
	free(map->slots);
	account_uncharge(map->account, id_map_memory(map));
	*map = (struct id_map){.seed = map->seed, .account = map->account};
}
