/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line tables of code objects, pure: bytes in, line out. Formats and rules as CPython's own
 * PyCode_Addr2Line: Objects/lnotab_notes.txt (3.8-3.10), Objects/locations.md (3.11+). Input is
 * hostile.
 */
#ifndef TRACER_PYTHON_LINES_H
#define TRACER_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "python/offsets.h"

#define LINES_MARK_BYTES 256u

/* The sums before the entry at data[at]. */
struct lines_mark {
	uint64_t address;
	int64_t line;
	size_t at;
};

/*
 * A table, as its owner has it; all is borrowed. Without marks (NULL, 0) it is looked through from
 * its start.
 */
struct lines_table {
	enum lines_format format;
	int first_line;
	const uint8_t *data;
	size_t bytes;
	const struct lines_mark *marks;
	size_t mark_count;
};

/*
 * Marks for a table that is asked more than once: a look-up is then a bisection and at most
 * LINES_MARK_BYTES of the table, not all of it. They are a tenth of the table's size, and none for
 * a short one. *marks is the caller's to free(). 0, -ENOMEM.
 */
int lines_mark(const struct lines_table *table, struct lines_mark **marks, size_t *count);
/*
 * Line of the instruction at lasti bytes (-1: the first line, as CPython has it). Returns the line,
 * 0 when the table says there is none or is malformed before lasti.
 */
int lines_find(const struct lines_table *table, int lasti);

#endif
