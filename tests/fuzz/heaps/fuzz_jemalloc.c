/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of jemalloc's in this process, of which the input changes words: in the first table and
 * the sizes, in a block's head, an arena, the extents, the elements of their pages, and a thread's
 * cache. It is opened, or was opened before it lied, and walked. A small word becomes an address in
 * one of the parts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../unit/runtime/malloc/jemalloc_forgery.h"
#include "heap_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST 512u /* changes of one input */

struct change {
	uint8_t part, bytes;
	uint16_t offset;
	uint64_t word;
};

static uint64_t word_of(const struct jemalloc_forgery *forgery, uint64_t word)
{
	uint8_t *const bases[] = {forgery->block, forgery->heap, forgery->cache, forgery->data,
				  forgery->block + FORGED_TABLES};

	if (word >> 56 != 0xfa)
		return word;
	word &= ~(0xffull << 56);
	/* Bits from 48 on stay: an element's. */
	return ((uint64_t)(uintptr_t)bases[(word >> 40 & 0xff) % 5] + (word & 0xffffff)) |
	       (word & 0xffull << 48);
}

static void change_make(struct jemalloc_forgery *forgery, const struct change *change)
{
	unsigned int last = forgery->layout->levels - 1, bytes = 1u << change->bytes % 4;
	uint64_t heap = (uintptr_t)forgery->heap;
	const struct {
		uint8_t *memory;
		size_t bytes;
	} parts[] = {
		{forgery->data + FORGED_SIZES, 2048},
		{forged_entry(forgery, 0, heap) - 64, 128},
		{forged_entry(forgery, last - 1, heap) - 64, 128},
		{forged_entry(forgery, last, heap), 64 * forgery->layout->element_bytes},
		{forgery->block, 64},
		{forgery->block + FORGED_ARENA, 256},
		{forgery->block + FORGED_EXTENTS, 16 * JEMALLOC_EXTENT_BYTES},
		{forgery->cache, FORGED_CACHE},
	};
	unsigned int part = change->part % 8;
	uint64_t word = word_of(forgery, change->word);

	memcpy(parts[part].memory + change->offset % (parts[part].bytes - 8),
	       bytes == 8 ? &word : &change->word, bytes);
}

static void heap_walk(struct allocator *allocator, const struct process_maps *maps)
{
	struct allocator_totals *totals = malloc(sizeof(*totals));
	uint64_t end = 0;

	if (!totals)
		abort();
	for (unsigned int i = 0; i < 2; i++, end = 0)
		if (!allocator_walk(allocator, maps, heap_world_run, &end, totals) &&
		    totals->unused > totals->bytes[ALLOCATOR_METADATA])
			abort();
	free(totals);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct jemalloc_forgery *forgery;
	static struct space *space;
	struct allocator allocator = {.type = &jemalloc_allocator};
	struct change change;
	int opened = 0;

	if (!size)
		return 0;
	forgery = forgery ?: forged_new();
	if (!space && space_open(&space, getpid()))
		return 0;
	forged_make(forgery, *data % 4);
	if (*data & 4)
		opened = !jemalloc_allocator.open(&allocator.state, space, &forgery->maps,
						  allocator.version);
	data++;
	size--;
	for (unsigned int i = 0;
	     i < MOST && heap_world_change(&data, &size, &change, sizeof(change)); i++)
		change_make(forgery, &change);
	opened = opened || !jemalloc_allocator.open(&allocator.state, space, &forgery->maps,
						    allocator.version);
	if (opened) {
		heap_walk(&allocator, &forgery->maps);
		jemalloc_allocator.close(allocator.state);
	}
	return 0;
}
