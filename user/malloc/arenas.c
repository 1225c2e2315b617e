/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (malloc/arena.c). All arenas are in a circular list that begins at main_arena. The main
 * arena's heap is the program's break. Any other arena is in its first heap: a mapping that is
 * aligned to HEAP_MAX_SIZE and begins with struct heap_info {arena, previous heap, size, …}. An
 * arena's top chunk is in its latest heap. So the layout is proven if the list returns to
 * main_arena, and if each other arena follows a heap_info that names it.
 */
#include "malloc/arenas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "malloc/reader.h"

#define HEAP_MAX_SIZE (64ull << 20)
#define PAGE          4096u

struct look {
	struct glibc *glibc;
	struct glibc_arena_offsets offsets;
	size_t arena_capacity, heap_capacity;
};

static int contradiction(const struct glibc *glibc, const char *what)
{
	return error_set(-ENOTSUP, "its malloc is not laid out as glibc 2.%u's: %s", glibc->minor,
			 what);
}

static uint64_t aligned(uint64_t address)
{
	return (address + GLIBC_ALIGNMENT - 1) & ~(uint64_t)(GLIBC_ALIGNMENT - 1);
}

static int heap_add(struct look *look, const struct glibc_heap *heap)
{
	struct glibc *glibc = look->glibc;
	int err = array_reserve(&glibc->heaps, &look->heap_capacity, glibc->heap_count, 1,
				sizeof(*heap));

	if (!err && glibc->heap_count == GLIBC_HEAPS_MAX)
		err = contradiction(glibc, "too many heaps");
	if (!err)
		glibc->heaps[glibc->heap_count++] = *heap;
	return err;
}

static int arena_add(struct look *look, uint64_t address, uint64_t *next)
{
	struct glibc *glibc = look->glibc;
	struct glibc_arena arena = {.address = address};
	int err = reader_u64(glibc->reader, address + look->offsets.top, &arena.top);

	if (!err)
		err = reader_u64(glibc->reader, address + look->offsets.next, next);
	if (!err)
		err = reader_u64(glibc->reader, address + look->offsets.system_mem,
				 &arena.system_bytes);
	if (err)
		return err;
	if (arena.top % GLIBC_ALIGNMENT)
		return contradiction(glibc, "an arena's top chunk is not aligned");
	/* A new main arena's top is in its bins, with a size of 0. */
	err = reader_u64(glibc->reader, arena.top + 8, &arena.top_bytes);
	if (err == -ENODATA)
		return error_set(err, "the end of an arena is swapped out");
	if (err)
		return contradiction(glibc, "an arena's top chunk cannot be read");
	arena.top_bytes &= ~(uint64_t)GLIBC_SIZE_BITS;
	err = array_reserve(&glibc->arenas, &look->arena_capacity, glibc->arena_count, 1,
			    sizeof(arena));
	if (!err)
		glibc->arenas[glibc->arena_count++] = arena;
	return err;
}

static int arenas_list(struct look *look)
{
	struct glibc *glibc = look->glibc;
	uint64_t at = glibc->main_arena;
	int err;

	do {
		if (glibc->arena_count == GLIBC_ARENAS_MAX)
			return contradiction(glibc, "its list of arenas does not end");
		err = arena_add(look, at, &at);
	} while (!err && at != glibc->main_arena);
	return err;
}

/* The break, from the first address that sbrk() gave malloc to the end of the map. */
static int main_heap_read(struct look *look, const struct process_maps *maps)
{
	struct glibc *glibc = look->glibc;
	const struct glibc_arena *arena = &glibc->arenas[0];
	struct glibc_heap heap = {0};
	uint64_t sbrk_base;

	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[heap]")) {
			/* Attributes (madvise, mlock) may divide the heap into several maps. */
			heap.start = heap.start ? heap.start : maps->entries[i].start;
			heap.end = maps->entries[i].end;
		}
	if (!heap.start || !arena->system_bytes)
		return 0;
	heap.first = heap.start;
	if (glibc->parameters && !reader_u64(glibc->reader, glibc->parameters, &sbrk_base) &&
	    sbrk_base - heap.start < PAGE)
		heap.first = sbrk_base;
	heap.first = aligned(heap.first);
	if (arena->top >= heap.first && arena->top < heap.end) {
		if (arena->top_bytes > heap.end - arena->top)
			return contradiction(glibc, "the top chunk ends beyond the heap");
		/* Between malloc's last byte and the end of the map is another user's memory. */
		heap.end = arena->top + arena->top_bytes;
	} else {
		glibc->main_is_elsewhere = 1;
	}
	return heap_add(look, &heap);
}

/* The heaps of another arena, from the latest to the first. */
static int heaps_read(struct look *look, uint32_t number)
{
	struct glibc *glibc = look->glibc;
	const struct glibc_arena *arena = &glibc->arenas[number];
	uint64_t at = arena->top & ~(HEAP_MAX_SIZE - 1);

	if (arena->address % HEAP_MAX_SIZE != glibc->layout->heap_info_bytes)
		return contradiction(glibc, "an arena does not follow a heap_info");
	for (size_t i = 0; at; i++) {
		struct glibc_heap heap = {.start = at, .arena = number};
		uint64_t info[3]; /* arena, previous, size */
		int err = reader_read(glibc->reader, at, info, sizeof(info), 0);

		if (err)
			return err;
		if (i == GLIBC_HEAPS_MAX || info[0] != arena->address || info[2] > HEAP_MAX_SIZE ||
		    info[2] % PAGE || info[2] < look->offsets.bytes || info[1] % HEAP_MAX_SIZE)
			return contradiction(glibc, "a heap_info is inconsistent");
		heap.end = at + info[2];
		heap.first = at + glibc->layout->heap_info_bytes;
		if (heap.first == arena->address)
			heap.first += look->offsets.bytes;
		else if (!info[1])
			return contradiction(glibc, "an arena is not in its first heap");
		heap.first = aligned(heap.first);
		if (arena->top - at < HEAP_MAX_SIZE && arena->top + arena->top_bytes > heap.end)
			return contradiction(glibc, "the top chunk ends beyond its heap");
		err = heap_add(look, &heap);
		if (err)
			return err;
		at = info[1];
	}
	return 0;
}

static int heap_compare(const void *a, const void *b)
{
	const struct glibc_heap *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int glibc_arenas_read(struct glibc *glibc, const struct process_maps *maps)
{
	struct look look = {.glibc = glibc, .offsets = glibc_arena_offsets(glibc->layout)};
	int err;

	free(glibc->arenas);
	free(glibc->heaps);
	glibc->arenas = NULL;
	glibc->heaps = NULL;
	glibc->arena_count = glibc->heap_count = 0;
	glibc->main_is_elsewhere = 0;
	err = arenas_list(&look);
	if (!err)
		err = main_heap_read(&look, maps);
	for (uint32_t i = 1; !err && i < glibc->arena_count; i++)
		err = heaps_read(&look, i);
	if (err)
		return err;
	if (glibc->heap_count)
		qsort(glibc->heaps, glibc->heap_count, sizeof(*glibc->heaps), heap_compare);
	for (size_t i = 1; i < glibc->heap_count; i++)
		if (glibc->heaps[i].start < glibc->heaps[i - 1].end)
			return contradiction(glibc, "heaps overlap");
	return 0;
}
