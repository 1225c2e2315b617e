/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three encodings of a list of {code range, line}:
 *
 * 3.8-3.9  co_lnotab: pairs {addr += u8, line += s8}; a pair applies from its address on.
 * 3.10     co_linetable: pairs {length u8, line += s8}; -128 says "no line" for that range alone.
 * 3.11+    co_linetable: entries led by a byte with bit 7 set, {1, code 4 bits, code units - 1 3
 *          bits}, then bytes without bit 7. Only codes 11-14 move the line; 13 and 14 by a signed
 *          varint (6 bits a byte, lowest first, bit 6: more follow; bit 0 of the value is its
 *          sign). Code 15 is "no line".
 *
 * Sums have 64 bits: no table that fits in memory can make them overflow.
 */
#include "runtime/cpython/lines.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"

#define CODE_UNIT 2 /* bytes, 3.11+ */
#define NO_LINE   (-1)

enum { CODE_LINE_1 = 11, CODE_LINE_2 = 12, CODE_NO_COLUMNS = 13, CODE_LONG = 14, CODE_NONE = 15 };

static int line_of(int64_t line)
{
	return line < 0 || line > INT_MAX ? 0 : (int)line;
}

/* The signed varint at table[at]. 0; -1 when it does not end within the table or within 32 bits. */
static int varint_read(const uint8_t *table, size_t bytes, size_t at, int64_t *out)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; at < bytes && shift < 36; at++, shift += 6) {
		value |= (uint64_t)(table[at] & 63) << shift;
		if (table[at] & 64)
			continue;
		if (value > UINT32_MAX)
			return -1;
		*out = value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
		return 0;
	}
	return -1;
}

/* An entry: the addresses from the end of the previous one to next.address, exclusive. */
struct lines_range {
	struct lines_mark next;
	int64_t line; /* NO_LINE: none */
};

static int pair_next(const struct lines_table *table, const struct lines_mark *from,
		     struct lines_range *out)
{
	if (table->bytes - from->at < 2)
		return 0;
	const uint8_t *pair = table->data + from->at;
	int8_t delta = (int8_t)pair[1];
	out->next = (struct lines_mark){from->address + pair[0], from->line + delta, from->at + 2};
	if (table->format == LINES_LNOTAB) {
		out->line = from->line;
		return 1;
	}
	if (delta == INT8_MIN)
		out->next.line = from->line;
	out->line = delta == INT8_MIN ? NO_LINE : out->next.line;
	return 1;
}

static int location_next(const struct lines_table *table, const struct lines_mark *from,
			 struct lines_range *out)
{
	const uint8_t *data = table->data;
	size_t at = from->at;
	int64_t delta = 0;

	if (at >= table->bytes || !(data[at] & 128))
		return 0;
	int code = data[at] >> 3 & 15;
	if (code == CODE_LINE_1 || code == CODE_LINE_2)
		delta = code - CODE_LINE_1 + 1;
	else if ((code == CODE_NO_COLUMNS || code == CODE_LONG) &&
		 varint_read(data, table->bytes, at + 1, &delta))
		return 0;
	out->next.address = from->address + (uint64_t)((data[at] & 7) + 1) * CODE_UNIT;
	out->next.line = from->line + delta;
	out->line = code == CODE_NONE ? NO_LINE : out->next.line;
	do
		at++;
	while (at < table->bytes && !(data[at] & 128));
	out->next.at = at;
	return 1;
}

/* 1; 0: end of the table, or malformed. */
static int range_next(const struct lines_table *table, const struct lines_mark *from,
		      struct lines_range *out)
{
	return table->format == LINES_LOCATIONS ? location_next(table, from, out)
						: pair_next(table, from, out);
}

static struct lines_mark table_start(const struct lines_table *table)
{
	return (struct lines_mark){.line = table->first_line};
}

int lines_mark(const struct lines_table *table, struct lines_mark **marks, size_t *count)
{
	struct lines_mark from = table_start(table), *made = NULL;
	size_t made_count = 0, capacity = 0, last = 0;
	struct lines_range range;

	for (; range_next(table, &from, &range); from = range.next) {
		if (range.next.at - last < LINES_MARK_BYTES)
			continue;
		if (ARRAY_GROW(made, capacity, made_count)) {
			free(made);
			return -ENOMEM;
		}
		made[made_count++] = range.next;
		last = range.next.at;
	}
	*marks = made;
	*count = made_count;
	return 0;
}

/* The last mark at or before the address; the entry for the address follows it. */
static struct lines_mark mark_find(const struct lines_table *table, uint64_t address)
{
	size_t above = SORTED_ABOVE(table->marks, table->mark_count, address, address);

	return above ? table->marks[above - 1] : table_start(table);
}

int lines_find(const struct lines_table *table, int lasti)
{
	struct lines_mark from;
	struct lines_range range;

	if (lasti < 0)
		return line_of(table->first_line);
	for (from = mark_find(table, (uint64_t)lasti); range_next(table, &from, &range);
	     from = range.next)
		if (range.next.address > (uint64_t)lasti)
			return line_of(range.line);
	/* A pair of co_lnotab applies until the next one; the last applies to the rest. */
	return table->format == LINES_LNOTAB ? line_of(from.line) : 0;
}
