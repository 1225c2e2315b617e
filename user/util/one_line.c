/* SPDX-License-Identifier: Apache-2.0 */
#include "util/one_line.h"

#include <stdarg.h>
#include <string.h>

#define MORE "; -v: more"

void one_line_add(struct one_line *line, const char *format, ...)
{
	va_list args;

	if (line->count == ONE_LINE_CLAUSES)
		return;
	va_start(args, format);
	vsnprintf(line->clauses[line->count++], ONE_LINE_BYTES, format, args);
	va_end(args);
}

/* ± is one column of two bytes: that a line may have a column too few is no harm. */
void one_line_print(FILE *out, const char *title, const struct one_line *line, size_t width,
		    int color)
{
	size_t used = strlen(title) + strlen(": ") + strlen(MORE);

	if (!line->count)
		return;
	fprintf(out, color ? "\033[1m%s:\033[0m " : "%s: ", title);
	for (size_t i = 0; i < line->count; i++) {
		used += strlen(line->clauses[i]) + (i ? strlen("; ") : 0);
		if (i && used > width)
			break;
		fprintf(out, "%s%s", i ? "; " : "", line->clauses[i]);
	}
	fputs(MORE "\n", out);
}
