/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function takes a pool into use. Internal to the analysis of inlined allocators. */
#pragma once

#include "object/insn/code.h"

struct inline_new_pool {
	uint64_t site; /* the instruction to probe */
	uint8_t reg;   /* the pool */
	uint8_t fresh; /* at the site, the pool's header still has its previous size class */
};

/*
 * Finds where the function that vaddr lies in takes a pool into use, at most capacity. Returns
 * their number, 0 also where there is no function; -ENOMEM. *emulated becomes 0 if a site is on an
 * instruction that the kernel does not emulate.
 */
int inline_new_pools(struct inline_code *code, uint64_t vaddr, struct inline_new_pool *out,
		     size_t capacity, int *emulated);
