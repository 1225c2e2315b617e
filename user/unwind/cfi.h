/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rows of a file's call frame information (CFI), read by libdw: for each address how its frame
 * is unwound.
 *
 * The file is hostile. libdw runs a function's CFI from its start for each row, which is quadratic
 * in the size of a function; call it in a process that may be killed.
 */
#ifndef TRACER_UNWIND_CFI_H
#define TRACER_UNWIND_CFI_H

#include <elfutils/libdw.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/unwind.h"

/* rows from one function's start to the next; the largest of cc1 has 1,500 */
#define CFI_FUNCTION_ROWS_MAX 8192u
#define CFI_ROWS_MAX          (8u << 20)

/* Valid from vaddr up to the next row. Rule {0}: in no entry of the CFI. */
struct cfi_row {
	uint64_t vaddr;
	struct abi_unwind_rule rule;
};

/* Zero-initialise; release with cfi_rows_free(). */
struct cfi_rows {
	struct cfi_row *rows; /* vaddr ascends; rules of neighbours differ; the last is {0} */
	size_t count, capacity;
	/* functions that are not covered completely, since they exceed a limit above */
	uint32_t cut;
};

/* starts: where entries of the CFI begin, ascending. 0; -ENOMEM. */
int cfi_rows_read(struct cfi_rows *out, Dwarf_CFI *cfi, const uint64_t *starts, size_t count);
void cfi_rows_free(struct cfi_rows *rows);

#endif
