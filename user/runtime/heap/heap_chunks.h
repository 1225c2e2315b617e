/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocated blocks of malloc's, whichever allocators a process has, as records
 * (abi/event_windows.h): by them the trace knows which blocks that it saw in windows are alive, and
 * how many there are.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct allocators;

/* An address that malloc() returned in a window. */
struct heap_chunk_seen {
	uint64_t address;
	uint64_t made_ns; /* 0: the block was freed in a window */
};

struct heap_chunks_opts {
	uint64_t least_bytes; /* blocks with less room than that are not passed on */
	/*
	 * By address; NULL: none. An allocator may not know where in a block it is that malloc()
	 * returned (allocator_type.is_inner). The newest of these that is within a block in use is
	 * passed on as its address; else it is where the block begins.
	 */
	const struct heap_chunk_seen *seen;
	size_t seen_count;
	/* Takes a record of the given size; its error ends the walk. */
	int (*record)(void *context, const void *record, size_t size);
	void *context;
};

/*
 * Walks all heaps while the process runs on. What changes so fast that it cannot be read is passed
 * on as unread, and the walk that leaves the least of it unread counts, of a few. *used, unless
 * NULL: how many blocks are allocated, of any size; 0: something is unread. 0; -ESRCH; -EPERM;
 * -ENOTSUP (error_set); -ENOMEM; errors of record().
 */
int heap_chunks_read(const struct allocators *allocators, const struct heap_chunks_opts *opts,
		     uint64_t *used);
