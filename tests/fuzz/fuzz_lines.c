/* SPDX-License-Identifier: Apache-2.0 */
/* A line table: format, first line and instruction in the first bytes, the table behind them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "python/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum lines_format formats[] = {LINES_LNOTAB, LINES_PAIRS, LINES_LOCATIONS};
	int first_line, lasti;

	if (size < 9)
		return 0;
	memcpy(&first_line, data + 1, sizeof(first_line));
	memcpy(&lasti, data + 5, sizeof(lasti));
	if (lines_find(formats[data[0] % 3], data + 9, size - 9, first_line, lasti) < 0)
		abort(); /* a line or 0 */
	return 0;
}
