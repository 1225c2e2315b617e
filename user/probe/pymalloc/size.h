/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in inlined copies of the allocator, and what a match of its shapes tells. Internal. */
#pragma once

#include <stdint.h>

#include "object/insn/code.h"

#define INLINE_CLASS_BITS 4  /* low bits of a size less one that its size class drops */
#define INLINE_CLASS_NEAR 12 /* instructions between the making of a size class and its use */

struct inline_match {
	uint64_t site;    /* the instruction to probe */
	uint8_t reg;      /* the pool, the freed block or the returned block */
	uint8_t size_reg; /* of a resize: the register that holds the size */
	/* of a return: pymalloc counts the block as one that the raw allocator gave it */
	uint8_t counted;
	/* of a pool: the function that is called when it is empty; 0: unknown */
	uint64_t refill;
	uint8_t above; /* of a resize: the block stays if "above", not "below" */
	/* of a free: reg is the pool, whose first free block is the freed block by now */
	uint8_t through_pool;
};

/*
 * Is the computation of 3 * size of `if (4 * nbytes > 3 * size)` at vaddr, with which a realloc
 * keeps a block in place? out->reg is the block, out->size_reg the requested size; the site is the
 * branch.
 */
int inline_match_resize(struct inline_code *code, uint64_t vaddr, struct inline_match *out);

/*
 * Is the value that is multiplied by three at vaddr, in the decoded function, a size computed from
 * a pool's size class?
 */
int inline_match_classed(const struct inline_code *code, uint64_t vaddr);

/*
 * The requested size at a pool's site, in the function that was decoded last: *reg + *addend, or
 * *addend alone if *reg is ABI_REG_COUNT. 0; -ENOENT the size is no longer known.
 */
int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend);

/*
 * The register that at site, in the decoded function, still holds the block from whose address,
 * without its low bits, the pool was computed; ABI_REG_COUNT: none is known.
 */
uint8_t inline_block_find(const struct inline_code *code, uint64_t site);
