/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inlined allocators of a file: loads from the file what the analysis of pymalloc/sites.h
 * needs.
 */
#ifndef TRACER_PLAN_PLAN_INLINE_H
#define TRACER_PLAN_PLAN_INLINE_H

#include "elf/elf_file.h"
#include "pymalloc/sites.h"

/*
 * Fills the sites, including their symbols and offsets. 0; -ENOTSUP the file does not say where its
 * functions begin, or it has no code; -ENOMEM.
 */
int plan_inline(struct elf_file *file, struct inline_sites *out);

#endif
