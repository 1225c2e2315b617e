/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of an image: pymalloc's, exactly, and glibc's, by the header in front of each. Pure.
 */
#ifndef TRACER_GRAPH_BLOCKS_H
#define TRACER_GRAPH_BLOCKS_H

#include "graph/image.h"

#define BLOCKS_PER_POOL 1024u /* a block is at least 16 bytes, a pool at most 16 KiB */

struct blocks_pool {
	uint64_t address; /* of its first block */
	uint32_t block_bytes, count;
	uint64_t live[BLOCKS_PER_POOL / 64]; /* by block number */
};

struct blocks {
	const struct image *image;
	struct blocks_pool *pools; /* by address */
	size_t count, capacity;
	struct heap_walk walk;
};

/* 0; as heap_walk_source(). The caller frees with blocks_free(), also after a failure. */
int blocks_read(struct blocks *blocks, const struct image *image);
void blocks_free(struct blocks *blocks);

/* The pool whose memory covers address; NULL: none. */
const struct blocks_pool *blocks_pool(const struct blocks *blocks, uint64_t address);
/*
 * The usable bytes of the live block that begins at address: of a pool, or of glibc's malloc, whose
 * header must be plausible. 0: there is none.
 */
uint64_t blocks_bytes(const struct blocks *blocks, uint64_t address);
/*
 * The bytes that CPython's debug hooks have put in front of the request in a block of bytes at
 * address: 16, or 0 without hooks.
 */
uint32_t blocks_hooks(const struct image *image, uint64_t address, uint64_t bytes);

#endif
