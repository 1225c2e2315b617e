/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds Python's allocators in a file without symbols, where link-time optimisation has inlined
 * them. Pure: takes machine code, returns probe sites.
 *
 * Every request ends in one of a few ways, each of which has its own code shape:
 *
 *   a pool of pymalloc gives a block  cmp pool->nextpool,pool; je                   POOL
 *   all its pools are full            call of the one function for that             REFILL
 *                                     movl $1,pool->ref.count; jne                  FIRST_BLOCK
 *   a realloc leaves it in its place  cmp 4 * bytes,3 * size; jb                    RESIZE
 *   it is too large                   call or jump to malloc, calloc, realloc       MALLOC …, END
 *   a block goes back to its pool     mov pool->freeblock,(block) … je              FREE
 *   a large one is freed              call or jump to free                          FREE
 *   an object begins to live          cmp tracing,0; jne; or call _Py_NewReference  REUSE
 *
 * These ends are probed instead of the functions, so it does not matter where the functions were
 * inlined. Each request passes exactly one of them. The kernel emulates nearly all of the
 * instructions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "object/insn/image.h"
#include "probe/place/site.h"

#define INLINE_LARGE_MAX   ABI_OBJECT_CODES
#define INLINE_RECORDS_MAX ABI_RECORD_CALLS

enum inline_kind {
	INLINE_POOL,      /* a block is taken from a pool */
	INLINE_POOL_FREE, /* a block goes back to its pool */
	INLINE_RESIZE,    /* a realloc leaves a block in place */
	INLINE_REFILL,    /* a function that makes a pool */
	/* malloc, calloc, realloc are called, and where they have returned; or jumped to */
	INLINE_RAW,
	INLINE_RAW_FREE,
	INLINE_OBJECT, /* an object begins to live */
	/* a pool gives its first block, where copies of the allocator make pools themselves */
	INLINE_FIRST,
	INLINE_KINDS
};

struct inline_sites {
	struct plan_site *sites; /* without symbol and offset; sorted by vaddr within a kind */
	size_t count, capacity;
	size_t found[INLINE_KINDS];
	size_t exact; /* of INLINE_POOL: the requested size is known */
	/*
	 * Where pools are taken into use: one instruction in each function that makes them, or in
	 * each copy of the allocator that makes them itself (3.8). pools_complete: every such
	 * function has some, all on instructions that the kernel emulates. Cookies lack the size of
	 * pools.
	 */
	struct plan_site *pools;
	size_t pool_count;
	int pools_complete;
	/*
	 * 1: objects that pass _Py_NewReference are covered by INLINE_OBJECT, by its calls or by
	 * the function that it jumps to: do not probe the function.
	 */
	int object_sites;
	/* 1: the check whether objects are traced is not recognised */
	int objects_unknown;
	/* calls of _Py_NewReference that were found, whether probed or not */
	size_t reference_calls;
	/* sites left out of INLINE_OBJECT, because no object from a free list comes there */
	size_t always_new;
	/*
	 * The return addresses of calls of the raw allocator, through a slot, for a block that
	 * pymalloc passes on.
	 */
	uint64_t large[INLINE_LARGE_MAX];
	size_t large_count;
	/*
	 * tracemalloc's own records: the return addresses of its calls of the raw allocator, and
	 * where it calls libc's functions itself, which are no sites. records_known 0: not found.
	 */
	uint64_t records[INLINE_RECORDS_MAX], record_calls[INLINE_RECORDS_MAX];
	size_t record_count, record_call_count;
	int records_known;
	size_t given_up[INLINE_KINDS], given_up_count;
	struct {
		uint64_t vaddr;
		const char *why; /* static */
	} given_up_list[64];     /* the first ones */
	size_t given_up_listed;
};

/*
 * 0, also if the file has no pymalloc: then only objects are searched for; -ENOMEM.
 * inline_sites_free() releases.
 */
int inline_sites_find(const struct inline_image *image, struct inline_sites *out);
/* Was any copy of pymalloc found? */
bool inline_sites_have_pymalloc(const struct inline_sites *sites);
void inline_sites_free(struct inline_sites *sites);
