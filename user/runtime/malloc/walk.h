/* SPDX-License-Identifier: Apache-2.0 */
/* All chunks of glibc's heaps, and which of them are allocated. */
#pragma once

#include <stdint.h>

#include "runtime/malloc/glibc.h"

enum glibc_kind {
	GLIBC_USED,    /* allocated; a thread's cache itself counts as such */
	GLIBC_TCACHE,  /* free, in a thread's cache */
	GLIBC_FAST,    /* free, in a fastbin */
	GLIBC_BIN,     /* free, in the unsorted list, a small or a large bin */
	GLIBC_TOP,     /* the free end of a heap */
	GLIBC_OWN,     /* heap_info, an arena, what ends a heap */
	GLIBC_UNKNOWN, /* could not be read */
	GLIBC_KINDS
};

/* Chunks of a heap come in order of address and do not overlap; together they are the heap. */
struct glibc_chunk {
	uint64_t address; /* of the chunk; what malloc() returned is GLIBC_HEADER behind it */
	uint64_t bytes;   /* with its header */
	enum glibc_kind kind;
	uint32_t heap; /* index */
};

struct glibc_totals {
	uint64_t bytes[GLIBC_KINDS], counts[GLIBC_KINDS];
	uint64_t tcaches; /* threads' caches that were found */
	uint64_t swapped; /* reads that would have swapped in a page */
	uint64_t cut;     /* lists that did not end as they must: their chunks may count as used */
};

/* Returns non-zero to stop. */
typedef int (*glibc_chunk_fn)(const struct glibc_chunk *chunk, void *context);

/*
 * Walks the heaps of the last glibc_look(). A chunk that is inconsistent is read again; if that
 * does not help, the rest of its heap is one chunk of GLIBC_UNKNOWN. 0; -ESRCH; -EPERM; -ENOMEM.
 */
int glibc_walk(struct glibc *glibc, glibc_chunk_fn visit, void *context, struct glibc_totals *out);
