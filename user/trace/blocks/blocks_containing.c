/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the block that contains an address, which may be anywhere inside it. */
#include "trace/blocks/blocks.h"

static int block_holds(const struct block *block, uint64_t address)
{
	/* A block of 0 bytes still has an address, and its object is looked up by it. */
	return address - block->address < (block->bytes ? block->bytes : 1);
}

/*
 * Allocators align to 16 bytes, so a small block that contains the address has few possible start
 * addresses.
 */
static const struct block *block_near(const struct blocks *blocks, uint64_t address)
{
	uint64_t start = address & ~15ull;

	for (uint64_t back = 0; back < BLOCKS_NEAR && back < start; back += 16) {
		const struct block *block = blocks_find(blocks, start - back, 0);

		if (block && block_holds(block, address))
			return block;
	}
	return NULL;
}

const struct block *blocks_containing(const struct blocks *blocks, uint64_t address)
{
	const struct block *found = block_near(blocks, address), *block;
	size_t cursor = 0;

	if (found)
		return found;
	while ((block = blocks_next(blocks, &cursor))) {
		if (!block_holds(block, address))
			continue;
		if (!found || (block->domain == 0) > (found->domain == 0) ||
		    ((block->domain == 0) == (found->domain == 0) &&
		     block->address > found->address))
			found = block;
	}
	return found;
}
