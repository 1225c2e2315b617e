/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inlined allocators of a file: loads from the file what the analysis of probe/pymalloc/sites.h
 * needs.
 */
#pragma once

#include "object/elf/elf_file.h"
#include "probe/pymalloc/sites.h"

/*
 * Fills the sites, including their symbols and offsets. 0; -ENOTSUP the file does not say where its
 * functions begin, or it has no code; -ENOMEM.
 */
int plan_inline(struct elf_file *file, struct inline_sites *out);
