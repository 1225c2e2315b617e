/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function takes a pool into use. Internal to the analysis of inlined allocators. */
#ifndef TRACER_PYMALLOC_POOL_H
#define TRACER_PYMALLOC_POOL_H

#include "x86/code.h"

struct inline_new_pool {
	uint64_t site; /* where the probe goes */
	uint8_t reg;   /* the pool */
	uint8_t fresh; /* there the pool's header still has the size class that it served before */
};

/*
 * The places in the function that vaddr lies in, at most room. Returns how many, 0 also where there
 * is no function; -ENOMEM. *emulated, if it is 1, becomes 0 when one of them is on an instruction
 * that the kernel does not emulate.
 */
int inline_new_pools(struct inline_code *code, uint64_t vaddr, struct inline_new_pool *out,
		     size_t room, int *emulated);

#endif
