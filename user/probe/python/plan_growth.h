/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth mode's part of the planner: which sites of the analysed code are probed if only pools are
 * of interest.
 */
#pragma once

#include "object/elf/elf_file.h"
#include "probe/pymalloc/sites.h"
#include "probe/python/plan.h"

#define PLAN_POOL_FUNCTION "allocate_from_new_pool" /* Objects/obmalloc.c, 3.9 and later */

/*
 * Replaces plan's sites by those of the functions that make pools and, if requested, those of large
 * blocks, with capacity for as many more, and describes them. 0; -ENOENT, -ENOTSUP no such function
 * is found; -ENOMEM.
 */
int plan_growth_sites(struct elf_file *file, const struct plan_opts *opts, size_t capacity,
		      struct plan *plan);
/*
 * Adds to other sites those where a pool is taken into use, if all are known; plan has the capacity
 * for them.
 */
void plan_pools_take(struct plan *plan, const struct inline_sites *found,
		     const struct plan_opts *opts);
/* The cookie's addend for ABI_OP_NEW_POOL. */
uint64_t plan_pool_bits(const struct plan_opts *opts);
