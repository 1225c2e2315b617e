/* SPDX-License-Identifier: Apache-2.0 */
/* The drawing of a live view, by ncurses. */
#pragma once

#include <stdbool.h>

#include "cmd/tui/view.h"

/* Can a live view be drawn: are stdin and stdout one terminal that can place its cursor? 1, 0. */
bool watch_screen_is_possible(void);
/* Takes the terminal over. 0, -ENOTTY (error_set). */
int watch_screen_begin(void);
/* Gives it back as it was. */
void watch_screen_end(void);
/* How many rows a full screen may need. */
size_t watch_screen_rows(void);
/* detail: the lines of an opened row, NULL: none. Sets view->page and keeps view->top valid. */
void watch_screen_draw(struct watch_view *view, const struct watch_model *model,
		       const uint32_t *rows, size_t count, const char *header, const char *detail);
