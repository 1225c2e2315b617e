/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine code of an ELF file. Its section headers say which bytes of an executable segment are
 * code: linkers may put tables of constants into the same segment, tens of megabytes in LLVM. In a
 * segment without such a section all bytes count as code.
 */
#ifndef TRACER_UNWIND_CODES_H
#define TRACER_UNWIND_CODES_H

#include <gelf.h>

#include "unwind/calls.h"

/* Bytes of a file, which the caller frees. NULL: not in the file, or no memory. */
uint8_t *unwind_bytes_read(int fd, uint64_t offset, size_t size);
/* 0; -E2BIG (error_set); -ENOMEM. Release with unwind_codes_free(), also after an error. */
int unwind_codes_read(struct unwind_codes *out, Elf *elf, int fd, uint64_t file_bytes);
void unwind_codes_free(struct unwind_codes *codes);

#endif
