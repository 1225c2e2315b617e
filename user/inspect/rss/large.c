/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/large.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/malloc/reader.h"
#include "util/array.h"
#include "util/hash.h"
#include "util/sorted.h"

#define FILTER_BITS  (1u << 20)
#define PAGE_SHIFT   12
#define HEAD_BYTES   16u /* of the garbage collector, of the pointers before it, of debug hooks */
#define HEADS_MAX    3u
#define SEARCH_PIECE 65536u
#define SEARCH_MAX   (64ull << 20) /* searched of one block */

int memory_large_add(struct memory_large *large, uint64_t address, uint64_t bytes, int mapped)
{
	int err = ARRAY_GROW(large->blocks, large->capacity, large->count);

	if (!err)
		large->blocks[large->count++] = (struct memory_block){
			.address = address, .bytes = bytes, .mapped = mapped != 0};
	return err;
}

static uint64_t filter_bit(uint64_t address)
{
	return hash_u64(address >> PAGE_SHIFT) % FILTER_BITS;
}

static void filter_put(struct memory_large *large, uint64_t address)
{
	large->pages[filter_bit(address) / 64] |= 1ull << filter_bit(address) % 64;
}

int memory_large_sort(struct memory_large *large)
{
	large->pages = calloc(FILTER_BITS / 64, sizeof(*large->pages));
	if (!large->pages)
		return -ENOMEM;
	SORT_BY(large->blocks, large->count, address);
	for (size_t i = 0; i < large->count; i++) {
		filter_put(large, large->blocks[i].address);
		filter_put(large, large->blocks[i].address + HEADS_MAX * HEAD_BYTES);
	}
	return 0;
}

/* The last block that begins at or below an address; NULL: none. */
static struct memory_block *block_below(const struct memory_large *large, uint64_t address)
{
	size_t above = SORTED_ABOVE(large->blocks, large->count, address, address);

	return above ? &large->blocks[above - 1] : NULL;
}

const struct memory_block *memory_large_find(const struct memory_large *large, uint64_t address)
{
	const struct memory_block *block = block_below(large, address);

	return block && block->address == address ? block : NULL;
}

static int word_look(struct memory_large *large, uint64_t word)
{
	if (word % 8 || !word || word >> 47 ||
	    !(large->pages[filter_bit(word) / 64] >> filter_bit(word) % 64 & 1))
		return 0;
	struct memory_block *block = block_below(large, word);
	if (!block || block->python || (word - block->address) % HEAD_BYTES ||
	    word - block->address > HEADS_MAX * HEAD_BYTES)
		return 0;
	int err = ARRAY_GROW(large->queue, large->queue_capacity, large->queued);
	if (err)
		return err;
	block->python = 1;
	large->queue[large->queued++] = (uint32_t)(block - large->blocks);
	return 0;
}

int memory_large_search(struct memory_large *large, const uint8_t *content, size_t bytes)
{
	int err = 0;

	for (size_t at = 0; large->count && at + 8 <= bytes && !err; at += 8) {
		uint64_t word;

		memcpy(&word, content + at, sizeof(word));
		err = word_look(large, word);
	}
	return err;
}

int memory_large_follow(struct memory_large *large, struct malloc_reader *reader)
{
	uint8_t *piece = malloc(SEARCH_PIECE);
	int err = piece ? 0 : -ENOMEM;

	while (large->queued && !err) {
		struct memory_block block = large->blocks[large->queue[--large->queued]];
		uint64_t bytes = block.bytes < SEARCH_MAX ? block.bytes : SEARCH_MAX;

		for (uint64_t at = 0; at < bytes && !err; at += SEARCH_PIECE) {
			size_t size = bytes - at < SEARCH_PIECE ? bytes - at : SEARCH_PIECE;

			err = reader_read(reader, block.address + at, piece, size, 0);
			if (!err)
				err = memory_large_search(large, piece, size);
			else if (err == -EFAULT || err == -ENODATA)
				err = 0; /* freed meanwhile, or swapped out */
		}
	}
	free(piece);
	return err;
}

void memory_large_free(struct memory_large *large)
{
	free(large->blocks);
	free(large->pages);
	free(large->queue);
	*large = (struct memory_large){0};
}
