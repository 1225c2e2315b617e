/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. Such a chunk is at the start of its mapping, unless its block was aligned by request:
 *
 * 	{bytes of the mapping before it, size | IS_MMAPPED; …}
 *
 * with no other flag, and both sizes add up to whole pages. From 2.43 on the size leaves out the
 * header, and the first word's lowest bit says that the pages are huge. The kernel merges adjacent
 * mappings, so a chunk may be on any page of a map. A page that is not resident holds no header.
 */
#include "runtime/malloc/mapped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/reader.h"

#define PAGE  SPACE_PAGE
#define PIECE SPACE_PAGES /* pages looked at per call */
/* Larger maps (64 GiB) are looked at on their first page only, and so are all after 1 TiB. */
#define MAP_PAGES_MAX (1u << 24)
#define ALL_PAGES_MAX (1u << 28)

struct mapped_header {
	uint64_t before, size;
};

struct mapped_scan {
	struct glibc *glibc;
	const struct glibc_range *except;
	size_t except_count, next_except;
	glibc_mapped_fn visit;
	void *context;
	int stop;
	uint64_t left;        /* pages that may still be looked at */
	uint8_t pages[PIECE]; /* enum space_page */
};

/* Bytes of the mapping of the chunk at this address; 0: there is none. */
static uint64_t mapping_bytes(const struct glibc *glibc, const struct mapped_header *header,
			      uint64_t chunk, uint64_t *start)
{
	uint64_t before = header->before & ~(uint64_t)1;
	uint64_t size = header->size & ~(uint64_t)GLIBC_SIZE_BITS;
	uint64_t bytes = before + size + glibc->layout->mmap_header;

	*start = chunk - before;
	if ((header->size & GLIBC_SIZE_BITS) != GLIBC_IS_MMAPPED || size >= 1ull << 47 ||
	    before > chunk || before >= 1ull << 40 || !size || *start % PAGE || bytes % PAGE)
		return 0;
	return bytes;
}

/* Memory that malloc could have mapped: anonymous, or named so ("[anon: glibc: malloc]"). */
static bool is_anonymous(const struct process_map *map)
{
	return map->writable && map->readable && !map->inode &&
	       (!map->path[0] || !strncmp(map->path, "[anon:", strlen("[anon:")));
}

int glibc_is_mapped(struct glibc *glibc, const struct process_maps *maps, uint64_t address)
{
	uint64_t chunk = address - GLIBC_HEADER, start, bytes;
	struct mapped_header header;
	int err = reader_read(glibc->reader, chunk, &header, sizeof(header), 0);

	if (err)
		return err == -EFAULT ? 0 : err;
	bytes = mapping_bytes(glibc, &header, chunk, &start);
	for (size_t i = 0; bytes && i < maps->count; i++) {
		const struct process_map *map = &maps->entries[i];

		if (is_anonymous(map) && start >= map->start && start < map->end &&
		    bytes <= map->end - start)
			return 1;
	}
	return 0;
}

/* Skips ranges that end at or before address; returns the range that holds it, or NULL. */
static const struct glibc_range *except_at(struct mapped_scan *scan, uint64_t address)
{
	while (scan->next_except < scan->except_count &&
	       scan->except[scan->next_except].end <= address)
		scan->next_except++;
	if (scan->next_except < scan->except_count &&
	    scan->except[scan->next_except].start <= address)
		return &scan->except[scan->next_except];
	return NULL;
}

/*
 * The bytes of the chunk that begins at a page of a piece; 0: none does. Most pages of a piece are
 * in a chunk that was found, or in an exception: their first words are never read.
 */
static int chunk_look(struct mapped_scan *scan, uint64_t address, uint8_t page, uint64_t *bytes)
{
	struct mapped_header header;
	uint64_t start;

	*bytes = 0;
	if (page != SPACE_MEMORY)
		return 0;
	int err = space_read(scan->glibc->space, address, &header, sizeof(header));
	if (!err)
		*bytes = mapping_bytes(scan->glibc, &header, address, &start);
	if (*bytes && start != address)
		*bytes = 0;
	return err == -EFAULT ? 0 : err;
}

/* Looks at pages of a map that ends at end, `most` at most; *address: where to go on. */
static int piece_scan(struct mapped_scan *scan, uint64_t *address, uint64_t end, size_t most)
{
	size_t pages = (end - *address) / PAGE < most ? (end - *address) / PAGE : most;
	uint64_t base = *address, at = base, last = base + pages * PAGE;
	int err = space_pages(scan->glibc->space, base, pages, scan->pages);

	while (!err && at < last && !scan->stop) {
		const struct glibc_range *except = except_at(scan, at);
		uint64_t bytes;

		if (except) {
			at = (except->end + PAGE - 1) / PAGE * PAGE;
			continue;
		}
		err = chunk_look(scan, at, scan->pages[(at - base) / PAGE], &bytes);
		if (!bytes || bytes > end - at) {
			at += PAGE;
			continue;
		}
		scan->stop = scan->visit(at, bytes, scan->context);
		at += bytes;
	}
	*address = at;
	return err;
}

static int map_scan(struct mapped_scan *scan, const struct process_map *map)
{
	uint64_t at = map->start, pages = (map->end - map->start) / PAGE;
	int is_large = pages > MAP_PAGES_MAX || pages > scan->left, err = 0;

	if (!is_anonymous(map))
		return 0;
	scan->left -= is_large ? 0 : pages;
	while (at < map->end && !err && !scan->stop) {
		err = piece_scan(scan, &at, map->end, is_large ? 1 : PIECE);
		if (is_large)
			break;
	}
	return err;
}

int glibc_mapped_walk(struct glibc *glibc, const struct process_maps *maps,
		      const struct glibc_range *except, size_t except_count, glibc_mapped_fn visit,
		      void *context)
{
	struct mapped_scan *scan = calloc(1, sizeof(*scan));
	int err = 0;

	if (!scan)
		return -ENOMEM;
	*scan = (struct mapped_scan){.glibc = glibc,
				     .except = except,
				     .except_count = except_count,
				     .visit = visit,
				     .context = context,
				     .left = ALL_PAGES_MAX};
	for (size_t i = 0; i < maps->count && !err && !scan->stop; i++)
		err = map_scan(scan, &maps->entries[i]);
	free(scan);
	return err;
}
