/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glibc's heaps. What malloc_trim(0) would return (malloc/malloc.c, mtrim() and systrim()): it
 * joins the chunks of fastbins with their free neighbours; then of each free chunk the pages behind
 * its links; then of the main arena's top, if it ends at the break, all but MINSIZE, in pages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/rss/reading.h"
#include "runtime/malloc/mapped.h"

#define LARGE_BYTES 512u /* pymalloc has no larger blocks */
#define CHUNK_LINKS 48u  /* sizeof(struct malloc_chunk) */
#define MIN_SIZE    32u

struct malloc_reading {
	struct memory_reading *reading;
	struct memory_region region;   /* of the heap; account NULL: none */
	uint32_t heap;                 /* UINT32_MAX: none yet */
	uint64_t free_start, free_end; /* chunks that malloc_trim() would join */
	int err;
};

static const enum memory_kind kinds[GLIBC_KINDS] = {
	[GLIBC_USED] = MEMORY_USED,      [GLIBC_TCACHE] = MEMORY_TCACHE,
	[GLIBC_FAST] = MEMORY_FASTBINS,  [GLIBC_BIN] = MEMORY_BINS,
	[GLIBC_TOP] = MEMORY_TOP,        [GLIBC_OWN] = MEMORY_OWN,
	[GLIBC_UNKNOWN] = MEMORY_UNREAD,
};

static uint64_t page_up(uint64_t address)
{
	return (address + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
}

static uint64_t page_down(uint64_t address)
{
	return address / MEMORY_PAGE * MEMORY_PAGE;
}

static void trim_add(struct malloc_reading *reader, uint64_t start, uint64_t end)
{
	if (start < end)
		reader->reading->report->trimmable +=
			memory_resident(&reader->reading->account, start, end);
}

static void free_end(struct malloc_reading *reader)
{
	trim_add(reader, page_up(reader->free_start + CHUNK_LINKS), page_down(reader->free_end));
	reader->free_start = reader->free_end = 0;
}

/* The main arena's top; heap: the one that it ends. Free chunks in front of it are joined. */
static void top_trim(struct malloc_reading *reader, const struct glibc_chunk *chunk)
{
	const struct glibc_heap *heap = &reader->reading->glibc->heaps[chunk->heap];
	uint64_t end = chunk->address + chunk->bytes, start = chunk->address;

	if (reader->free_end == start)
		start = reader->free_start;
	reader->free_start = reader->free_end = 0;
	const struct memory_map *map = memory_map_at(&reader->reading->account, end - 1);
	if (!heap->arena && map && page_up(end) == map->end && end - start > MIN_SIZE + 1)
		trim_add(reader, end - page_down(end - start - MIN_SIZE - 1), end);
}

static void trim_look(struct malloc_reading *reader, const struct glibc_chunk *chunk)
{
	if (chunk->kind == GLIBC_TOP) {
		top_trim(reader, chunk);
	} else if (chunk->kind != GLIBC_FAST && chunk->kind != GLIBC_BIN) {
		free_end(reader);
	} else {
		if (reader->free_end != chunk->address) {
			free_end(reader);
			reader->free_start = chunk->address;
		}
		reader->free_end = chunk->address + chunk->bytes;
	}
}

static void heap_begin(struct malloc_reading *reader, uint32_t number)
{
	const struct glibc_heap *heap = &reader->reading->glibc->heaps[number];

	free_end(reader);
	reader->heap = number;
	reader->region.account = NULL;
	if (memory_region_open(&reader->reading->account, heap->start, heap->end,
			       &reader->region) == -ENOMEM)
		reader->err = -ENOMEM;
}

static int chunk_take(const struct glibc_chunk *chunk, void *context)
{
	struct malloc_reading *reader = context;
	const struct memory_block *block;
	enum memory_kind kind = kinds[chunk->kind];
	uint32_t arena = reader->reading->glibc->heaps[chunk->heap].arena;

	if (chunk->heap != reader->heap)
		heap_begin(reader, chunk->heap);
	reader->reading->report->arenas[arena].bytes[chunk->kind] += chunk->bytes;
	if (kind == MEMORY_USED && chunk->bytes > LARGE_BYTES) {
		block = memory_large_find(&reader->reading->large, chunk->address + GLIBC_HEADER);
		if (block && block->python)
			kind = MEMORY_USED_PYTHON;
	}
	if (reader->region.account)
		memory_region_take(&reader->region, chunk->address + chunk->bytes, kind, 1);
	trim_look(reader, chunk);
	return reader->err;
}

static int chunk_list(const struct glibc_chunk *chunk, void *context)
{
	struct malloc_reading *reader = context;

	if (chunk->kind == GLIBC_USED && chunk->bytes > LARGE_BYTES)
		reader->err =
			memory_large_add(&reader->reading->large, chunk->address + GLIBC_HEADER,
					 chunk->bytes - GLIBC_HEADER, 0);
	return reader->err;
}

static int mapped_list(uint64_t start, uint64_t bytes, void *context)
{
	struct malloc_reading *reader = context;

	reader->err = memory_large_add(&reader->reading->large, start + GLIBC_HEADER,
				       bytes - GLIBC_HEADER, 1);
	return reader->err;
}

/* Heaps and what is taken already, by address: no mapped blocks are in them. */
static struct glibc_range *except_new(const struct memory_reading *reading, size_t *count)
{
	const struct glibc *glibc = reading->glibc;
	const struct memory_account *account = &reading->account;
	size_t heap = 0, region = 0, capacity = glibc->heap_count + account->region_count + 1;
	struct glibc_range *except = calloc(capacity, sizeof(*except));

	*count = 0;
	while (except && (heap < glibc->heap_count || region < account->region_count)) {
		int is_heap = region == account->region_count ||
			      (heap < glibc->heap_count &&
			       glibc->heaps[heap].start < account->regions[region].start);

		except[(*count)++] = is_heap ? (struct glibc_range){glibc->heaps[heap].start,
								    glibc->heaps[heap].end}
					     : (struct glibc_range){account->regions[region].start,
								    account->regions[region].end};
		heap += (size_t)is_heap;
		region += (size_t)!is_heap;
	}
	return except;
}

int memory_malloc_list(struct memory_reading *reading, const struct process_maps *maps)
{
	struct malloc_reading reader = {.reading = reading};
	struct glibc_totals totals;
	size_t except_count;
	int err = glibc_look(reading->glibc, maps);

	if (!err)
		err = glibc_walk(reading->glibc, chunk_list, &reader, &totals) ?: reader.err;
	if (err)
		return err;
	struct glibc_range *except = except_new(reading, &except_count);
	err = except ? glibc_mapped_walk(reading->glibc, maps, except, except_count, mapped_list,
					 &reader)
		     : -ENOMEM;
	free(except);
	return err ?: reader.err ?: memory_large_sort(&reading->large);
}

static int mapped_take(struct memory_reading *reading, const struct memory_block *block)
{
	uint64_t start = block->address - GLIBC_HEADER, bytes = block->bytes + GLIBC_HEADER;
	struct memory_region region;
	int err = memory_region_open(&reading->account, start, start + bytes, &region);

	/* What looks like a block in an arena of Python is none. */
	if (err)
		return err == -ENOMEM ? err : 0;
	memory_region_take(&region, start + bytes,
			   block->python ? MEMORY_MAPPED_PYTHON : MEMORY_MAPPED, 1);
	reading->report->mapped_count++;
	reading->report->mapped_bytes += bytes;
	return 0;
}

int memory_malloc_read(struct memory_reading *reading)
{
	struct malloc_reading reader = {.reading = reading, .heap = UINT32_MAX};
	struct memory_report *report = reading->report;
	const struct glibc *glibc = reading->glibc;

	report->arenas = calloc(glibc->arena_count, sizeof(*report->arenas));
	if (!report->arenas)
		return -ENOMEM;
	report->arena_count = glibc->arena_count;
	for (size_t i = 0; i < glibc->arena_count; i++)
		report->arenas[i] = (struct memory_arena){.address = glibc->arenas[i].address,
							  .system = glibc->arenas[i].system_bytes};
	report->glibc_minor = glibc->minor;
	report->mmaps = glibc->mmaps;
	int err = glibc_walk(reading->glibc, chunk_take, &reader, &report->chunks) ?: reader.err;
	free_end(&reader);
	for (size_t i = 0; i < reading->large.count && !err; i++)
		if (reading->large.blocks[i].mapped)
			err = mapped_take(reading, &reading->large.blocks[i]);
	return err;
}
