/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line on the terminal of stderr that is rewritten in place. Any other output to that terminal
 * clears it first; the messages of error.h do so themselves.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether a status line can be shown: stderr is a terminal that can erase a line, and this process
 * is in its foreground. A shell may change the latter at any time. 1, 0.
 */
bool status_line_is_possible(void);
/* Columns available for it now. */
size_t status_line_width(void);
/*
 * Shows the text, plain ASCII, in place of the last one. Text beyond the width of the terminal is
 * cut off.
 */
void status_line_show(const char *text);
/* Erases the line, if one is shown. */
void status_line_clear(void);
