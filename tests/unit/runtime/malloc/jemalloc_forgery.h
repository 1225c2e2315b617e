/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of jemalloc's in this process's own memory, of any layout: the data of a file with the
 * first table and the sizes, a block with the other tables, extents and an arena, pages, and a
 * thread's cache.
 */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/malloc/jemalloc.h"
#include "runtime/malloc/jemalloc_layout.h"

#define FORGED_DATA    (4u << 20)
#define FORGED_BLOCK   (4u << 20)
#define FORGED_HEAP    (1u << 20)
#define FORGED_CACHE   16384u
#define FORGED_SIZES   4096u  /* offset in the data */
#define FORGED_ROOT    8192u  /* offset in the data, at the page behind the sizes */
#define FORGED_ARENA   4096u  /* offset of an arena's heads in the block */
#define FORGED_EXTENTS 8192u  /* offset in the block */
#define FORGED_TABLES  65536u /* offset in the block */
#define FORGED_BIN     24u

struct jemalloc_forgery {
	const struct jemalloc_layout *layout;
	struct jemalloc_sizes sizes;
	uint8_t *data, *block, *heap, *cache;
	unsigned int extents;
	struct process_map entries[3];
	struct process_maps maps;
};

static inline void forged_put(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, 8);
}

/* 8, 16, 32, 48, 64, 80, 96, 112, 128, 160 and so on, four to a power of two. */
static inline void forged_sizes(struct jemalloc_sizes *sizes)
{
	uint64_t step = 16, size = 16;

	*sizes = (struct jemalloc_sizes){2, {8, 16}};
	while (size < 0x7000000000000000ull) {
		size += step;
		sizes->bytes[sizes->count++] = size;
		if (size >= 128 && !(size & (size - 1)))
			step = size / 4;
	}
}

/* Memory for a forgery, made once: its contents are those of the last forged_make(). */
static inline struct jemalloc_forgery *forged_new(void)
{
	struct jemalloc_forgery *forgery = calloc(1, sizeof(*forgery));
	size_t all = FORGED_BLOCK + FORGED_HEAP + FORGED_CACHE + (8u << 20);
	uint8_t *area = mmap(NULL, all, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!forgery || area == MAP_FAILED)
		abort();
	forgery->data = mmap(NULL, FORGED_DATA, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (forgery->data == MAP_FAILED)
		abort();
	forgery->block = (uint8_t *)(((uintptr_t)area + JEMALLOC_BLOCK_ALIGN - 1) &
				     ~(uintptr_t)(JEMALLOC_BLOCK_ALIGN - 1));
	forgery->heap = forgery->block + FORGED_BLOCK;
	forgery->cache = forgery->heap + FORGED_HEAP;
	forgery->entries[0] = (struct process_map){.start = (uintptr_t)forgery->data,
						   .end = (uintptr_t)forgery->data + 4096,
						   .inode = 7,
						   .readable = 1,
						   .writable = 1,
						   .path = "/forged"};
	forgery->entries[1] = (struct process_map){.start = (uintptr_t)forgery->data + 4096,
						   .end = (uintptr_t)forgery->data + FORGED_DATA,
						   .readable = 1,
						   .writable = 1,
						   .path = ""};
	forgery->entries[2] = (struct process_map){.start = (uintptr_t)forgery->block,
						   .end = (uintptr_t)area + all,
						   .readable = 1,
						   .writable = 1,
						   .path = ""};
	forgery->maps = (struct process_maps){forgery->entries, 3};
	return forgery;
}

/* Where a table of that level is; level 0 is the root. */
static inline uint8_t *forged_table(const struct jemalloc_forgery *forgery, unsigned int level)
{
	uint8_t *at = forgery->block + FORGED_TABLES;

	for (unsigned int i = 1; i < level; i++)
		at += jemalloc_table_bytes(forgery->layout, i);
	return level ? at : forgery->data + FORGED_ROOT;
}

static inline uint8_t *forged_entry(const struct jemalloc_forgery *forgery, unsigned int level,
				    uint64_t address)
{
	const struct jemalloc_layout *layout = forgery->layout;
	uint64_t index =
		address >> jemalloc_table_shift(layout, level) & ((1ull << layout->index_bits) - 1);

	return forged_table(forgery, level) +
	       index * (level == layout->levels - 1 ? layout->element_bytes : 8);
}

/* The structure of the n-th extent. */
static inline uint8_t *forged_at(const struct jemalloc_forgery *forgery, unsigned int number)
{
	return forgery->block + FORGED_EXTENTS + number * (size_t)JEMALLOC_EXTENT_BYTES;
}

static inline void forged_element(struct jemalloc_forgery *forgery, uint64_t page, uint64_t extent,
				  const struct jemalloc_extent *what)
{
	uint8_t *at = forged_entry(forgery, forgery->layout->levels - 1, page);
	uint64_t state = forgery->layout->minor == 3 ? (uint64_t)what->state << 2 : 0;

	for (unsigned int level = 0; level + 1 < forgery->layout->levels; level++)
		forged_put(forged_entry(forgery, level, page),
			   (uintptr_t)forged_table(forgery, level + 1));
	if (forgery->layout->element_bytes == 8) {
		forged_put(at, extent | (uint64_t)what->size_class << 48 | state | what->slab);
		return;
	}
	forged_put(at, extent);
	if (forgery->layout->minor == 3)
		forged_put(at + 8, (uint64_t)what->size_class << 5 | state | what->slab);
	else
		forged_put(at + 8, what->size_class | (uint64_t)what->slab << 32);
}

/* Adds an extent behind the last; of *what: bytes, address (0: the start), state and so on. */
static inline unsigned int forged_extent(struct jemalloc_forgery *forgery, uint64_t start,
					 struct jemalloc_extent what)
{
	const struct jemalloc_layout *layout = forgery->layout;
	uint8_t *at = forged_at(forgery, forgery->extents);

	forged_put(at, (uint64_t)what.slab << 12 | (uint64_t)what.state << layout->state_shift |
			       (uint64_t)what.size_class << layout->size_shift |
			       (uint64_t)what.free << layout->free_shift);
	forged_put(at + 8, what.address ?: start);
	forged_put(at + 16, what.bytes | 3);
	memcpy(at + 64, what.free_map, sizeof(what.free_map));
	for (uint64_t page = start; page < start + what.bytes; page += 4096)
		if (what.slab || page == start || page + 4096 == start + what.bytes)
			forged_element(forgery, page, (uintptr_t)at, &what);
	return forgery->extents++;
}

static inline unsigned int forged_class(const struct jemalloc_forgery *forgery, uint64_t bytes)
{
	unsigned int class = 0;

	while (forgery->sizes.bytes[class] != bytes)
		class ++;
	return class;
}

/* A thread's cache with these blocks of that size class, the only one of the arena. */
static inline void forged_cache(struct jemalloc_forgery *forgery, unsigned int class,
				const uint64_t *blocks, unsigned int count)
{
	int is_old = forgery->layout->minor == 2;
	uint8_t *cache = forgery->cache, *bins = cache + (is_old ? 32 : 264);
	uint8_t *descriptor = cache + (is_old ? 2048 : 16), *stack = cache + 8192;

	forged_put(forgery->block + FORGED_ARENA, (uintptr_t)cache);
	forged_put(forgery->block + FORGED_ARENA + 8, (uintptr_t)descriptor);
	forged_put(descriptor, (uintptr_t)descriptor);
	forged_put(descriptor + 8, (uintptr_t)descriptor);
	forged_put(descriptor + 16, (uintptr_t)bins);
	if (is_old)
		forged_put(descriptor + 24, (uintptr_t)cache + 4096); /* large: none in use */
	else
		forged_put(bins - 8, (uintptr_t)cache);
	for (unsigned int i = 0; i <= class; i++) {
		uint8_t *bin = bins + i * FORGED_BIN;
		unsigned int n = i == class ? count : 0;
		uint64_t empty = (uintptr_t)stack + 1024;

		if (is_old) {
			forged_put(bin, (uint64_t)n << 32);
			forged_put(bin + 16, empty);
		} else {
			forged_put(bin, empty - n * 8);
			forged_put(bin + 16, (empty & 0xffff) << 32);
		}
	}
	memcpy(stack + 1024 - count * 8, blocks, count * sizeof(*blocks));
}

/* An honest heap: a slab of each of two sizes, large blocks, free pages of each kind. */
static inline void forged_make(struct jemalloc_forgery *forgery, size_t layout)
{
	uint64_t heap = (uintptr_t)forgery->heap, block = (uintptr_t)forgery->block;

	madvise(forgery->data, FORGED_DATA, MADV_DONTNEED);
	madvise(forgery->block, FORGED_BLOCK + FORGED_HEAP + FORGED_CACHE, MADV_DONTNEED);
	forgery->layout = jemalloc_layout_at(layout);
	forgery->extents = 0;
	forged_sizes(&forgery->sizes);
	memcpy(forgery->data + FORGED_SIZES, forgery->sizes.bytes,
	       forgery->sizes.count * sizeof(forgery->sizes.bytes[0]));
	forged_put(forgery->block, FORGED_BLOCK);
	forged_put(forgery->block + 16, 0xfff);
	forged_put(forgery->block + 24, block + FORGED_BLOCK - 4096);
	forged_put(forgery->block + 32, 4096);

	unsigned int class = forged_class(forgery, 64), large = forged_class(forgery, 16384);
	forged_extent(forgery, heap,
		      (struct jemalloc_extent){.bytes = 4096,
					       .slab = true,
					       .size_class = class,
					       .free = 6,
					       .free_map = {0xf000000000000003, 0xdeadbeef}});
	forged_extent(forgery, heap + 4096,
		      (struct jemalloc_extent){
			      .bytes = 5 * 4096, .slab = true, .size_class = class + 1, .free = 0});
	forged_extent(forgery, heap + 6 * 4096,
		      (struct jemalloc_extent){.bytes = 5 * 4096,
					       .address = heap + 6 * 4096 + 0x140,
					       .size_class = large});
	forged_extent(forgery, heap + 11 * 4096,
		      (struct jemalloc_extent){.bytes = 2 * 4096, .state = JEMALLOC_DIRTY});
	forged_extent(forgery, heap + 13 * 4096,
		      (struct jemalloc_extent){.bytes = 4096, .state = JEMALLOC_MUZZY});
	forged_extent(forgery, heap + 20 * 4096,
		      (struct jemalloc_extent){.bytes = 50 * 4096, .state = JEMALLOC_RETAINED});
	/* The last two are free, or of no slab. */
	forged_cache(forgery, class,
		     (const uint64_t[]){heap + 128, heap + 256, heap + 64, heap + 4096 * 12}, 4);
}
