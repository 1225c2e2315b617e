/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page of text for a terminal. What is written is collected, then laid out so that nothing is
 * wider than the terminal:
 *
 *   - Lines with tabs are the rows of a table; the first of them has its titles. Indented lines
 *     below a row are notes on it.
 *   - Other lines are broken at spaces.
 *
 * A table's columns are to the right, or to the left if their titles begin with '<'. The last one
 * is to the left and takes what remains: its texts are shortened in the middle. A column without a
 * text is left out, and one whose title begins with '?' if the last one would be narrow.
 */
#pragma once

#include <stdio.h>

struct terminal {
	FILE **stream, *real; /* real NULL: nothing is collected */
	char *text;
	size_t bytes, width;
};

/* Columns of the terminal that out is; 0: it is none, and nothing is laid out. */
size_t terminal_width(FILE *out);
/*
 * What is written to *stream is collected until terminal_end(), if it is a terminal: *stream (it
 * may be stdout) is another one meanwhile. Without memory the text is printed as it comes.
 */
void terminal_begin(struct terminal *terminal, FILE **stream);
/* Prints what was collected; nothing of one that is zero. */
void terminal_end(struct terminal *terminal);

/* Lays a text out for a terminal of width columns. */
void terminal_print(FILE *out, const char *text, size_t width);
