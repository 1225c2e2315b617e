/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes that the analysis of inlined allocators looks for. Internal to it. */
#ifndef TRACER_PYMALLOC_MATCH_H
#define TRACER_PYMALLOC_MATCH_H

#include <stdint.h>

#include "x86/code.h"

struct inline_match {
	uint64_t site;    /* where the probe goes */
	uint8_t reg;      /* the pool, the block that is freed, the block that was returned */
	uint8_t size_reg; /* of a resize */
	uint8_t counted;  /* of a return: pymalloc counts the block as one that it passed on */
	/* of a pool: the function that is called when it is empty; 0: not known */
	uint64_t refill;
	uint8_t above; /* of a resize: the block stays by "above", not "below" */
	/* of a free: reg is the pool, whose first free block is the block now */
	uint8_t through_pool;
};

/*
 * Is there at vaddr the load of pool->nextpool of `if (pool != pool->nextpool)` that precedes
 * taking a block?
 */
int inline_match_pool(struct inline_code *code, uint64_t vaddr, struct inline_match *out);
/* Is there at vaddr the load of pool->freeblock of a free? */
int inline_match_free(struct inline_code *code, uint64_t vaddr, struct inline_match *out);
/*
 * Does pymalloc count, from vaddr on, behind a call that it was given a block by, one that it has
 * passed on?
 */
int inline_match_counted(struct inline_code *code, uint64_t vaddr);
/* Where the result of the call that returns to vaddr is best taken. Always finds a place. */
void inline_match_return(struct inline_code *code, uint64_t vaddr, struct inline_match *out);

/*
 * Is there at vaddr the making of 3 * size of `if (4 * nbytes > 3 * size)`, with which a realloc
 * keeps a block in its place? out->reg is the block and out->size_reg how large it shall be; the
 * site is the branch.
 */
int inline_match_resize(struct inline_code *code, uint64_t vaddr, struct inline_match *out);

/*
 * Is what is multiplied by three at vaddr, in a function that was decoded, a size that was made of
 * a pool's size class?
 */
int inline_match_classed(const struct inline_code *code, uint64_t vaddr);

/*
 * The size that was asked for, at the site of a pool, whose function was decoded last: *reg +
 * *addend, where reg ABI_REG_COUNT says that it is the addend alone. 0; -ENOENT: it is no longer
 * known.
 */
int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend);

/*
 * The register that at site, in a function that was decoded, still holds the block whose address,
 * without its low bits, was the pool's; ABI_REG_COUNT: none is known.
 */
uint8_t inline_block_find(const struct inline_code *code, uint64_t site);

#endif
