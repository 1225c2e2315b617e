/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/account.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

void memory_account_free(struct memory_account *account)
{
	for (size_t i = 0; i < account->map_count; i++) {
		free(account->maps[i].name);
		free(account->maps[i].pages);
		free(account->maps[i].own);
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

static bool page_is_resident(const struct memory_map *map, uint64_t page)
{
	return map->pages ? map->pages[page / 64] >> page % 64 & 1
			  : map->rss == map->end - map->start;
}

static bool page_is_own(const struct memory_map *map, uint64_t page)
{
	return map->own && map->own[page / 64] >> page % 64 & 1;
}

/* Adds what is resident of [start, end) in one map. */
static void map_resident(const struct memory_map *map, uint64_t start, uint64_t end,
			 struct memory_sum *sum)
{
	while (start < end) {
		uint64_t page = (start - map->start) / MEMORY_PAGE;
		uint64_t next = map->start + (page + 1) * MEMORY_PAGE;

		next = next < end ? next : end;
		if (page_is_resident(map, page)) {
			sum->size += next - start;
			sum->own += page_is_own(map, page) ? next - start : 0;
		}
		start = next;
	}
}

/* Adds what is resident of a range; takes it from its maps. */
static void range_resident(struct memory_account *account, uint64_t start, uint64_t end, int take,
			   struct memory_sum *sum)
{

	for (size_t i = map_index(account, start); i < account->map_count && start < end; i++) {
		struct memory_map *map = &account->maps[i];
		uint64_t from = start > map->start ? start : map->start;
		uint64_t to = end < map->end ? end : map->end;
		struct memory_sum here = {0};

		if (map->start >= end)
			break;
		map_resident(map, from, to, &here);
		map->taken += take ? here.size : 0;
		map->taken_own += take ? here.own : 0;
		sum->size += here.size;
		sum->own += here.own;
	}
}

uint64_t memory_resident(struct memory_account *account, uint64_t start, uint64_t end)
{
	struct memory_sum sum = {0};

	range_resident(account, start, end, 0, &sum);
	return sum.size;
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

void memory_region_take(struct memory_region *region, uint64_t end, unsigned int kind,
			uint64_t count)
{
	struct memory_sum *sum = &region->account->sums[kind];

	if (end > region->end)
		end = region->end;
	if (end <= region->at)
		return;
	range_resident(region->account, region->at, end, 1, sum);
	sum->virtual += end - region->at;
	sum->count += count;
	region->at = end;
}

int memory_range_take(struct memory_account *account, uint64_t start, uint64_t end,
		      unsigned int kind, uint64_t count)
{
	size_t next = SORTED_ABOVE(account->regions, account->region_count, end, start);
	struct memory_region region = {account, start, end};
	int err = 0;

	if (start < end && next && account->regions[next - 1].end == start &&
	    (next == account->region_count || account->regions[next].start >= end))
		account->regions[next - 1].end = end;
	else
		err = memory_region_open(account, start, end, &region);
	if (!err)
		memory_region_take(&region, end, kind, count);
	return err;
}
