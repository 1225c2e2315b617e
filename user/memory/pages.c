/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page that was read and never written is the kernel's zero page: present, but not in Rss. If a
 * map has more present pages than resident ones, those that the process shares with others are
 * looked up in kpageflags.
 */
#include "memory/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "process/pagemap.h"

#define PIECE         16384u       /* pages read at once */
#define MAP_PAGES_MAX (1u << 24)   /* 64 GiB */
#define ALL_PAGES_MAX (1u << 28)   /* of all maps: 1 TiB, 2 GB of pagemap */
#define FLAG_ZERO     (1ull << 24) /* KPF_ZERO_PAGE */

static int is_zero_page(int kpageflags, uint64_t entry)
{
	uint64_t flags;

	if (entry & (PAGEMAP_FILE | PAGEMAP_OWN) || kpageflags < 0 || !(entry & PAGEMAP_NUMBER))
		return 0;
	return pread(kpageflags, &flags, sizeof(flags), (off_t)((entry & PAGEMAP_NUMBER) * 8)) ==
		       sizeof(flags) &&
	       flags & FLAG_ZERO;
}

/* Pages of a map that are present; without zero pages if kpageflags is not -1. */
static int map_look(int pagemap, int kpageflags, struct memory_map *map, uint64_t *entries,
		    uint64_t *present)
{
	uint64_t pages = (map->end - map->start) / MEMORY_PAGE;

	*present = 0;
	for (uint64_t first = 0; first < pages; first += PIECE) {
		size_t count = pages - first < PIECE ? pages - first : PIECE;
		ssize_t got =
			pagemap_read(pagemap, map->start + first * MEMORY_PAGE, entries, count);

		if (got != (ssize_t)count)
			return got < 0 ? (int)got : -ESRCH;
		for (size_t i = 0; i < count; i++) {
			uint64_t page = first + i, bit = 1ull << page % 64;

			map->pages[page / 64] &= ~bit;
			if ((entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != PAGEMAP_PRESENT ||
			    is_zero_page(kpageflags, entries[i]))
				continue;
			map->pages[page / 64] |= bit;
			++*present;
		}
	}
	return 0;
}

static int map_read(int pagemap, int kpageflags, struct memory_map *map, uint64_t *entries)
{
	uint64_t pages = (map->end - map->start) / MEMORY_PAGE, present;
	int err;

	map->pages = calloc((pages + 63) / 64, sizeof(*map->pages));
	if (!map->pages)
		return -ENOMEM;
	err = map_look(pagemap, -1, map, entries, &present);
	if (!err && present > map->rss / MEMORY_PAGE && kpageflags >= 0)
		err = map_look(pagemap, kpageflags, map, entries, &present);
	return err;
}

int memory_pages_read(int pagemap, int kpageflags, struct memory_account *account,
		      uint64_t *unknown)
{
	uint64_t *entries = malloc(PIECE * sizeof(*entries)), left = ALL_PAGES_MAX;
	int err = entries ? 0 : -ENOMEM;

	*unknown = 0;
	for (size_t i = 0; i < account->map_count && !err; i++) {
		struct memory_map *map = &account->maps[i];
		uint64_t bytes = map->end - map->start, pages = bytes / MEMORY_PAGE;

		if ((map->source != MEMORY_ANONYMOUS && map->source != MEMORY_BREAK) || !map->rss ||
		    map->rss == bytes)
			continue;
		if (pages > MAP_PAGES_MAX || pages > left) {
			*unknown += map->rss;
			continue;
		}
		left -= pages;
		err = map_read(pagemap, kpageflags, map, entries);
	}
	free(entries);
	return err;
}
