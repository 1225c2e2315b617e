/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of an ELF file is made of. Every size and offset in the file is checked. */
#ifndef TRACER_UNWIND_INPUT_H
#define TRACER_UNWIND_INPUT_H

#include <elfutils/libdw.h>

#include "unwind/calls.h"

#define UNWIND_FUNCTIONS_MAX (1u << 22)

struct unwind_input {
	Elf *elf;
	Dwarf_CFI *cfi;
	struct unwind_codes codes; /* ascending by offset, without overlap in the file */
	uint64_t *starts;          /* vaddrs of functions, ascending */
	size_t start_count;
};

/*
 * Opens a file; fd stays the caller's and must outlive *out. 0: unwind_input_close(); -ENOENT: it
 * has no .eh_frame with an entry; -E2BIG, -ENOEXEC (error_set); -ENOMEM; -errno.
 */
int unwind_input_open(struct unwind_input *out, int fd);
void unwind_input_close(struct unwind_input *input);

#endif
