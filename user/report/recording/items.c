/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/items.h"

#include <string.h>
#include <sys/random.h>

#include "util/array.h"

int items_add(struct items *items, struct span item)
{
	int err = array_reserve_in(items->account, &items->ends, &items->end_capacity, items->count,
				   1, sizeof(*items->ends));

	err = err
		      ?: array_reserve_in(items->account, &items->bytes, &items->capacity,
					  items->size, item.bytes, 1);
	if (err)
		return err;
	if (item.bytes)
		memcpy(items->bytes + items->size, item.data, item.bytes);
	items->size += item.bytes;
	items->ends[items->count++] = (uint32_t)items->size;
	return 0;
}

struct span items_get(const struct items *items, size_t number)
{
	uint32_t begin = number ? items->ends[number - 1] : 0;

	/* Without a byte in all of them there is no array. */
	return (struct span){.data = items->bytes ? items->bytes + begin : NULL,
			     .bytes = items->ends[number] - begin};
}

/* Names come from targets: the seed keeps them from choosing collisions. */
static uint64_t item_hash(const struct items *items, struct span item)
{
	uint64_t hash = items->index.seed ^ item.bytes, word = 0;

	for (; item.bytes >= sizeof(word); item.data += sizeof(word), item.bytes -= sizeof(word)) {
		memcpy(&word, item.data, sizeof(word));
		hash = hash_u64(hash + word);
	}
	word = 0;
	if (item.bytes)
		memcpy(&word, item.data, item.bytes);
	return hash_u64(hash + word);
}

/* The number of the item, or ID_MAP_NONE and the hash under which it is to be stored. */
static uint32_t item_find(const struct items *items, struct span item, uint64_t *hash)
{
	for (*hash = item_hash(items, item);; ++*hash) {
		uint32_t number = id_map_find(&items->index, *hash);

		if (number == ID_MAP_NONE)
			return number;
		struct span known = items_get(items, number);
		if (known.bytes == item.bytes &&
		    (!item.bytes || !memcmp(known.data, item.data, item.bytes)))
			return number;
	}
}

/* Those that were added without being looked up are indexed when one is looked for. */
static int items_index(struct items *items)
{
	uint64_t hash;
	int err = 0;

	if (!items->index.seed &&
	    getrandom(&items->index.seed, sizeof(items->index.seed), GRND_NONBLOCK) < 0)
		items->index.seed = 1;
	items->index.account = items->account;
	for (; !err && items->indexed < items->count; items->indexed += !err)
		if (item_find(items, items_get(items, items->indexed), &hash) == ID_MAP_NONE)
			err = id_map_put(&items->index, hash, (uint32_t)items->indexed);
	return err;
}

int items_intern(struct items *items, struct span item, uint32_t *number)
{
	uint64_t hash;
	int err = items_index(items);

	if (err)
		return err;
	*number = item_find(items, item, &hash);
	if (*number != ID_MAP_NONE)
		return 0;
	*number = (uint32_t)items->count;
	err = items_add(items, item);
	if (err)
		return err;
	items->indexed = items->count;
	return id_map_put(&items->index, hash, *number);
}

void items_free(struct items *items)
{
	array_release(items->account, &items->bytes, &items->capacity, 1);
	array_release(items->account, &items->ends, &items->end_capacity, sizeof(*items->ends));
	id_map_free(&items->index);
	*items = (struct items){.account = items->account};
}
