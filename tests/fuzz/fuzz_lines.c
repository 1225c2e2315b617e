/* SPDX-License-Identifier: Apache-2.0 */
/* A line table: format, first line and instruction in the first bytes, followed by the table. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum lines_format formats[] = {LINES_LNOTAB, LINES_PAIRS, LINES_LOCATIONS};
	struct lines_table table = {.data = data + 9, .bytes = size - 9};
	struct lines_mark *marks;
	int lasti, line;

	if (size < 9)
		return 0;
	table.format = formats[data[0] % 3];
	memcpy(&table.first_line, data + 1, sizeof(table.first_line));
	memcpy(&lasti, data + 5, sizeof(lasti));
	line = lines_find(&table, lasti);
	if (line < 0)
		abort(); /* a line or 0 */
	if (lines_mark(&table, &marks, &table.mark_count))
		return 0;
	table.marks = marks;
	if (lines_find(&table, lasti) != line)
		abort();
	free(marks);
	return 0;
}
