/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of mimalloc, of which each holds blocks of one size. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/statics.h"

#define MIMALLOC_BLOCKS_MAX 65536u /* of a page: capacity has 16 bits */

/*
 * Of the blocks the first `capacity` were handed out at least once:
 *
 *	capacity - |free| - |local_free| = used
 *
 * Those on the list thread_free still count as used.
 */
struct mimalloc_page {
	uint64_t start, end;  /* of its memory */
	uint64_t blocks;      /* address of its first block */
	uint64_t block_bytes; /* 0: no page has these slices */
	uint64_t capacity, reserved, used;
	uint64_t lists[3]; /* addresses of the first blocks: free, local_free, thread_free */
	uint64_t heap;
	bool is_single; /* it has one block, whatever fits */
};

/* Blocks that are free though no list of their page has them. */
typedef void (*mimalloc_page_fn)(void *context, const struct mimalloc_page *page, uint8_t *states);

/* What a walk reads pages with. */
struct mimalloc_pages {
	struct malloc_reader *reader;
	struct runs runs;
	uint8_t *states;       /* enum allocator_kind, MIMALLOC_BLOCKS_MAX; of the last page */
	uint64_t most;         /* bytes of a page with more than one block */
	mimalloc_page_fn more; /* NULL: there are none */
	void *context;         /* of more() */
};

/* Do the sizes of a page agree with each other? */
bool mimalloc_page_fits(const struct mimalloc_page *page, uint64_t most);
/* 0: the states of its blocks are known; -EAGAIN: the page is inconsistent; -errno. */
int mimalloc_page_mark(struct mimalloc_pages *pages, const struct mimalloc_page *page, int fresh);
/* Of the page that was marked last: a page without a block in use is kept for its thread. */
bool mimalloc_page_is_unused(const struct mimalloc_pages *pages, const struct mimalloc_page *page);
/* Visits that page. unused: what it is without a block in use. As runs_put(). */
int mimalloc_page_put(struct mimalloc_pages *pages, const struct mimalloc_page *page,
		      enum allocator_kind unused);
/*
 * The version of the library as its file is called, libmimalloc.so.2.0, or else what is known by
 * its layout.
 */
void mimalloc_version(const char *known, const struct statics *statics,
		      char version[ALLOCATOR_VERSION]);
