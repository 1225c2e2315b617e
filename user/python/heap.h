/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pymalloc's heap, read from outside while the target runs: every arena, pool and free list is
 * checked against its own bounds (wild pointers and cycles end a pool's reading and are counted).
 */
#ifndef TRACER_PYTHON_HEAP_H
#define TRACER_PYTHON_HEAP_H

#include <stdint.h>

#include "python/runtime.h"

struct heap_reading {
	/* pools that changed or were inconsistent in three tries */
	uint64_t arenas, pools, pools_unreadable;
	uint64_t
		/*
		 * nobody knows where their pools are: those count as unreadable, and are not
		 * visited
		 */
		arenas_lost;
	uint64_t blocks, bytes; /* live in pymalloc; bytes by size class */
	uint64_t raw_blocks;    /* pymalloc's count of blocks it passed on to the raw allocator */
	uint64_t elapsed_ns;
};

/*
 * Can this runtime's heap be read? In a process that runs its first pools show it. 0, and also
 * where it has none yet; -ENOTSUP, error_set() says why; -errno.
 */
int heap_find(const struct python_runtime *runtime);

/* A pool in use, borrowed for the call. */
struct heap_pool {
	uint64_t address; /* of its first block */
	/* the size of its class; 0: unreadable, count is then of 16-byte steps */
	uint32_t block_bytes;
	uint32_t count;         /* blocks handed out at least once, the free ones among them */
	const uint8_t *free;    /* by number: 1, the block is free */
	const uint8_t *content; /* of the blocks; NULL: unreadable */
};

/* Return non-zero to stop. */
typedef int (*heap_pool_fn)(const struct heap_pool *pool, void *context);

/*
 * The heaps of all interpreters. 0; -ENOTSUP when this runtime's heap cannot be found
 * (heap_place.h; error_set says so); -ENODATA it is empty, or pymalloc is not in use; -EAGAIN no
 * interpreter has been started yet; -ESRCH; -EFAULT.
 */
int heap_read_pools(const struct python_runtime *runtime, heap_pool_fn visit, void *context,
		    struct heap_reading *out);

/*
 * A live block: its address, the size of its class and a copy of its bytes, borrowed for the call.
 * Return non-zero to stop.
 */
typedef int (*heap_block_fn)(uint64_t address, uint32_t bytes, const uint8_t *content,
			     void *context);

/* The same, block by block; visit may be NULL. */
int heap_read(const struct python_runtime *runtime, heap_block_fn visit, void *context,
	      struct heap_reading *out);

#endif
