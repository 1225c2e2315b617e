/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heaps of allocators that replace malloc, in this process: an honest one of the allocator that the
 * first byte names, in which the input changes pieces. It is found and walked as that of another
 * process. Words that are offsets in this memory become addresses there, so that lists lead
 * somewhere.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap_world.h"
#include "proc/memory.h"
#include "runtime/malloc/mimalloc.h"
#include "runtime/malloc/mimalloc3.h"
#include "runtime/malloc/musl.h"
#include "runtime/malloc/tcmalloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ALIGNMENT (32ull << 20)
#define PART      (4u << 20) /* bytes of a part */
#define SECRET    0x1234567890abcde8ull
#define ROOT      4096u /* of tcmalloc's page map, among its variables */
#define HEADS     (ROOT + (1u << 20) + 8 + 96)
#define CENTRAL   (HEADS + 65536)
#define SIZES     (CENTRAL + 262144)
#define SPANS     (2u << 20) /* behind the leaf of the map */
#define CACHE     (3u << 20)
#define FIRST     (2u << 20) /* the first table of mimalloc's map, behind it; then the second */
#define DESCRIBED 4096u      /* mimalloc's page, in the first slice of its arena */

enum part { STATICS, META, HEAP, PARTS };
enum { MUSL, TCMALLOC, MIMALLOC, MIMALLOC3, TYPES };

static const struct allocator_type *const types[] = {&musl_allocator, &tcmalloc_allocator,
						     &mimalloc_allocator, &mimalloc3_allocator};
static char *const names[] = {(char *)"/lib/libc.so", (char *)"/lib/libtcmalloc.so.4",
			      (char *)"/lib/libmimalloc.so.2", (char *)"/lib/libmimalloc.so.3"};
static uint8_t *memory;

/* What the input may change. */
static const struct {
	enum part part;
	uint32_t at, bytes;
} places[TYPES][6] = {
	{{STATICS, 64, 96},
	 {META, 0, 256},
	 {HEAP, 0, 4096},
	 {HEAP, 16384, 64},
	 {META, 0, 4096},
	 {HEAP, 0, 20480}},
	{{META, SPANS, 512},
	 {HEAP, 0, 8192},
	 {META, CACHE, 4160},
	 {STATICS, HEADS, 13000},
	 {STATICS, CENTRAL, 20000},
	 {STATICS, SIZES - 512, 1024}},
	{{HEAP, 208, 96},
	 {HEAP, 288, 288},
	 {HEAP, 65536, 4096},
	 {HEAP, 288, 49248},
	 {STATICS, 0, 256},
	 {META, 0, 256}},
	{{HEAP, 0, 64},
	 {HEAP, DESCRIBED, 128},
	 {HEAP, 65536, 4096},
	 {META, FIRST + 65536, 65536},
	 {STATICS, 128, 8},
	 {META, FIRST, 256}},
};

static uint64_t at(enum part part, uint64_t offset)
{
	return (uintptr_t)memory + part * ALIGNMENT + offset;
}

static void put(enum part part, uint64_t offset, const void *value, size_t bytes)
{
	memcpy((void *)at(part, offset), value, bytes);
}

static void put64(enum part part, uint64_t offset, uint64_t value)
{
	put(part, offset, &value, sizeof(value));
}

static void put32(enum part part, uint64_t offset, uint32_t value)
{
	put(part, offset, &value, sizeof(value));
}

/* A group with a mapping, another one in a slot of it, and a large block. */
static void musl_make(void)
{
	const uint64_t groups[][2] = {{0, 30 | 1 << 5 | 7 << 6 | 4 << 12},
				      {16 + 3 * 128, 4 | 1 << 5},
				      {16384, 1 << 5 | 63 << 6 | 1 << 12}};

	put64(STATICS, 64, SECRET);
	put32(STATICS, 72, 1);
	put64(STATICS, 64 + 56, at(META, 0));
	put64(STATICS, 64 + 64, at(META, 0));
	put64(META, 0, SECRET);
	put32(META, 16, 101);
	for (uint64_t i = 0; i < 3; i++) {
		put64(META, 24 + i * 40 + 16, at(HEAP, groups[i][0]));
		put32(META, 24 + i * 40 + 24, i == 2 ? 0 : 6);
		put64(META, 24 + i * 40 + 32, groups[i][1]);
		put64(HEAP, groups[i][0], at(META, 24 + i * 40));
	}
}

static void head_make(enum part part, uint64_t offset)
{
	put64(part, offset + 16, at(part, offset));
	put64(part, offset + 24, at(part, offset));
}

static void tcmalloc_variables_make(void)
{
	for (uint64_t i = 0; i < 256; i++)
		head_make(STATICS, HEADS + i * 48);
	put64(STATICS, HEADS - 104, at(STATICS, 0));
	put64(STATICS, HEADS + 256 * 48, 8 * 8192);
	for (uint64_t i = 0; i < 20; i++) {
		put64(STATICS, CENTRAL + i * 1216 + 8, i);
		head_make(STATICS, CENTRAL + i * 1216 + 16);
	}
	for (uint32_t i = 1; i <= 16; i++) {
		put32(STATICS, SIZES + i * 4ull, 4u << i);
		put32(STATICS, SIZES - 512 + i * 4ull, 32);
		put32(META, CACHE + i * 32ull + 24, 4u << i);
	}
	put64(STATICS, 0, at(META, CACHE));
}

/* Spans: of objects of 128 bytes; free; in use; returned. */
static void tcmalloc_make(void)
{
	const uint64_t spans[][4] = {{0, 1, 1, 60 | 5 << 16}, /* page, pages, objects, bits */
				     {1, 2, 0, 1 << 24},
				     {3, 2, 0, 0},
				     {5, 3, 0, 2 << 24}};
	uint64_t first = at(HEAP, 0) >> 13;

	tcmalloc_variables_make();
	put64(STATICS, ROOT + (first >> 18) * 8, at(META, 0));
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t page = first + spans[i][0];

		put64(META, SPANS + i * 48, page);
		put64(META, SPANS + i * 48 + 8, spans[i][1]);
		put64(META, SPANS + i * 48 + 32, spans[i][2] ? at(HEAP, 128) : 0);
		put64(META, SPANS + i * 48 + 40, spans[i][3]);
		put64(META, (page & 0x3ffff) * 8, at(META, SPANS + i * 48));
		put64(META, ((page + spans[i][1] - 1) & 0x3ffff) * 8, at(META, SPANS + i * 48));
	}
	for (uint64_t i = 1; i < 4; i++)
		put64(HEAP, i * 128, i == 3 ? 0 : at(HEAP, (i + 1) * 128));
	put64(HEAP, 4 * 128, 0);
	put32(META, SPANS + 40, 61 | 5 << 16);
	/* The cache has the fifth and sixth object. */
	put64(META, CACHE + 5 * 32, at(HEAP, 4 * 128));
	put32(META, CACHE + 5 * 32 + 8, 2);
	put64(HEAP, 4 * 128, at(HEAP, 5 * 128));
}

/* A segment of 2.2: a page of blocks of 1 KiB, of which one is free, and free slices. */
static void mimalloc_make(void)
{
	put64(STATICS, 128, SECRET);
	put64(HEAP, 216, 1);
	put64(HEAP, 224, at(HEAP, 0) ^ SECRET);
	put64(HEAP, 248, 512);
	put64(HEAP, 256, 1);
	put64(HEAP, 272, 512);
	put64(HEAP, 280, 1);
	put32(HEAP, 288, 1);
	put32(HEAP, 288 + 96, 1);
	put32(HEAP, 288 + 96 + 8, 4 << 16);
	put32(HEAP, 288 + 96 + 12, 64);
	put64(HEAP, 288 + 96 + 16, at(HEAP, 65536 + 1024));
	put32(HEAP, 288 + 96 + 32, 3);
	put64(HEAP, 288 + 96 + 40, 1024);
	put64(HEAP, 288 + 96 + 48, at(HEAP, 65536));
	put64(HEAP, 288 + 96 + 64, at(META, 0));
	put32(HEAP, 288 + 192, 510);
}

/* An arena of 3.4: its structures, a page of blocks of 1 KiB, of which one is free, free slices. */
static void mimalloc3_make(void)
{
	const uint64_t slice = at(HEAP, 65536) >> 16;

	put64(STATICS, 128, at(META, 0));
	put64(META, 0, at(META, FIRST));
	put64(META, (slice >> 13) * 8, at(META, FIRST + 65536));
	put64(META, FIRST + 65536 + slice % 8192 * 8, at(HEAP, DESCRIBED));
	put64(HEAP, 40, 512);
	put64(HEAP, 48, 1);
	put64(HEAP, DESCRIBED + 8, at(HEAP, 65536 + 1024));
	put64(HEAP, DESCRIBED + 16, 3 | 4 << 16 | 64ull << 32);
	put64(HEAP, DESCRIBED + 40, 1024);
	put32(HEAP, DESCRIBED + 48, (65536 - DESCRIBED) / 8);
	put64(HEAP, DESCRIBED + 88, at(HEAP, 0));
	put64(HEAP, DESCRIBED + 96, 1 | 1ull << 32);
	put32(HEAP, DESCRIBED + 104, 7);
}

static void words_relocate(uint64_t address, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word;

		memcpy(&word, (uint8_t *)address + i, 8);
		if (word >> 48 != 0xface)
			continue;
		word = at((enum part)((word >> 32) % PARTS), (uint32_t)word % PART);
		memcpy((uint8_t *)address + i, &word, 8);
	}
}

/* Pieces {place, offset / 4, words of 8 bytes} of the input, and the words. */
static void input_put(unsigned int type, const uint8_t *data, size_t size)
{
	while (size >= 4) {
		unsigned int place = data[0] % 6;
		uint32_t room = places[type][place].bytes;
		uint32_t offset = (data[1] | data[2] << 8) * 4u % room;
		size_t bytes = (data[3] % 8 + 1) * 8u;

		data += 4;
		size -= 4;
		bytes = bytes < size ? bytes : size;
		bytes = bytes < room - offset ? bytes : room - offset;
		uint64_t to = at(places[type][place].part, places[type][place].at + offset);
		memcpy((void *)to, data, bytes);
		words_relocate(to, bytes);
		data += bytes;
		size -= bytes;
	}
}

static void heap_read(unsigned int type, int is_honest)
{
	struct process_map entries[] = {
		{.start = at(STATICS, 0),
		 .end = at(STATICS, PART),
		 .inode = 1,
		 .readable = 1,
		 .writable = 1,
		 .path = names[type]},
		{.start = at(META, 0),
		 .end = at(META, PART),
		 .readable = 1,
		 .writable = 1,
		 .path = (char *)""},
		{.start = at(HEAP, 0),
		 .end = at(HEAP, ALIGNMENT),
		 .readable = 1,
		 .writable = 1,
		 .path = (char *)""},
	};
	struct process_maps maps = {entries, PARTS};
	struct allocator allocator = {.type = types[type]};
	struct allocator_totals *totals = malloc(sizeof(*totals));
	struct space *space;
	uint64_t end = 0;

	if (!totals || space_open(&space, getpid()))
		abort();
	int err = allocator.type->open(&allocator.state, space, &maps, allocator.version);
	if (!err) {
		err = allocator_walk(&allocator, &maps, heap_world_run, &end, totals);
		allocator.type->close(allocator.state);
	}
	/* What the input changes must be a heap before. */
	if (is_honest && (err || !totals->counts[ALLOCATOR_USED] || totals->cut))
		abort();
	space_close(space);
	free(totals);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const make[])(void) = {musl_make, tcmalloc_make, mimalloc_make,
					     mimalloc3_make};
	unsigned int type = size ? data[0] % TYPES : 0;

	if (!memory)
		memory = heap_world_map(PARTS * ALIGNMENT, ALIGNMENT);
	for (int part = 0; part < PARTS; part++)
		madvise((void *)at((enum part)part, 0), ALIGNMENT, MADV_DONTNEED);
	make[type]();
	if (size > 1)
		input_put(type, data + 1, size - 1);
	heap_read(type, size <= 1);
	return 0;
}
