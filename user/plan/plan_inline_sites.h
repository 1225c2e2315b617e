/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the sites that the code analysis finds (pymalloc/sites.h) are probed. */
#ifndef TRACER_PLAN_PLAN_INLINE_SITES_H
#define TRACER_PLAN_PLAN_INLINE_SITES_H

#include <stdbool.h>

#include "elf/elf_file.h"
#include "plan/plan.h"

/*
 * Replaces plan's sites by those that the analysis finds, with capacity for PLAN_MAX_ENTRIES more,
 * and describes them. functions: all implementations have symbols.
 *
 * 0; -ENOMEM; -ENOENT, -ENOTSUP: probe the functions instead. That is so if the analysis finds no
 * copy of pymalloc, or if the implementations have symbols, there are no more copies than
 * functions, and something is missing. The plan then has only the sites where objects begin to
 * live and, in census mode, the frees of large blocks that no symbol shows. Where those frees are
 * not all known, the plan's mode falls back from census to exact.
 */
int plan_inline_sites(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
		      bool functions);

#endif
