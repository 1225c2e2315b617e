/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three encodings of the same thing, a list of {code range, line}:
 *
 * 3.8-3.9  co_lnotab: pairs {addr += u8, line += s8}; a pair applies from its address on.
 * 3.10     co_linetable: pairs {length u8, line += s8}; -128 says "no line" for that range alone.
 * 3.11+    co_linetable: entries led by a byte with bit 7 set, {1, code 4 bits, code units - 1 3 bits}, then
 *          bytes without bit 7. Only codes 11-14 move the line; 13 and 14 by a signed varint (6 bits a byte,
 *          lowest first, bit 6: more follow; bit 0 of the value is its sign). Code 15 is "no line".
 *
 * Sums are of 64 bits: no table that fits in memory makes them overflow.
 */
#include "python/lines.h"

#include <limits.h>

#define CODE_UNIT 2 /* bytes, 3.11+ */

enum { CODE_LINE_1 = 11, CODE_LINE_2 = 12, CODE_NO_COLUMNS = 13, CODE_LONG = 14, CODE_NONE = 15 };

static int line_of(int64_t line)
{
	return line < 0 || line > INT_MAX ? 0 : (int)line;
}

static int lnotab_find(const uint8_t *table, size_t bytes, int64_t line, int lasti)
{
	int64_t address = 0;

	for (size_t i = 0; i + 1 < bytes; i += 2) {
		address += table[i];
		if (address > lasti)
			break;
		line += (int8_t)table[i + 1];
	}
	return line_of(line);
}

static int pairs_find(const uint8_t *table, size_t bytes, int64_t line, int lasti)
{
	int64_t end = 0;

	for (size_t i = 0; i + 1 < bytes; i += 2) {
		int8_t delta = (int8_t)table[i + 1];

		end += table[i];
		if (delta != INT8_MIN)
			line += delta;
		if (end > lasti)
			return delta == INT8_MIN ? 0 : line_of(line);
	}
	return 0;
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

static int locations_find(const uint8_t *table, size_t bytes, int64_t line, int lasti)
{
	int64_t end = 0;
	size_t at = 0;

	while (at < bytes) {
		int code = table[at] >> 3 & 15;
		int64_t delta = 0;

		if (!(table[at] & 128))
			return 0;
		if (code == CODE_LINE_1 || code == CODE_LINE_2)
			delta = code - CODE_LINE_1 + 1;
		else if ((code == CODE_NO_COLUMNS || code == CODE_LONG) &&
			 varint_read(table, bytes, at + 1, &delta))
			return 0;
		line += delta;
		end += ((table[at] & 7) + 1) * CODE_UNIT;
		if (end > lasti)
			return code == CODE_NONE ? 0 : line_of(line);
		do
			at++;
		while (at < bytes && !(table[at] & 128));
	}
	return 0;
}

int lines_find(enum lines_format format, const uint8_t *table, size_t bytes, int first_line, int lasti)
{
	if (lasti < 0)
		return line_of(first_line);
	switch (format) {
	case LINES_LNOTAB:
		return lnotab_find(table, bytes, first_line, lasti);
	case LINES_PAIRS:
		return pairs_find(table, bytes, first_line, lasti);
	case LINES_LOCATIONS:
		return locations_find(table, bytes, first_line, lasti);
	}
	return 0;
}
