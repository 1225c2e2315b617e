/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what link-time optimisation has left of Python's allocators in a file without symbols.
 * Pure: machine code in, probe sites out.
 *
 * Whatever a request went through, it ends in one of few ways, and each has a shape of its own:
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
 * These ends are probed and not the functions, so it does not matter where they were inlined, and
 * each request passes one of them once. Nearly all of the instructions are such as the kernel
 * emulates.
 */
#ifndef TRACER_PYMALLOC_SITES_H
#define TRACER_PYMALLOC_SITES_H

#include <stddef.h>
#include <stdint.h>

#include "x86/image.h"
#include "x86/site.h"

#define INLINE_LARGE_MAX ABI_OBJECT_CODES

enum inline_kind {
	INLINE_POOL,      /* a block is taken from a pool */
	INLINE_POOL_FREE, /* a block goes back to its pool */
	INLINE_RESIZE,    /* a realloc leaves a block where it is */
	INLINE_REFILL,    /* the function that makes a pool */
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
	size_t count, room;
	size_t found[INLINE_KINDS];
	size_t exact; /* of INLINE_POOL: the size that was asked for is known */
	/*
	 * Where pools are taken into use, a place of its own within the functions that make them,
	 * or within the copies of the allocator that make them themselves (3.8). pools_complete:
	 * every such function has some, all on instructions that the kernel emulates. Cookies lack
	 * the size of pools.
	 */
	struct plan_site *pools;
	size_t pool_count;
	int pools_complete;
	/*
	 * 1: what passes _Py_NewReference is among INLINE_OBJECT, by its calls or by what it jumps
	 * to: the function is not to be probed.
	 */
	int object_sites;
	/* 1: how it is asked whether anybody traces objects is not recognised */
	int objects_unknown;
	size_t reference_calls; /* of _Py_NewReference that were found, whether probed or not */
	/* of what INLINE_OBJECT has not: no object from a free list comes there */
	size_t always_new;
	/*
	 * Where the raw allocator, called through a slot for a block that pymalloc passes on,
	 * returns to.
	 */
	uint64_t large[INLINE_LARGE_MAX];
	size_t large_count;
	size_t given_up[INLINE_KINDS], given_up_count;
	struct {
		uint64_t vaddr;
		const char *why; /* static */
	} given_up_list[64];     /* the first of them */
	size_t given_up_listed;
};

/*
 * 0, also where there is no pymalloc in it: then only objects are looked for; -ENOMEM.
 * inline_sites_free() releases.
 */
int inline_sites_find(const struct inline_image *image, struct inline_sites *out);
/* Was any copy of pymalloc found? */
int inline_sites_have_pymalloc(const struct inline_sites *sites);
void inline_sites_free(struct inline_sites *sites);

#endif
