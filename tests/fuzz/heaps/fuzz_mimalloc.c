/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of mimalloc's whose structures the input changes: it is a list of {part, offset, word}
 * that are written over those of an honest heap. A small word becomes an address in one of the
 * parts, so that lists lead somewhere.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../unit/runtime/cpython/mimalloc_forgery.h"
#include "heap_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST 512u /* changes of one input */

static const uint32_t versions[] = {0x030d, 0x030e, 0x030f};

struct change {
	uint8_t part, bytes;
	uint16_t offset;
	uint32_t more; /* of the offset, in the segment */
	uint64_t word;
};

static int piece_see(const struct heap_pool *pool, void *context)
{
	uint64_t *blocks = context;

	if (pool->end < pool->start || pool->count > 1024)
		abort();
	for (uint32_t i = 0; pool->block_bytes && i < pool->count; i++)
		*blocks += (unsigned int)heap_pool_live(pool, i);
	if (pool->block_bytes && pool->content_bytes) {
		volatile uint8_t last = pool->content[pool->content_bytes - 1];

		(void)last;
	}
	return 0;
}

static uint64_t word_of(uint64_t word)
{
	const uint64_t bases[] = {FORGED_INTERP, FORGED_THREAD, FORGED_SEGMENT, 0};

	return word >> 62 == 3 ? word : bases[word >> 62] + (word & 0xffffff);
}

static void change_make(struct mimalloc_forgery *forgery, const struct change *change)
{
	struct {
		uint8_t *memory;
		size_t bytes;
	} parts[] = {{forgery->interp, sizeof(forgery->interp)},
		     {forgery->thread, sizeof(forgery->thread)},
		     {forgery->segment, forgery->at->segment_bytes},
		     {forgery->segment, sizeof(forgery->segment)}};
	unsigned int part = change->part % 4, bytes = 1u << change->bytes % 4;
	size_t at = (change->offset + (part == 3 ? change->more : 0)) % (parts[part].bytes - 8);

	forged_put(parts[part].memory + at, bytes == 8 ? word_of(change->word) : change->word,
		   bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mimalloc_forgery *forgery;
	struct heap_walk walk = {0};
	uint64_t blocks = 0;
	struct change change;

	if (!size)
		return 0;
	forgery = forged_new(versions[*data % 3]);
	forged_page(forgery, 1, 48, 1000);
	forged_page(forgery, 2, 8, 4000);
	forged_page(forgery, 3, 4096, 15);
	data++;
	size--;
	for (unsigned int i = 0;
	     i < MOST && heap_world_change(&data, &size, &change, sizeof(change)); i++)
		change_make(forgery, &change);
	if (!forged_walk(forgery, piece_see, &blocks, &walk) && blocks != walk.blocks)
		abort();
	free(forgery);
	return 0;
}
