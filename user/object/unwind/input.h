/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of an ELF file is made of. Every size and offset in the file is checked. */
#pragma once

#include "object/elf/elf_frames.h"
#include "object/unwind/calls.h"

#define UNWIND_FUNCTIONS_MAX (1u << 21)

struct unwind_input {
	struct unwind_codes codes; /* ascending by offset, without overlap in the file */
	uint8_t *section;          /* .eh_frame, then .debug_frame */
	size_t section_size;
	uint64_t section_vaddr;   /* of .eh_frame */
	struct elf_frame *frames; /* its entries, ascending by vaddr */
	size_t frame_count;
};

/*
 * Reads a file, and of its debug file (-1: none) .debug_frame if it has none itself; both
 * descriptors stay the caller's. 0: unwind_input_free(); -ENOENT: it has no .eh_frame and
 * no .debug_frame with an entry; -E2BIG, -ENOEXEC (error_set); -ENOMEM; -errno.
 */
int unwind_input_read(struct unwind_input *out, int fd, int debug_fd);
void unwind_input_free(struct unwind_input *input);
