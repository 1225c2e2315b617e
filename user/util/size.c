/* SPDX-License-Identifier: Apache-2.0 */
#include "util/size.h"

#include <math.h>
#include <stdio.h>

char *size_format(char out[SIZE_TEXT_MAX], double size, int sign)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	const int last = 4;

	for (int i = 0;; i++, size /= 1024) {
		if (i && fabs(size) < 100) {
			snprintf(out, SIZE_TEXT_MAX, sign ? "%+.1f %s" : "%.1f %s", size, units[i]);
			return out;
		}
		if (fabs(size) < 10 * 1024 || i == last) {
			snprintf(out, SIZE_TEXT_MAX, sign ? "%+.0f %s" : "%.0f %s", size, units[i]);
			return out;
		}
	}
}

char *size_text(char out[SIZE_TEXT_MAX], uint64_t bytes)
{
	return size_format(out, (double)bytes, 0);
}
