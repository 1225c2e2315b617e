/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the rows of a table from those of a file's CFI. Pure. */
#ifndef TRACER_UNWIND_COMPACT_H
#define TRACER_UNWIND_COMPACT_H

#include "unwind/calls.h"
#include "unwind/cfi.h"
#include "unwind/table.h"

/*
 * which: enum abi_unwind_rows. origin is copied, with odd set. codes: the parts ascend by offset
 * and do not overlap in the file.
 * 0: the caller frees *out; -ENOENT: no row is left; -E2BIG; -ENOMEM.
 */
int unwind_compact(struct unwind_table **out, const struct cfi_rows *rows,
		   const struct unwind_codes *codes, uint32_t which,
		   const struct unwind_origin *origin);

#endif
