/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of mimalloc's in a copy of memory: an interpreter, one thread, one segment. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/heap.h"

#define FORGED_INTERP  0x10000000ull
#define FORGED_THREAD  0x11000000ull
#define FORGED_SEGMENT 0x40000000ull
#define FORGED_SLICE   65536u
#define FORGED_SECRET  0x5a5a1234567800ull

struct mimalloc_forgery {
	const struct python_offsets *python;
	const struct free_threaded_offsets *at;
	uint8_t interp[1 << 17], thread[1 << 15];
	uint8_t segment[16 * FORGED_SLICE]; /* its beginning */
};

static inline void forged_put(uint8_t *at, uint64_t value, size_t bytes)
{
	memcpy(at, &value, bytes);
}

static inline int forged_read(void *context, uint64_t address, void *out, size_t bytes)
{
	struct mimalloc_forgery *forgery = context;
	const struct {
		uint64_t start, bytes;
		const uint8_t *memory;
	} parts[] = {{FORGED_INTERP, sizeof(forgery->interp), forgery->interp},
		     {FORGED_THREAD, sizeof(forgery->thread), forgery->thread},
		     {FORGED_SEGMENT, sizeof(forgery->segment), forgery->segment}};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (address - parts[i].start < parts[i].bytes &&
		    bytes <= parts[i].bytes - (address - parts[i].start)) {
			memcpy(out, parts[i].memory + (address - parts[i].start), bytes);
			return 0;
		}
	return -EFAULT;
}

/* The description of the page, or rest of one, that begins with that slice. */
static inline uint8_t *forged_slice(struct mimalloc_forgery *forgery, uint32_t slice)
{
	return forgery->segment + forgery->at->segment_slices +
	       (size_t)slice * forgery->at->page_bytes;
}

/* Of a page of one slice with blocks of that size. */
static inline uint64_t forged_block(uint32_t slice, uint32_t block_bytes, uint32_t number)
{
	uint64_t first = block_bytes <= 64    ? 3ull * block_bytes
			 : block_bytes <= 512 ? block_bytes
					      : 0;

	return FORGED_SEGMENT + (uint64_t)slice * FORGED_SLICE + first +
	       (uint64_t)number * block_bytes;
}

static inline uint8_t *forged_at(struct mimalloc_forgery *forgery, uint64_t address)
{
	return forgery->segment + (address - FORGED_SEGMENT);
}

/* A page of one slice without free blocks. */
static inline void forged_page(struct mimalloc_forgery *forgery, uint32_t slice,
			       uint32_t block_bytes, uint32_t capacity)
{
	const struct free_threaded_offsets *at = forgery->at;
	uint8_t *page = forged_slice(forgery, slice);
	uint64_t room = forged_block(slice + 1, 1024, 0) - forged_block(slice, block_bytes, 0);

	forged_put(page + at->page_slices, 1, 4);
	forged_put(page + at->page_capacity, capacity, 2);
	forged_put(page + at->page_reserved, room / block_bytes, 2);
	forged_put(page + at->page_used, capacity, 4);
	forged_put(page + at->page_block, block_bytes, 4);
}

/* The heaps of the thread begin at the table's offset and some bytes more. */
static inline void forged_thread(struct mimalloc_forgery *forgery, uint32_t shift)
{
	const struct free_threaded_offsets *at = forgery->at;
	uint64_t heaps = at->tstate_heaps + shift, data = heaps + 4 * at->heap_bytes;

	memset(forgery->thread, 0, sizeof(forgery->thread));
	for (unsigned int i = 0; i < 4; i++)
		forged_put(forgery->thread + heaps + i * at->heap_bytes, FORGED_THREAD + data, 8);
	/* The second queue of the third heap leads to the segment's first page. */
	forged_put(forgery->thread + heaps + 2 * at->heap_bytes + at->heap_queues + at->queue_bytes,
		   FORGED_SEGMENT + at->segment_slices + at->page_bytes, 8);
	forged_put(forgery->thread + data + at->tld_abandoned, FORGED_INTERP + 4096, 8);
}

/* Slices 1 to 15 are free. The caller frees. */
static inline struct mimalloc_forgery *forged_new(uint32_t version)
{
	struct mimalloc_forgery *forgery = calloc(1, sizeof(*forgery));
	const struct free_threaded_offsets *at;

	forgery->python = offsets_for(version, BUILD_FREE_THREADED);
	at = forgery->at = &forgery->python->free_threaded;
	forged_put(forgery->interp + forgery->python->abi.interp_threads_head, FORGED_THREAD, 8);
	forged_thread(forgery, 0);
	forged_put(forgery->segment + at->segment_cookie, FORGED_SEGMENT ^ FORGED_SECRET, 8);
	forged_put(forgery->segment + at->segment_info, 1, 8);
	forged_put(forgery->segment + at->segment_entries, 16, 8);
	forged_put(forgery->segment + at->segment_count, 512, 8);
	for (uint32_t i = 1; i < 16; i++)
		forged_put(forged_slice(forgery, i) + at->page_slices, 1, 4);
	return forgery;
}

static inline int forged_walk(struct mimalloc_forgery *forgery, heap_pool_fn visit, void *context,
			      struct heap_walk *walk)
{
	const struct memory_reader source = {forged_read, forgery};
	const struct heap_head head = {.arenas = FORGED_INTERP};

	return heap_walk_source(&source, forgery->python, &head, 1, visit, context, walk);
}
