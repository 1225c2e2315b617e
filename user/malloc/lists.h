/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the room: chunks that look allocated by their neighbours' headers, but are free: those
 * in fastbins and in threads' caches (tcache).
 */
#ifndef TRACER_MALLOC_LISTS_H
#define TRACER_MALLOC_LISTS_H

#include "malloc/glibc.h"

struct glibc_listed {
	uint64_t address; /* of the chunk */
	uint32_t kind;    /* enum glibc_kind */
};

struct glibc_lists {
	struct glibc_listed *chunks;
	size_t count, capacity;
	uint64_t tcaches, cut;
	uint64_t steps; /* spent so far */
};

/* 0; -ESRCH; -EPERM; -ENOMEM. The caller releases the lists, also on failure. */
int glibc_lists_fastbins(struct glibc_lists *lists, struct glibc *glibc);
/*
 * Adds the blocks of a cache, if the allocated chunk at this address is one: all counts, addresses
 * and sizes must agree. 1 it is, and it holds blocks; 0; -ESRCH; -EPERM; -ENOMEM.
 */
int glibc_lists_tcache(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk);
/* By address, each once. */
void glibc_lists_sort(struct glibc_lists *lists);
void glibc_lists_free(struct glibc_lists *lists);

#endif
