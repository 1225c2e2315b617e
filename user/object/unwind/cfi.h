/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rows of a file's .eh_frame: for each address how its frame is unwound. The instructions are
 * those of call frame information (CFI) in DWARF 5, section 6.4.2. Of the registers only the CFA,
 * rbp and the return address are followed. Time and memory are in proportion to the section,
 * whatever it holds. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/unwind.h"
#include "object/elf/elf_frames.h"

#define CFI_ROWS_MAX (8u << 20)
/* states that are remembered at once; compilers need two */
#define CFI_REMEMBERED_MAX 16u
/* bytes of the instructions that entries have in common; compilers need ten */
#define CFI_COMMON_BYTES_MAX 256u

/* Valid from vaddr up to the next row. Rule {0}: in no entry. */
struct cfi_row {
	uint64_t vaddr;
	struct abi_unwind_rule rule;
};

/* Zero-initialise; release with cfi_rows_free(). */
struct cfi_rows {
	struct cfi_row *rows; /* vaddr ascends; rules of neighbours differ; the last is {0} */
	size_t count, capacity;
	uint32_t cut; /* functions without some of their rows: damaged, or too many rows */
};

/*
 * The rows of the entries, which ascend by vaddr. Where entries overlap, the first is used. bytes:
 * of the section, which is at vaddr. 0; -ENOMEM.
 */
int cfi_rows_read(struct cfi_rows *out, const uint8_t *bytes, uint64_t vaddr,
		  const struct elf_frame *frames, size_t count);
/*
 * Appends a row, at which the last one ends; a row that begins at vaddr, too, is replaced. 0;
 * -ENOMEM.
 */
int cfi_rows_append(struct cfi_rows *rows, uint64_t vaddr, struct abi_unwind_rule rule);
void cfi_rows_free(struct cfi_rows *rows);
