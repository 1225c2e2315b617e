/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that were reported before a walk are fed before it, and those that come while it reads
 * after it. So a page that the walk does not show and that has become resident meanwhile is not
 * taken as released; one that it shows before its fault is known gets its line when that is fed.
 */
#include "session/target/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "proc/pagemap.h"
#include "proc/patience.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"

#define AREA_PAGES    (EVENT_PAGES_AREA / EVENT_PAGES_UNIT)
#define PIECE_PAGES   (32 * AREA_PAGES) /* read at once */
#define ALL_PAGES_MAX (1u << 28)        /* of all maps: 1 TiB of addresses, 2 GB of pagemap */

struct page_walk {
	struct session *session;
	struct target *target;
	int pagemap;
	uint64_t entries[PIECE_PAGES];
	uint64_t left;  /* pages that may still be read */
	uint64_t found; /* of the map */
	/*
	 * Pages of the map that are the kernel's page of zeros, which is not in RSS: of those that
	 * only it and pages shared with other processes look like
	 */
	uint64_t zeros;
	union {
		struct event_pages head;
		uint8_t bytes[sizeof(struct event_pages) +
			      EVENT_PAGES_MAX * sizeof(struct event_page_run)];
	} record;
};

static int record_feed(struct page_walk *walk, uint32_t flags)
{
	struct event_pages *head = &walk->record.head;
	size_t size = sizeof(*head) + head->count * sizeof(walk->record.head.runs[0]);
	int err;

	head->header = (struct event_header)RECORD_HEADER(
		EVENT_PAGES, *head, clock_ns(CLOCK_MONOTONIC), walk->target->pid);
	head->header.size = (uint32_t)size;
	head->flags |= flags;
	/* It may have ended in what was drained, and its pid been reused. */
	err = walk->target->ended ? -ESRCH : session_feed(walk->session, head, size);
	head->flags = 0;
	head->count = 0;
	return err;
}

static bool is_ambiguous(uint64_t entry)
{
	return !(entry & (PAGEMAP_FILE | PAGEMAP_OWN));
}

/* Is it in RSS? A huge page of zeros looks like a file's. */
static bool is_resident(struct page_walk *walk, const struct process_map *map, uint64_t entry)
{
	if ((entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != PAGEMAP_PRESENT ||
	    (!map->inode && entry & PAGEMAP_FILE))
		return 0;
	if (map->inode || !is_ambiguous(entry) || !walk->zeros)
		return 1;
	walk->zeros--;
	return 0;
}

static void page_add(struct page_walk *walk, uint64_t address, bool is_file)
{
	struct event_pages *head = &walk->record.head;
	struct event_page_run *last = head->count ? &walk->record.head.runs[head->count - 1] : NULL;

	walk->found++;
	if (last && last->is_file == is_file &&
	    last->address + (uint64_t)last->count * EVENT_PAGES_UNIT == address) {
		last->count++;
		return;
	}
	walk->record.head.runs[head->count++] =
		(struct event_page_run){.address = address, .count = 1, .is_file = is_file};
}

/* Reads the words of a piece of the map. 0, -errno. */
static int piece_read(struct page_walk *walk, uint64_t address, size_t pages)
{
	struct patience patience;
	int err = patience_begin(&patience, walk->target->pid);

	if (err)
		return err;
	ssize_t got = pagemap_read(walk->pagemap, address, walk->entries, pages);
	patience_end(&patience);
	return got == (ssize_t)pages ? 0 : got < 0 ? (int)got : -ESRCH;
}

/*
 * Calls each with the entry of each page of the map, piece by piece, up to the end of an area each.
 * 0, -errno.
 */
static int map_read(struct page_walk *walk, const struct process_map *map,
		    int (*each)(struct page_walk *walk, const struct process_map *map,
				uint64_t address, size_t pages))
{
	int err = 0;

	for (uint64_t at = map->start; at < map->end && !err;) {
		uint64_t end = at - at % EVENT_PAGES_AREA + PIECE_PAGES / 2 * EVENT_PAGES_UNIT;
		size_t pages = ((end < map->end ? end : map->end) - at) / EVENT_PAGES_UNIT;

		err = piece_read(walk, at, pages) ?: each(walk, map, at, pages);
		at += pages * EVENT_PAGES_UNIT;
	}
	return err;
}

static int zeros_count(struct page_walk *walk, const struct process_map *map, uint64_t address,
		       size_t pages)
{
	(void)map, (void)address;
	for (size_t i = 0; i < pages; i++)
		walk->zeros +=
			(walk->entries[i] & PAGEMAP_PRESENT) != 0 && is_ambiguous(walk->entries[i]);
	return 0;
}

static int runs_add(struct page_walk *walk, const struct process_map *map, uint64_t address,
		    size_t pages)
{
	int err = 0;

	for (size_t i = 0; i < pages && !err; i++, address += EVENT_PAGES_UNIT) {
		/* An area may have as many runs as pages. */
		if (address % EVENT_PAGES_AREA == 0 &&
		    walk->record.head.count > EVENT_PAGES_MAX - AREA_PAGES)
			err = record_feed(walk, map->rss_huge ? EVENT_PAGES_HUGE : 0);
		if (is_resident(walk, map, walk->entries[i]))
			page_add(walk, address, walk->entries[i] & PAGEMAP_FILE);
	}
	return err;
}

static int map_walk(struct page_walk *walk, const struct process_map *map)
{
	uint64_t pages = (map->end - map->start) / EVENT_PAGES_UNIT;
	uint64_t shared = map->rss_shared / EVENT_PAGES_UNIT;
	int err = 0;

	if (!map->rss)
		return 0;
	if (pages > walk->left) {
		walk->record.head.unread_bytes += map->rss;
		return 0;
	}
	walk->left -= pages;
	walk->found = walk->zeros = 0;
	if (!map->inode)
		err = map_read(walk, map, zeros_count);
	walk->zeros = walk->zeros > shared ? walk->zeros - shared : 0;
	return err ?: map_read(walk, map, runs_add)
			?: record_feed(walk, map->rss_huge ? EVENT_PAGES_HUGE : 0);
}

static int maps_walk(struct page_walk *walk, const struct process_maps *maps)
{
	int err = 0;

	walk->record.head.flags = EVENT_PAGES_FIRST;
	for (size_t i = 0; i < maps->count && !err; i++)
		err = map_walk(walk, &maps->entries[i]);
	return err ?: record_feed(walk, EVENT_PAGES_LAST);
}

int target_pages_walk(struct session *session, struct target *target)
{
	struct process_maps maps = {0};
	int pagemap = pagemap_open(target->pid), err;

	if (pagemap < 0)
		return pagemap;
	err = process_smaps_read(target->pid, &maps);
	struct page_walk *walk = calloc(1, sizeof(*walk));
	if (!err && !walk)
		err = -ENOMEM;
	if (!err) {
		walk->session = session;
		walk->target = target;
		walk->pagemap = pagemap;
		walk->left = ALL_PAGES_MAX;
		session_pull(session);
		err = maps_walk(walk, &maps);
	}
	free(walk);
	process_maps_free(&maps);
	close(pagemap);
	return err;
}
