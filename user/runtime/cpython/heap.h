/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the interpreter's heap from outside while the target runs: pymalloc's arenas and pools,
 * without the GIL mimalloc's segments and pages. Every arena, pool and free list is checked against
 * its bounds; a pool with wild pointers or cycles is given up and counted.
 */
#pragma once

#include <stdint.h>

#include "runtime/cpython/runtime.h"

/* Addresses of a heap's variables: in the target, or vaddrs of the file where noted. */
struct heap_head {
	uint64_t arenas, maxarenas; /* without the GIL arenas is an interpreter's state */
	uint64_t raw_blocks;        /* count of blocks passed to the raw allocator; 0: not known */
	int raw_is_total;           /* 3.8: the count includes pymalloc's blocks */
};

struct heap_walk {
	/* pools that changed or were inconsistent in three tries */
	uint64_t arenas, pools, pools_unreadable;
	/*
	 * arena objects with invalid addresses; their pools count as unreadable and are not visited
	 */
	uint64_t arenas_lost;
	uint64_t blocks, bytes; /* live in pymalloc or mimalloc; bytes by size class */
	/* of these, what is freed as soon as no other thread reads it any more (QSBR) */
	uint64_t waiting_blocks, waiting_bytes;
	int is_mimalloc;     /* 1: without the GIL; pools are pieces of its pages */
	uint64_t raw_blocks; /* pymalloc's count of blocks that it passed to the raw allocator */
	uint64_t elapsed_ns;
};

/*
 * Tests whether this runtime's heap can be read, by the first pools of a running process. 0, also
 * if it has no heap yet; -ENOTSUP (error_set); -errno.
 */
int heap_find(const struct python_runtime *runtime);

enum heap_block {
	HEAP_BLOCK_LIVE,
	HEAP_BLOCK_FREE,
	HEAP_BLOCK_WAITING, /* live, until no other thread reads it any more (QSBR) */
};

/* A pool in use, or a piece of one of mimalloc's pages, borrowed for the call. */
struct heap_pool {
	uint64_t arena; /* address of its arena or segment, whose pools come in order of address */
	uint64_t arena_bytes, arena_head; /* size of that; bytes at its start that hold no pool */
	uint64_t start, end;              /* of its memory, with what is in front of its blocks */
	uint64_t address;                 /* of its first block */
	/* the size of its class; 0: unreadable, and count is in 16-byte steps */
	uint64_t block_bytes;
	uint32_t count;         /* blocks handed out at least once, including free ones */
	const uint8_t *state;   /* enum heap_block, by block number */
	const uint8_t *content; /* bytes of the blocks; NULL: unreadable */
	/* of them; less than count * block_bytes: the rest of its one block was not read */
	uint64_t content_bytes;
};

static inline int heap_pool_live(const struct heap_pool *pool, uint32_t block)
{
	return pool->state[block] != HEAP_BLOCK_FREE;
}

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
int heap_walk_source(const struct memory_reader *source, const struct python_offsets *offsets,
		     const struct heap_head *heads, uint32_t count, heap_pool_fn visit,
		     void *context, struct heap_walk *out);

/*
 * Reads the pool at that address (not that of its first block), as heap_read_pools() does, and
 * calls visit() once. A pool that is not in use, or not mapped any more, has no blocks (count 0).
 * 0; -ESRCH; -EPERM; the result of visit(); -ENOTSUP: without the GIL.
 */
int heap_read_pool(const struct python_runtime *runtime, uint64_t address, heap_pool_fn visit,
		   void *context);

/*
 * A live block: its address, the size of its class and a copy of its bytes, borrowed for the call;
 * of a block of more than HEAP_CONTENT bytes those at its start. Return non-zero to stop.
 */
#define HEAP_CONTENT 4096u
typedef int (*heap_block_fn)(uint64_t address, uint64_t bytes, const uint8_t *content,
			     void *context);

/* The same, block by block; visit may be NULL. */
int heap_read(const struct python_runtime *runtime, heap_block_fn visit, void *context,
	      struct heap_walk *out);
