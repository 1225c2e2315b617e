/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads pymalloc's heap from outside while the target runs. Every arena, pool and free list is
 * checked against its bounds; a pool with wild pointers or cycles is given up and counted.
 */
#ifndef TRACER_PYTHON_HEAP_H
#define TRACER_PYTHON_HEAP_H

#include <stdint.h>

#include "python/heap_symbols.h"
#include "python/runtime.h"

struct heap_walk {
	/* pools that changed or were inconsistent in three tries */
	uint64_t arenas, pools, pools_unreadable;
	/*
	 * arena objects with invalid addresses; their pools count as unreadable and are not visited
	 */
	uint64_t arenas_lost;
	uint64_t blocks, bytes; /* live in pymalloc; bytes by size class */
	uint64_t raw_blocks;    /* pymalloc's count of blocks that it passed to the raw allocator */
	uint64_t elapsed_ns;
};

/*
 * Tests whether this runtime's heap can be read, by the first pools of a running process. 0, also
 * if it has no heap yet; -ENOTSUP (error_set); -errno.
 */
int heap_find(const struct python_runtime *runtime);

/* A pool in use, borrowed for the call. */
struct heap_pool {
	uint64_t arena;   /* address of its arena; an arena's pools come in order of address */
	uint64_t address; /* of its first block */
	/* the size of its class; 0: unreadable, and count is in 16-byte steps */
	uint32_t block_bytes;
	uint32_t count;         /* blocks handed out at least once, including free ones */
	const uint8_t *free;    /* by block number; 1: free */
	const uint8_t *content; /* bytes of the blocks; NULL: unreadable */
};

/* Return non-zero to stop. */
typedef int (*heap_pool_fn)(const struct heap_pool *pool, void *context);

/*
 * Reads the heaps of all interpreters. 0; -ENOTSUP: this runtime's heap cannot be found
 * (heap_place.h; error_set); -ENODATA: it is empty, or pymalloc is not in use; -EAGAIN: no
 * interpreter has started yet; -ESRCH; -EFAULT.
 */
int heap_read_pools(const struct python_runtime *runtime, heap_pool_fn visit, void *context,
		    struct heap_walk *out);

#define HEAP_INTERPRETERS 1024u /* limit per process, also of heads */

/* The heads of the heaps of all interpreters. 0; as heap_read_pools(). */
int heap_heads(const struct python_runtime *runtime, struct heap_head heads[HEAP_INTERPRETERS],
	       uint32_t *count);

/*
 * heap_read_pools() for heaps in a copy of memory. 0; -ENODATA, -ENOTSUP (error_set); -EFAULT;
 * -ENOMEM; errors of read().
 */
int heap_walk_source(const struct memory_reader *source, const struct heap_offsets *offsets,
		     const struct heap_head *heads, uint32_t count, heap_pool_fn visit,
		     void *context, struct heap_walk *out);

/*
 * Reads the pool at that address (not that of its first block), as heap_read_pools() does, and
 * calls visit() once. A pool that is not in use, or not mapped any more, has no blocks (count 0).
 * 0; -ESRCH; -EPERM; the result of visit().
 */
int heap_read_pool(const struct python_runtime *runtime, uint64_t address, heap_pool_fn visit,
		   void *context);

/*
 * A live block: its address, the size of its class and a copy of its bytes, borrowed for the call.
 * Return non-zero to stop.
 */
typedef int (*heap_block_fn)(uint64_t address, uint32_t bytes, const uint8_t *content,
			     void *context);

/* The same, block by block; visit may be NULL. */
int heap_read(const struct python_runtime *runtime, heap_block_fn visit, void *context,
	      struct heap_walk *out);

#endif
