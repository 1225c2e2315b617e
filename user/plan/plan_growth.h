/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth mode's share of the planner: what of the analysed code is probed where only pools are of
 * interest.
 */
#ifndef TRACER_PLAN_PLAN_GROWTH_H
#define TRACER_PLAN_PLAN_GROWTH_H

#include "elf/elf_file.h"
#include "plan/plan.h"

#define PLAN_POOL_FUNCTION "allocate_from_new_pool" /* Objects/obmalloc.c, 3.9 and later */

/*
 * Replaces plan's sites by those of the functions that make pools and, if asked for, of large
 * blocks, with room for as many more; describes them. 0; -ENOENT, -ENOTSUP no such function is
 * found; -ENOMEM.
 */
int plan_growth_sites(struct elf_file *file, const struct plan_opts *opts, size_t room,
		      struct plan *plan);
/* The addend of an ABI_OP_NEW_POOL's cookie. */
uint64_t plan_pool_bits(const struct plan_opts *opts);

#endif
