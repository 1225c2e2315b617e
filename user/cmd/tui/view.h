/* SPDX-License-Identifier: Apache-2.0 */
/* What the user of a live view has chosen, and what a key changes. Draws nothing. */
#pragma once

#include "cmd/tui/groups.h"
#include "snapshot/ages.h"

struct source;

/* What the loop has to do for a key. */
enum watch_action {
	WATCH_DRAW, /* only draw again */
	WATCH_QUIT, /* end the view */
	WATCH_SAVE, /* write a snapshot */
	WATCH_ASK,  /* view.layer or model.by has changed: other sums are wanted */
	WATCH_OPEN, /* a row was opened or closed */
};

struct watch_view {
	struct watch_groups groups;
	uint32_t layer; /* as in struct request */
	int paused, help;
	int prompting; /* the filter is being typed */
	char typed[128];
	size_t cursor, top; /* index of a row among all; of the first row on the screen */
	size_t page;        /* rows on the screen, set by the drawing */
	int opened;         /* the row of that key is shown with its tracebacks */
	uint64_t open_key;
	size_t open_top;
	char message[256];    /* in the last line, until the next key */
	uint64_t interval_ns; /* since the last refresh */
	int ends_session;     /* quitting also ends the session */
	int by_age;           /* there are columns of ages */
	struct ages ages;     /* as in struct watch_opts */
};

/* key: as ncurses' getch() returns it. rows: the first ones of all. */
enum watch_action watch_view_key(struct watch_view *view, struct watch_model *model, int key,
				 const uint32_t *rows, size_t count);
/* The lines of a row that was opened: its source, its tracebacks. Escaped. */
void watch_detail(const struct watch_view *view, const struct watch_model *model,
		  struct source *source, FILE *out);
/* Some lines about all processes, WATCH_HEADER at least, once there was an answer. Escaped. */
#define WATCH_HEADER 4
void watch_header(const struct watch_view *view, const struct watch_model *model, uint64_t now_ns,
		  FILE *out);
/* Lines about keys. */
const char *watch_help(void);
