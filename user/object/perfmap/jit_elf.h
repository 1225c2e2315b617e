/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of an ELF image that a JIT registered with GDB's interface. Pure: bytes in,
 * functions out. The image is the target's and may lie about every offset; work and names are
 * bounded by its size.
 */
#pragma once

#include <stddef.h>

#include "object/perfmap/text.h"

#define JIT_ELF_MAX (64u << 20) /* bytes of an image that is read */

/*
 * Passes every function that has a size to the callback. In relocatable images (LLVM) symbols are
 * relative to their section, whose address the JIT has filled in; in others they are addresses. 0;
 * -ENOEXEC (error_set); -errno; or what the callback returned.
 */
int jit_elf_read(const void *image, size_t bytes, perfmap_text_fn entry, void *context);
