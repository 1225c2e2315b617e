/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/account.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

void memory_account_free(struct memory_account *account)
{
	for (size_t i = 0; i < account->map_count; i++) {
		free(account->maps[i].name);
		free(account->maps[i].pages);
	}
	free(account->maps);
	free(account->regions);
	*account = (struct memory_account){0};
}

/* The first map that ends behind an address. */
static size_t map_index(struct memory_account *account, uint64_t address)
{
	const struct memory_map *last = &account->maps[account->last];

	if (account->last < account->map_count && address >= last->start && address < last->end)
		return account->last;
	size_t at = SORTED_ABOVE(account->maps, account->map_count, end, address);
	account->last = at < account->map_count ? at : 0;
	return at;
}

struct memory_map *memory_map_at(struct memory_account *account, uint64_t address)
{
	size_t i = map_index(account, address);

	return i < account->map_count && account->maps[i].start <= address ? &account->maps[i]
									   : NULL;
}

static int page_is_resident(const struct memory_map *map, uint64_t page)
{
	return map->pages ? map->pages[page / 64] >> page % 64 & 1
			  : map->rss == map->end - map->start;
}

/* Of [start, end) in one map. */
static uint64_t map_resident(const struct memory_map *map, uint64_t start, uint64_t end)
{
	uint64_t bytes = 0;

	if (!map->pages)
		return page_is_resident(map, 0) ? end - start : 0;
	while (start < end) {
		uint64_t next = (start / MEMORY_PAGE + 1) * MEMORY_PAGE;

		next = next < end ? next : end;
		if (page_is_resident(map, (start - map->start) / MEMORY_PAGE))
			bytes += next - start;
		start = next;
	}
	return bytes;
}

/* Resident bytes of a range; takes them from their maps. */
static uint64_t range_resident(struct memory_account *account, uint64_t start, uint64_t end,
			       int take)
{
	uint64_t bytes = 0;

	for (size_t i = map_index(account, start); i < account->map_count && start < end; i++) {
		struct memory_map *map = &account->maps[i];
		uint64_t from = start > map->start ? start : map->start;
		uint64_t to = end < map->end ? end : map->end;
		uint64_t here = from < to ? map_resident(map, from, to) : 0;

		if (map->start >= end)
			break;
		map->taken += take ? here : 0;
		bytes += here;
	}
	return bytes;
}

uint64_t memory_resident(struct memory_account *account, uint64_t start, uint64_t end)
{
	return range_resident(account, start, end, 0);
}

int memory_region_open(struct memory_account *account, uint64_t start, uint64_t end,
		       struct memory_region *region)
{
	size_t low = SORTED_ABOVE(account->regions, account->region_count, end, start);

	if (start >= end)
		return -EINVAL;
	if (low < account->region_count && account->regions[low].start < end)
		return -EEXIST;
	int err = ARRAY_GROW(account->regions, account->region_capacity, account->region_count);
	if (err)
		return err;
	memmove(&account->regions[low + 1], &account->regions[low],
		(account->region_count - low) * sizeof(*account->regions));
	account->regions[low] = (struct memory_range){start, end};
	account->region_count++;
	*region = (struct memory_region){account, start, end};
	return 0;
}

void memory_region_take(struct memory_region *region, uint64_t end, enum memory_kind kind,
			uint64_t count)
{
	struct memory_sum *sum = &region->account->sums[kind];

	if (end > region->end)
		end = region->end;
	if (end <= region->at)
		return;
	sum->size += range_resident(region->account, region->at, end, 1);
	sum->virtual += end - region->at;
	sum->count += count;
	region->at = end;
}
