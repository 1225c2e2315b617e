/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/cfi.h"

#include <stdlib.h>

#include "base/array.h"
#include "unwind/rule.h"

static const struct abi_unwind_rule none;

/* The end of the last row is vaddr, or the last row begins there and is replaced. */
static int row_append(struct cfi_rows *rows, uint64_t vaddr, struct abi_unwind_rule rule)
{
	int err;

	if (rows->count && rows->rows[rows->count - 1].vaddr == vaddr)
		rows->count--;
	if (rows->count ? unwind_rule_equal(rows->rows[rows->count - 1].rule, rule)
			: unwind_rule_equal(rule, none))
		return 0;
	err = array_reserve(&rows->rows, &rows->capacity, rows->count, 1, sizeof(*rows->rows));
	if (!err)
		rows->rows[rows->count++] = (struct cfi_row){.vaddr = vaddr, .rule = rule};
	return err;
}

/*
 * Appends the rows from *vaddr up to end, or to the first address that no entry covers. 1: there
 * are too many; 0; -ENOMEM.
 */
static int function_append(struct cfi_rows *rows, Dwarf_CFI *cfi, uint64_t *vaddr, uint64_t end)
{
	Dwarf_Addr row_end;
	Dwarf_Frame *frame;
	int err = 0;

	for (uint32_t i = 0; *vaddr < end && !err; i++) {
		if (i == CFI_FUNCTION_ROWS_MAX || rows->count >= CFI_ROWS_MAX)
			return 1;
		if (dwarf_cfi_addrframe(cfi, *vaddr, &frame))
			break;
		dwarf_frame_info(frame, NULL, &row_end, NULL);
		err = row_append(rows, *vaddr, unwind_rule_of(frame));
		free(frame);
		if (row_end <= *vaddr)
			break;
		*vaddr = row_end;
	}
	return err;
}

int cfi_rows_read(struct cfi_rows *out, Dwarf_CFI *cfi, const uint64_t *starts, size_t count)
{
	uint64_t vaddr = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t next = i + 1 < count ? starts[i + 1] : UINT64_MAX;
		int err;

		if (vaddr < starts[i])
			vaddr = starts[i];
		err = function_append(out, cfi, &vaddr, next);
		if (err > 0)
			out->cut++;
		if (err >= 0 && vaddr < next)
			err = row_append(out, vaddr, none);
		if (err < 0)
			return err;
	}
	return 0;
}

void cfi_rows_free(struct cfi_rows *rows)
{
	free(rows->rows);
	*rows = (struct cfi_rows){0};
}
