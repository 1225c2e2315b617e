/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a page for a terminal says of its own limits, in one line of its width: "Figures: ±8 %; 12
 * events lost; -v: more". The most important clause is added first; what has no room is left to -v.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

#define ONE_LINE_CLAUSES 10u
#define ONE_LINE_BYTES   96u

/* Zero-initialise. */
struct one_line {
	char clauses[ONE_LINE_CLAUSES][ONE_LINE_BYTES];
	size_t count;
};

/* Adds a clause; one beyond ONE_LINE_CLAUSES is left to -v. */
void one_line_add(struct one_line *line, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Prints the line: its first clause in any case. Nothing without a clause. */
void one_line_print(FILE *out, const char *title, const struct one_line *line, size_t width,
		    int color);
