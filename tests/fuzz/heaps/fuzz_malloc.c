/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heaps of arbitrary bytes, walked in this process as the tracer walks those of glibc: a main arena
 * with its heap, a second arena in a heap of its own, and a map for blocks with mappings. All their
 * contents are taken from the input. Words that are offsets in this memory become addresses there,
 * so that lists and sizes point to valid memory.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap_world.h"
#include "proc/memory.h"
#include "runtime/malloc/find.h"
#include "runtime/malloc/glibc_allocator.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/states.h"
#include "runtime/malloc/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ALIGNMENT  (64ull << 20)
#define MAIN_BYTES 16384u /* of the main heap, from the first page on */
#define HEAP_BYTES 16384u /* of the second heap */
#define MAP_BYTES  16384u
#define PARAMETERS 3072u /* offset of sbrk_base in the first page; the arena is at its start */

/* Each part is at a multiple of ALIGNMENT, as a heap_info must be. */
enum part { ARENA, HEAP, SECOND, MAPPED, PARTS };

static const uint32_t sizes[PARTS] = {4096, MAIN_BYTES, HEAP_BYTES, MAP_BYTES};
static const unsigned int versions[] = {31, 33, 36, 42, 43};
static uint8_t *memory;

static uint8_t *part_at(enum part part)
{
	return memory + part * ALIGNMENT;
}

/* A word with the upper half 0xfaceNNNN is an offset in part N. */
static void words_relocate(uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t word;

		memcpy(&word, bytes + i, 8);
		if (word >> 48 != 0xface)
			continue;
		word = (uintptr_t)part_at((word >> 32) % PARTS) + (uint32_t)word % (2 * MAIN_BYTES);
		memcpy(bytes + i, &word, 8);
	}
}

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, 8);
}

/* What an honest process has; the input then changes some of it. */
static void arena_make(const struct glibc_layout *layout)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(layout);
	uint8_t *arenas[] = {part_at(ARENA), part_at(SECOND) + layout->heap_info_bytes};
	uint8_t *tops[] = {part_at(HEAP) + MAIN_BYTES - 4096, part_at(SECOND) + HEAP_BYTES - 4096};

	for (size_t i = 0; i < 2; i++) {
		for (uint32_t bin = 0; bin < GLIBC_BINS; bin++) {
			uint64_t head = (uintptr_t)arenas[i] + offsets.bins + bin * 16 - 16;

			put64(arenas[i] + offsets.bins + bin * 16, head);
			put64(arenas[i] + offsets.bins + bin * 16 + 8, head);
		}
		put64(arenas[i] + offsets.top, (uintptr_t)tops[i]);
		put64(arenas[i] + offsets.next, (uintptr_t)arenas[!i]);
		put64(arenas[i] + offsets.system_mem, MAIN_BYTES);
		put64(tops[i] + 8, 4096 | GLIBC_PREV_INUSE);
	}
	put64(part_at(SECOND), (uintptr_t)arenas[1]);
	put64(part_at(SECOND) + 16, HEAP_BYTES);
	put64(part_at(ARENA) + PARAMETERS, (uintptr_t)part_at(HEAP));
}

/* Pieces {part, offset / 8, length / 8, bytes…} of the input overwrite the memory. */
static void input_put(const uint8_t *data, size_t size)
{
	while (size >= 4) {
		enum part part = data[0] % PARTS;
		uint32_t at = (data[1] | data[2] << 8) * 8u % sizes[part];
		size_t bytes = data[3] * 8u;

		data += 4;
		size -= 4;
		if (bytes > size)
			bytes = size;
		if (bytes > sizes[part] - at)
			bytes = sizes[part] - at;
		memcpy(part_at(part) + at, data, bytes);
		data += bytes;
		size -= bytes;
	}
	for (int part = 0; part < PARTS; part++)
		words_relocate(part_at(part), sizes[part]);
}

struct seen {
	const struct glibc *glibc;
	uint64_t end;
	uint32_t heap;
	uint64_t bytes;
};

/* The chunks of a heap follow each other, from its start. */
static int chunk_see(const struct glibc_chunk *chunk, void *context)
{
	struct seen *seen = context;
	const struct glibc_heap *heap = &seen->glibc->heaps[chunk->heap];

	if (chunk->heap != seen->heap)
		seen->end = heap->start;
	if (chunk->address != seen->end || !chunk->bytes || chunk->bytes > heap->end - seen->end)
		abort();
	seen->heap = chunk->heap;
	seen->end = chunk->address + chunk->bytes;
	seen->bytes += chunk->bytes;
	return 0;
}

static int mapped_see(uint64_t start, uint64_t bytes, void *context)
{
	struct glibc_range *map = context;

	if (start < map->start || bytes > map->end - start || !bytes)
		abort();
	map->start = start + bytes;
	return 0;
}

static void runs_read(struct glibc *glibc, const struct process_maps *maps)
{
	const struct allocator allocator = {.type = &glibc_allocator, .state = glibc};
	struct allocator_totals *totals = malloc(sizeof(*totals));
	uint64_t end = 0;

	if (!totals)
		abort();
	allocator_walk(&allocator, maps, heap_world_run, &end, totals);
	free(totals);
}

static void heaps_read(struct glibc *glibc, const struct process_maps *maps, int with_states)
{
	struct seen seen = {.glibc = glibc, .heap = UINT32_MAX};
	struct glibc_range map = {maps->entries[1].start, maps->entries[1].end};
	struct glibc_totals totals;
	uint64_t addresses[64], bytes = 0, arena;
	uint8_t states[64];

	for (size_t i = 0; i < glibc->heap_count; i++)
		bytes += glibc->heaps[i].end - glibc->heaps[i].start;
	if (glibc_walk(glibc, chunk_see, &seen, &totals) || seen.bytes != bytes)
		abort();
	if (glibc_mapped_walk(glibc, maps, NULL, 0, mapped_see, &map))
		abort();
	for (size_t i = 0; i < 64; i++)
		addresses[i] = (uintptr_t)part_at(i % PARTS) + i / PARTS * 512 + 16;
	/* These read the maps of this process, which has another heap and many maps. */
	if (with_states)
		glibc_states(glibc, addresses, 64, states);
	if (with_states)
		runs_read(glibc, maps);
	if (!glibc_find_arena(glibc->layout, part_at(ARENA), 4096, (uintptr_t)part_at(ARENA),
			      &arena) &&
	    arena - (uintptr_t)part_at(ARENA) >= 4096)
		abort();
	glibc_find_parameters(glibc->layout, part_at(ARENA), 4096, (uintptr_t)part_at(ARENA),
			      (uintptr_t)part_at(HEAP), &arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct process_map entries[2] = {{.readable = 1, .writable = 1, .path = "[heap]"},
					 {.readable = 1, .writable = 1, .path = ""}};
	struct process_maps maps = {entries, 2};
	unsigned int minor;
	static struct space *space;
	struct glibc *glibc;

	if (!size)
		return 0;
	if (!memory)
		memory = heap_world_map(PARTS * ALIGNMENT, ALIGNMENT);
	for (int part = 0; part < PARTS; part++)
		memset(part_at(part), 0, sizes[part]);
	minor = versions[*data % (sizeof(versions) / sizeof(versions[0]))];
	arena_make(glibc_layout_for(minor));
	input_put(data + 1, size - 1);
	entries[0].start = (uintptr_t)part_at(HEAP);
	entries[0].end = entries[0].start + MAIN_BYTES;
	entries[1].start = (uintptr_t)part_at(MAPPED);
	entries[1].end = entries[1].start + MAP_BYTES;
	if (!space && space_open(&space, getpid()))
		return 0;
	if (glibc_open_at(&glibc, space, minor, (uintptr_t)part_at(ARENA),
			  (uintptr_t)part_at(ARENA) + PARAMETERS, &maps))
		return 0;
	heaps_read(glibc, &maps, *data >> 4 == 0);
	glibc_close(glibc);
	return 0;
}
