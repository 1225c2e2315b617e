/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line tables of code objects. Pure. Formats and rules as in CPython's PyCode_Addr2Line:
 * Objects/lnotab_notes.txt (3.8-3.10), Objects/locations.md (3.11+). Input is hostile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpython/offsets.h"

#define LINES_MARK_BYTES 256u

/* The state of the decoder before the entry at data[at]. */
struct lines_mark {
	uint64_t address;
	int64_t line;
	size_t at;
};

/* A table; everything is borrowed. Without marks (NULL, 0) it is scanned from its start. */
struct lines_table {
	enum lines_format format;
	int first_line;
	const uint8_t *data;
	size_t bytes;
	const struct lines_mark *marks;
	size_t mark_count;
};

/*
 * Makes marks for a table that is used more than once: a look-up then takes a binary search and a
 * scan of about LINES_MARK_BYTES instead of the complete table. Marks take a tenth of the table's
 * size; a short table has none. The caller frees *marks. 0, -ENOMEM.
 */
int lines_mark(const struct lines_table *table, struct lines_mark **marks, size_t *count);
/*
 * The line of the instruction at byte lasti (-1: the first line, as in CPython); 0: the table has
 * no line for it, or is malformed before it.
 */
int lines_find(const struct lines_table *table, int lasti);
