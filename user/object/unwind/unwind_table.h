/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table of an ELF file, in the form that the walk in the kernel reads (abi/unwind.h):
 * compiled from .eh_frame. Only rows in which a call or a system call lies are kept (a seventh to a
 * hundredth of all): any frame but an interrupted one is at a return address. So a lookup of
 * another address has no meaning, except in a table of all rows. Code between functions that no
 * entry covers has no row, except for padding (UNWIND_PADDING_MAX), and for a large body of such
 * code (UNWIND_BODY_MIN), which no compiler has made: its row says that it may keep frame pointers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/unwind.h"

/* Bytes between two functions that may have the row of the first, if no call lies there. */
#define UNWIND_PADDING_MAX 15u
/* Bytes of code without an entry that are not assembly between functions (V8's builtins). */
#define UNWIND_BODY_MIN (64u << 10)
/* pages of 64 KiB: 4 GiB from the first code of the file to the last */
#define UNWIND_PAGES_MAX (1u << 16)
#define UNWIND_ROWS_MAX  (4u << 20)
/* bytes of executable segments */
#define UNWIND_CODE_BYTES_MAX (512u << 20)

/* How a table was made. */
struct unwind_origin {
	uint32_t functions; /* entries of .eh_frame */
	uint32_t cut;  /* of those, damaged or beyond a limit: some of their rows are missing */
	uint32_t rows; /* before the selection */
	uint32_t odd;  /* selected rows that no kind of rule expresses */
	/* calls that no entry covers, with a rule derived from the code (unwind_flow.h) */
	uint32_t derived;
	uint32_t
		uncovered; /* bytes of code that hold calls and are in no entry; at most 2^32 - 1 */
	uint64_t took_ns;  /* CPU time */
};

/* One block of memory: the arrays follow the structure. */
struct unwind_table {
	uint32_t first_page,
		page_count; /* pages has page_count + 1 entries, the last is row_count */
	uint32_t row_count, rule_count;
	struct unwind_origin origin;
	const uint32_t *pages;
	const struct abi_unwind_row *rows;
	const struct abi_unwind_rule *rules;
};

/*
 * Compiles the table of a file. debug_fd: its debug file, -1 for none. rows: enum abi_unwind_rows;
 * a table of all rows has none that are derived from code. The descriptors stay the caller's. 0:
 * unwind_table_free() frees it; -ENOENT: the file has no .eh_frame, and no .debug_frame, with an
 * entry; -E2BIG, -ENOEXEC (error_set says why); -ENOMEM; -errno.
 *
 * Takes about 0.2 us a row of .eh_frame, and time and memory in proportion to the file whatever it
 * holds: up to 3 GiB of memory at all limits. Call it in a process that may be killed
 * (object/symbols/worker.h).
 */
int unwind_table_build(struct unwind_table **out, int fd, int debug_fd, uint32_t rows);
void unwind_table_free(struct unwind_table *table);
/*
 * The rule of a byte of the file: rules[0] if it has no row. A frame's is that of the byte before
 * its return address. The same search as in the kernel. Borrowed.
 */
const struct abi_unwind_rule *unwind_table_find(const struct unwind_table *table, uint64_t offset);

/* The table as bytes, valid on this machine only. Pure. *size is set. Borrowed from the table. */
const void *unwind_table_pack(const struct unwind_table *table, size_t *size);
/*
 * The reverse, from a source that is not trusted: sizes, order and indexes are checked. 0;
 * -EPROTO; -ENOMEM.
 */
int unwind_table_unpack(struct unwind_table **out, const void *bytes, size_t size);
/* Largest size that unwind_table_unpack() accepts. */
#define UNWIND_PACKED_MAX                                                                          \
	(sizeof(struct unwind_table) + 4u * (UNWIND_PAGES_MAX + 1) + 4u * UNWIND_ROWS_MAX +        \
	 8u * ABI_UNWIND_RULES_MAX)
