/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. An arena has two heads of circular lists, next to each other: of its threads' caches, and
 * of descriptors of them, {next, previous, bins…}, each of which is in its cache. So two words with
 * a small distance, the second of which points to a descriptor that points back to its cache, are
 * such heads, wherever an arena has them: that differs with each option that jemalloc is built
 * with. A bin is a stack of blocks of one size:
 *
 * 	5.2	{int32 low water, blocks; uint64 requests; end of the stack}
 * 	5.3	{top of the stack; uint64 requests; uint16 low water, full, empty}
 *
 * of which the last three are low bits of addresses.
 */
#include "runtime/malloc/jemalloc_caches.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "util/array.h"
#include "util/sorted.h"
#include "util/word.h"

#define PAGE          JEMALLOC_PAGE
#define TRIES         3
#define ARENA_BYTES   (1u << 20) /* from the start of its first block; it takes 200 KiB at most */
#define CACHE_BYTES   16384u
#define CACHES_MAX    65536u     /* in all arenas */
#define BLOCKS_MAX    (1u << 24) /* in all caches */
#define STACK_BLOCKS  8192u
#define BIN_BYTES     24u
#define DESCRIPTOR_53 16u /* offset in a cache */
#define PIECE_PAGES   16u

struct caches_read {
	struct jemalloc_caches *caches;
	const struct jemalloc_tree *tree;
	struct malloc_reader *reader;
	struct space *space;
	int fresh;
	uint64_t stack[STACK_BLOCKS];
};

/* {next, previous, bins, bins of large blocks (up to 5.2)}. */
struct descriptor {
	uint64_t next, previous, bins, large;
};

/* A block that is no longer allocated when its slab is read is left out then. */
static int stack_add(struct caches_read *read, uint64_t at, uint64_t count)
{
	struct jemalloc_caches *caches = read->caches;
	int err = reader_read(read->reader, at, read->stack, count * 8, read->fresh);

	for (uint64_t i = 0; i < count && !err; i++) {
		if (!read->stack[i])
			continue;
		if (caches->block_count == BLOCKS_MAX)
			return -EAGAIN;
		err = ARRAY_GROW(caches->blocks, caches->capacity, caches->block_count);
		if (err)
			return -ENOMEM;
		caches->blocks[caches->block_count++] = (struct jemalloc_cached){read->stack[i]};
	}
	return err;
}

/* 1: and the stack was added; 0: the bin is not in use, nor are those behind it; -errno. */
static int bin_read(struct caches_read *read, uint64_t at)
{
	uint8_t bin[BIN_BYTES];
	uint64_t stack, count;
	int err = reader_read(read->reader, at, bin, sizeof(bin), read->fresh);

	if (err)
		return err;
	if (read->tree->layout->minor == 2) {
		stack = u64_at(bin + 16);
		count = u32_at(bin + 4);
		stack -= count * 8;
	} else {
		stack = u64_at(bin);
		count = (uint16_t)((u32_at(bin + 20) & 0xffff) - stack) / 8;
	}
	if (!u64_at(bin + (read->tree->layout->minor == 2 ? 16 : 0)))
		return 0;
	if (stack % 8 || count >= STACK_BLOCKS)
		return -EAGAIN;
	return stack_add(read, stack, count) ?: 1;
}

static int bins_read(struct caches_read *read, uint64_t at, unsigned int most)
{
	int got = 1;

	for (unsigned int i = 0; i < most && got > 0; i++)
		got = bin_read(read, at + i * BIN_BYTES);
	return got < 0 ? got : 0;
}

static int cache_read(struct caches_read *read, const struct descriptor *descriptor)
{
	unsigned int sizes = read->tree->sizes.count;
	unsigned int small = jemalloc_sizes_small(&read->tree->sizes);

	if (read->tree->layout->minor == 3)
		return bins_read(read, descriptor->bins, sizes);
	return bins_read(read, descriptor->bins, small)
		       ?: bins_read(read, descriptor->large, sizes - small);
}

/* All caches of an arena. -EAGAIN: the list is inconsistent. */
static int list_read(struct caches_read *read, uint64_t head)
{
	struct descriptor descriptor;
	uint64_t first, at, previous;
	int err = reader_read(read->reader, head, &first, sizeof(first), read->fresh);

	if (err || !first)
		return err;
	previous = 0;
	at = first;
	do {
		err = reader_read(read->reader, at, &descriptor, sizeof(descriptor), read->fresh);
		if (!err && (read->caches->count == CACHES_MAX || !descriptor.next ||
			     (previous && descriptor.previous != previous)))
			err = -EAGAIN;
		err = err ?: cache_read(read, &descriptor);
		if (err)
			return err;
		read->caches->count++;
		previous = at;
		at = descriptor.next;
	} while (at != first);
	return 0;
}

static int arena_read(struct caches_read *read, uint64_t head)
{
	struct jemalloc_caches *caches = read->caches;
	size_t blocks = caches->block_count;
	uint64_t count = caches->count;
	int err = -EAGAIN;

	for (int i = 0; i < TRIES && err && !space_is_fatal(err); i++) {
		caches->block_count = blocks;
		caches->count = count;
		read->fresh = i > 0;
		err = list_read(read, head);
	}
	read->fresh = 0;
	/* What was found of a list that stays inconsistent is kept. */
	caches->cut += err && !space_is_fatal(err);
	return space_is_fatal(err) ? err : 0;
}

/* Are these two words heads of lists? 1; 0; -errno. */
static int heads_look(struct caches_read *read, uint64_t cache, uint64_t at)
{
	struct descriptor descriptor;
	uint64_t back;
	int err;

	if (cache % 8 || cache >> JEMALLOC_ADDRESS_BITS || at <= cache || at - cache >= CACHE_BYTES)
		return 0;
	if (read->tree->layout->minor == 3 && at - cache != DESCRIPTOR_53)
		return 0;
	err = reader_read(read->reader, at, &descriptor, sizeof(descriptor), 0);
	if (err)
		return space_is_fatal(err) ? err : 0;
	if (!descriptor.next || !descriptor.previous)
		return 0;
	if (read->tree->layout->minor == 2)
		return descriptor.bins > cache && descriptor.bins < at && descriptor.large > at &&
		       descriptor.large - cache < CACHE_BYTES;
	/* The bins are behind a pointer to the cache. */
	err = reader_u64(read->reader, descriptor.bins - 8, &back);
	return err ? space_is_fatal(err) ? err : 0 : back == cache;
}

static int piece_search(struct caches_read *read, uint64_t address, const uint8_t *bytes,
			size_t size)
{
	int got = 0;

	for (size_t i = 0; i + 16 <= size && got >= 0; i += 8) {
		got = heads_look(read, u64_at(bytes + i), u64_at(bytes + i + 8));
		if (got > 0)
			got = arena_read(read, address + i + 8);
	}
	return got;
}

/* Searches an arena's first block for its heads, in its resident pages. */
static int block_search(struct caches_read *read, const struct jemalloc_block *block)
{
	uint64_t end = lesser(block->used_end, block->start + ARENA_BYTES);
	uint8_t *bytes = malloc(PIECE_PAGES * PAGE + 8), pages[PIECE_PAGES];
	int err = bytes ? 0 : -ENOMEM;

	for (uint64_t at = block->start; at < end && !err; at += PIECE_PAGES * PAGE) {
		err = space_pages(read->space, at, PIECE_PAGES, pages);
		for (size_t first = 0, last; !err && first < PIECE_PAGES; first = last + 1) {
			for (last = first; last < PIECE_PAGES && pages[last] == SPACE_MEMORY;)
				last++;
			if (last == first)
				continue;
			size_t size = (last - first) * PAGE;
			/* The second head may be on the next piece's first page. */
			err = space_read(read->space, at + first * PAGE, bytes, size);
			memset(bytes + size, 0, 8);
			if (!err && last == PIECE_PAGES && at + PIECE_PAGES * PAGE < end)
				space_read(read->space, at + PIECE_PAGES * PAGE, bytes + size, 8);
			err = err ?: piece_search(read, at + first * PAGE, bytes, size + 8);
		}
		err = err && !space_is_fatal(err) ? 0 : err;
	}
	free(bytes);
	return err;
}

int jemalloc_caches_read(struct jemalloc_caches *caches, const struct jemalloc_tree *tree,
			 struct malloc_reader *reader, struct space *space,
			 const struct jemalloc_blocks *blocks)
{
	struct caches_read *read = calloc(1, sizeof(*read));
	int err = read ? 0 : -ENOMEM;

	if (read) {
		read->caches = caches;
		read->tree = tree;
		read->reader = reader;
		read->space = space;
	}
	for (size_t i = 0; i < blocks->count && !err; i++)
		if (blocks->items[i].first)
			err = block_search(read, &blocks->items[i]);
	free(read);
	return err;
}

void jemalloc_caches_sort(struct jemalloc_caches *caches)
{
	size_t kept = 0;

	SORT_BY(caches->blocks, caches->block_count, address);
	for (size_t i = 0; i < caches->block_count; i++)
		if (!kept || caches->blocks[kept - 1].address != caches->blocks[i].address)
			caches->blocks[kept++] = caches->blocks[i];
	caches->block_count = kept;
}
