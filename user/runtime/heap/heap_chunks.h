/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocated blocks of glibc's malloc, as records (abi/event_windows.h): by them the trace knows
 * which blocks that it saw in windows are alive, and how many there are.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct glibc;

struct heap_chunks_opts {
	uint64_t least_bytes; /* chunks with less room than that are not passed on */
	/* Takes a record of the given size; its error ends the walk. */
	int (*record)(void *context, const void *record, size_t size);
	void *context;
};

/*
 * Walks all heaps while the process runs on. What changes so fast that it cannot be read is passed
 * on as unread, and the walk that leaves the least of it unread counts, of a few. Blocks with a
 * mapping of their own are passed on as far as glibc_mapped_walk() finds them. *used, unless NULL:
 * how many blocks are allocated, of any size; 0: something is unread. 0; -ESRCH; -EPERM; -ENOTSUP
 * (error_set); -ENOMEM; errors of record().
 */
int heap_chunks_read(struct glibc *glibc, const struct heap_chunks_opts *opts, uint64_t *used);
/* Can the heaps be found? 0; the same errors. */
int heap_chunks_possible(struct glibc *glibc);
