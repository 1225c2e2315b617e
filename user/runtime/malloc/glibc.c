/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/glibc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "proc/memory.h"
#include "runtime/malloc/find.h"
#include "runtime/malloc/reader.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

/* --- glibc arenas ----------------------------------------------------------------------------- */

/* The arenas and heaps of glibc_look(). */

/*
 * Model (malloc/arena.c). All arenas are in a circular list that begins at main_arena. The main
 * arena's heap is the program's break. Any other arena is in its first heap: a mapping that is
 * aligned to HEAP_MAX_SIZE and begins with struct heap_info {arena, previous heap, size, …}. An
 * arena's top chunk is in its latest heap. So the layout is proven if the list returns to
 * main_arena, and if each other arena follows a heap_info that names it.
 */

#define HEAP_MAX_SIZE (64ull << 20)
#define PAGE          4096u

struct arenas_look {
	struct glibc *glibc;
	struct glibc_arena_offsets offsets;
	size_t arena_capacity, heap_capacity;
};

static int inconsistency(const struct glibc *glibc, const char *what)
{
	return error_set(-ENOTSUP, "its malloc is not laid out as glibc 2.%u's: %s", glibc->minor,
			 what);
}

static uint64_t aligned(uint64_t address)
{
	return (address + GLIBC_ALIGNMENT - 1) & ~(uint64_t)(GLIBC_ALIGNMENT - 1);
}

static int heap_add(struct arenas_look *look, const struct glibc_heap *heap)
{
	struct glibc *glibc = look->glibc;
	int err = ARRAY_GROW(glibc->heaps, look->heap_capacity, glibc->heap_count);

	if (!err && glibc->heap_count == GLIBC_HEAPS_MAX)
		err = inconsistency(glibc, "too many heaps");
	if (!err)
		glibc->heaps[glibc->heap_count++] = *heap;
	return err;
}

static int arena_add(struct arenas_look *look, uint64_t address, uint64_t *next)
{
	struct glibc *glibc = look->glibc;
	struct glibc_arena arena = {.address = address};
	int err = reader_u64(glibc->reader, address + look->offsets.top, &arena.top);

	err = err
	      ?: reader_u64(glibc->reader, address + look->offsets.next, next)
	      ?: reader_u64(glibc->reader, address + look->offsets.system_mem,
			    &arena.system_bytes);
	if (err)
		return err;
	if (arena.top % GLIBC_ALIGNMENT)
		return inconsistency(glibc, "an arena's top chunk is not aligned");
	/* A new main arena's top is in its bins, with a size of 0. */
	err = reader_u64(glibc->reader, arena.top + 8, &arena.top_bytes);
	if (err == -ENODATA)
		return error_set(err, "the end of an arena is swapped out");
	if (err)
		return inconsistency(glibc, "an arena's top chunk cannot be read");
	arena.top_bytes &= ~(uint64_t)GLIBC_SIZE_BITS;
	err = ARRAY_GROW(glibc->arenas, look->arena_capacity, glibc->arena_count);
	if (!err)
		glibc->arenas[glibc->arena_count++] = arena;
	return err;
}

static int arenas_list(struct arenas_look *look)
{
	struct glibc *glibc = look->glibc;
	uint64_t at = glibc->main_arena;
	int err;

	do {
		if (glibc->arena_count == GLIBC_ARENAS_MAX)
			return inconsistency(glibc, "its list of arenas does not end");
		err = arena_add(look, at, &at);
	} while (!err && at != glibc->main_arena);
	return err;
}

/* The break, from the first address that sbrk() gave malloc to the end of the map. */
static int main_heap_read(struct arenas_look *look, const struct process_maps *maps)
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
			return inconsistency(glibc, "the top chunk ends beyond the heap");
		/* Between malloc's last byte and the end of the map is another user's memory. */
		heap.end = arena->top + arena->top_bytes;
	} else {
		glibc->main_is_elsewhere = 1;
	}
	return heap_add(look, &heap);
}

/* The heaps of another arena, from the latest to the first. */
static int heaps_read(struct arenas_look *look, uint32_t number)
{
	struct glibc *glibc = look->glibc;
	const struct glibc_arena *arena = &glibc->arenas[number];
	uint64_t at = arena->top & ~(HEAP_MAX_SIZE - 1);

	if (arena->address % HEAP_MAX_SIZE != glibc->layout->heap_info_bytes)
		return inconsistency(glibc, "an arena does not follow a heap_info");
	for (size_t i = 0; at; i++) {
		struct glibc_heap heap = {.start = at, .arena = number};
		uint64_t info[3]; /* arena, previous, size */
		int err = reader_read(glibc->reader, at, info, sizeof(info), 0);

		if (err)
			return err;
		if (i == GLIBC_HEAPS_MAX || info[0] != arena->address || info[2] > HEAP_MAX_SIZE ||
		    info[2] % PAGE || info[2] < look->offsets.bytes || info[1] % HEAP_MAX_SIZE)
			return inconsistency(glibc, "a heap_info is inconsistent");
		heap.end = at + info[2];
		heap.first = at + glibc->layout->heap_info_bytes;
		if (heap.first == arena->address)
			heap.first += look->offsets.bytes;
		else if (!info[1])
			return inconsistency(glibc, "an arena is not in its first heap");
		heap.first = aligned(heap.first);
		if (arena->top - at < HEAP_MAX_SIZE && arena->top + arena->top_bytes > heap.end)
			return inconsistency(glibc, "the top chunk ends beyond its heap");
		err = heap_add(look, &heap);
		if (err)
			return err;
		at = info[1];
	}
	return 0;
}

/*
 * Replaces glibc's arenas and heaps. 0; -ENOTSUP: what is there contradicts the layout (error_set);
 * -EFAULT; -ESRCH; -ENOMEM.
 */
static int glibc_arenas_read(struct glibc *glibc, const struct process_maps *maps)
{
	struct arenas_look look = {.glibc = glibc, .offsets = glibc_arena_offsets(glibc->layout)};

	free(glibc->arenas);
	free(glibc->heaps);
	glibc->arenas = NULL;
	glibc->heaps = NULL;
	glibc->arena_count = glibc->heap_count = 0;
	glibc->main_is_elsewhere = 0;
	int err = arenas_list(&look) ?: main_heap_read(&look, maps);
	for (uint32_t i = 1; !err && i < glibc->arena_count; i++)
		err = heaps_read(&look, i);
	if (err)
		return err;
	SORT_BY(glibc->heaps, glibc->heap_count, start);
	for (size_t i = 1; i < glibc->heap_count; i++)
		if (glibc->heaps[i].start < glibc->heaps[i - 1].end)
			return inconsistency(glibc, "heaps overlap");
	return 0;
}

/* --- glibc ------------------------------------------------------------------------------------ */

#define DATA_MAX (256u * 1024) /* of libc's writable data, which takes 20 KiB */
#define TRIES    3

/* libc.so.6, or libc-2.31.so as the file was called up to 2.33. */
static bool is_libc(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	return !strcmp(name, "libc.so.6") || !strncmp(name, "libc-2.", strlen("libc-2."));
}

static const struct process_map *libc_find(const struct process_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].inode && is_libc(maps->entries[i].path))
			return &maps->entries[i];
	return NULL;
}

/* -ENOENT: the file is no glibc. */
static int version_find(pid_t pid, const struct process_map *map, unsigned int *minor)
{
	struct elf_file *file;
	int fd = process_map_open(pid, map), err;

	if (fd < 0)
		return fd;
	err = elf_file_open(&file, fd, map->path, "");
	if (err) {
		close(fd);
		return err;
	}
	err = glibc_version_read(file, minor);
	elf_file_close(file);
	return err;
}

/* Searches one writable map of libc for both structures. -ENOENT: main_arena is not in it. */
static int data_search(struct glibc *glibc, const struct process_map *map, uint64_t heap_start)
{
	size_t size = map->end - map->start < DATA_MAX ? map->end - map->start : DATA_MAX;
	uint8_t *bytes = malloc(size);
	int err = bytes ? 0 : -ENOMEM;

	err = err
	      ?: space_read(glibc->space, map->start, bytes, size)
	      ?: glibc_find_arena(glibc->layout, bytes, size, map->start, &glibc->main_arena);
	if (!err && heap_start &&
	    glibc_find_parameters(glibc->layout, bytes, size, map->start, heap_start,
				  &glibc->parameters))
		glibc->parameters = 0;
	free(bytes);
	return err;
}

/* libc's .bss follows its data without a gap; main_arena and mp_ are initialised data. */
static int structures_find(struct glibc *glibc, const struct process_map *libc,
			   const struct process_maps *maps)
{
	uint64_t heap_start = 0;
	int err = -ENOENT;

	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[heap]"))
			heap_start = maps->entries[i].start;
	for (size_t i = 0; i < maps->count && err == -ENOENT; i++) {
		const struct process_map *map = &maps->entries[i];

		if (map->writable && map->inode == libc->inode &&
		    map->device_major == libc->device_major &&
		    map->device_minor == libc->device_minor)
			err = data_search(glibc, map, heap_start);
	}
	if (err == -EEXIST)
		return error_set(-ENOTSUP, "several structures of its libc could be main_arena");
	if (err == -ENOENT)
		return error_set(-ENODATA, "malloc of its libc has no heap: another one is used");
	return err;
}

static int glibc_new(struct glibc **out, struct space *space, unsigned int minor)
{
	struct glibc *glibc = calloc(1, sizeof(*glibc));

	if (!glibc)
		return -ENOMEM;
	glibc->space = space_share(space);
	glibc->minor = minor;
	glibc->layout = glibc_layout_for(minor);
	int err = glibc->layout ? reader_new(&glibc->reader, space)
				: error_set(-ENOTSUP, "malloc of glibc 2.%u is not known to tracer",
					    minor);
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

int glibc_open(struct glibc **out, struct space *space, const struct process_maps *maps)
{
	const struct process_map *libc = libc_find(maps);
	struct glibc *glibc;
	unsigned int minor;
	int err = libc ? version_find(space_pid(space), libc, &minor) : -ENOENT;

	err = err ?: glibc_new(&glibc, space, minor);
	if (err)
		return err;
	for (int i = 0; i < TRIES; i++) {
		err = structures_find(glibc, libc, maps) ?: glibc_look(glibc, maps);
		if (!err || (err != -ENOTSUP && err != -EFAULT && err != -ENODATA))
			break;
	}
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

int glibc_open_at(struct glibc **out, struct space *space, unsigned int minor, uint64_t main_arena,
		  uint64_t parameters, const struct process_maps *maps)
{
	struct glibc *glibc;
	int err = glibc_new(&glibc, space, minor);

	if (err)
		return err;
	glibc->main_arena = main_arena;
	glibc->parameters = parameters;
	err = glibc_look(glibc, maps);
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

void glibc_close(struct glibc *glibc)
{
	if (!glibc)
		return;
	reader_free(glibc->reader);
	space_close(glibc->space);
	free(glibc->arenas);
	free(glibc->heaps);
	free(glibc);
}

static void mmaps_read(struct glibc *glibc)
{
	uint64_t at = glibc->parameters, bytes;
	uint32_t count;

	glibc->mmaps = (struct glibc_mmaps){0};
	if (!at || reader_u64(glibc->reader, at - GLIBC_MMAPS_BYTES_BEFORE, &bytes) ||
	    reader_read(glibc->reader, at - glibc_mmaps_count_before(glibc->layout), &count,
			sizeof(count), 0))
		return;
	glibc->mmaps = (struct glibc_mmaps){count, bytes, 1};
}

int glibc_look(struct glibc *glibc, const struct process_maps *maps)
{
	int err = -ENOTSUP;

	for (int i = 0; i < TRIES && (err == -ENOTSUP || err == -EFAULT); i++) {
		reader_clear(glibc->reader);
		err = glibc_arenas_read(glibc, maps);
	}
	if (!err)
		mmaps_read(glibc);
	return err;
}
