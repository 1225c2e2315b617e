/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line on the terminal behind stderr that is written again and again in its place. Whatever
 * else goes to that terminal clears it first: error.h's messages do so themselves.
 */
#ifndef TRACER_BASE_STATUS_LINE_H
#define TRACER_BASE_STATUS_LINE_H

#include <stddef.h>

/*
 * Is there a place for one: is stderr a terminal that can take a line back, and is this process in
 * its foreground? A shell may change the latter at any time. 1, 0.
 */
int status_line_is_possible(void);
/* Columns that there are for it now. */
size_t status_line_width(void);
/*
 * Shows the text, plain ASCII, in place of the last one. What is too wide for the terminal is cut
 * off.
 */
void status_line_show(const char *text);
/* Takes it back, if there is one. */
void status_line_clear(void);

#endif
