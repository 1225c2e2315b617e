/* SPDX-License-Identifier: Apache-2.0 */
/* A walk of heaps in progress: what the readers of both allocators have in common. */
#pragma once

#include <errno.h>

#include "proc/memory.h"
#include "runtime/cpython/heap.h"
#include "util/id_map.h"
#include "util/interrupt.h"
#include "util/word.h"

struct heap_walker {
	const struct memory_reader *source;
	const struct python_offsets *python;
	const struct heap_offsets *offsets; /* of *python */
	heap_pool_fn visit;
	void *context;
	struct heap_walk *walk;
	uint8_t *arena; /* arena_bytes; pymalloc's */
	uint64_t arena_address;
	struct id_map arenas; /* pymalloc's that were read, by address (heap.c) */
	int stop;             /* the result of visit() */
	/*
	 * Bytes that may still be read, and why no more are, 0 or -errno. A heap that lies may
	 * name the same memory, or memory that is not there, without end.
	 */
	uint64_t left;
	int given_up;
};

#define HEAP_READ_COST   64u    /* of each read, in bytes */
#define HEAP_ASKED_BYTES 65536u /* before a larger read we look whether we are asked to end */

/* -ESRCH also once the walk is given up: it ends as if the process had ended. */
static inline int heap_read_bytes(struct heap_walker *walker, uint64_t address, void *out,
				  size_t bytes)
{
	if (walker->left < bytes + HEAP_READ_COST && !walker->given_up)
		walker->given_up = -ENOTSUP;
	if (!walker->given_up && bytes > HEAP_ASKED_BYTES && interrupt_pending())
		walker->given_up = -EINTR;
	if (walker->given_up)
		return -ESRCH;
	walker->left -= bytes + HEAP_READ_COST;
	return walker->source->read(walker->source->context, address, out, bytes);
}

/*
 * Without the GIL: reads mimalloc's segments of the interpreters whose states these heads name
 * (heap.h). Pages are given in pieces of at most HEAP_PIECE_BLOCKS blocks and, unless it is
 * one block, HEAP_PIECE_BYTES bytes. 0; -ENODATA, -ENOTSUP (error_set); -ENOMEM; errors of the
 * source.
 */
int heap_segments_read(struct heap_walker *walker, const struct heap_head *heads, uint32_t count);

#define HEAP_PIECE_BLOCKS 1024u
#define HEAP_PIECE_BYTES  16384u
#define HEAP_THREAD_BYTES 65536u /* limit of the heaps in a thread's state */
