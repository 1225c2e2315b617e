/* SPDX-License-Identifier: Apache-2.0 */
/* The options that tracer timeline and tracer leaks share. */
#pragma once

#include "cmd/options/options.h"
#include "report/recording/series.h"

enum time_format { TIME_TEXT, TIME_JSON, TIME_HTML };

struct time_choice {
	enum group_by group;     /* or, of --by, GROUP_THREAD, GROUP_TASK, GROUP_LABEL */
	enum group_by by;        /* --by; below GROUP_THREAD: it was not given */
	struct label_spec label; /* GROUP_LABEL */
	int group_asked;         /* --group-by was given */
	struct filter_choice filter;
	struct app app;
	struct view_choice view;
	int layer;
	size_t top; /* 0: all lines */
	int top_asked;
	size_t points; /* 0: as many as the format has room for */
	enum time_format format;
	int has_html;       /* set by the caller: it has such a format */
	const char *output; /* borrowed; NULL: stdout */
	enum outfile_replace replace;
};

/* The input is a struct time_choice that time_choice_default() has set. */
extern const struct argp time_argp;
void time_choice_default(struct time_choice *choice);
void time_choice_free(struct time_choice *choice);

/*
 * Takes the argument of --by: thread, task, context NAME, local FUNCTION:NAME. others: words that
 * the command has besides, for the message; NULL: none. 0, or what a parser is to return.
 */
error_t time_take_by(struct time_choice *choice, const char *others, const char *arg,
		     struct argp_state *state);

/*
 * Reads the recording at path at no more than `points` moments, and says on stderr what of it is
 * not whole. 0; -errno after a message. series_free() releases.
 */
int time_series_read(const struct time_choice *choice, const char *path, size_t points,
		     struct series *out);

/* Columns of the terminal that is printed to; 0: it is none. */
size_t time_width(const struct time_choice *choice);
/*
 * Writes to choice->output, or to stdout, what `print` prints. EXIT_DONE; EXIT_FAILED after a
 * message. print: 0, -errno.
 */
typedef int (*time_print_fn)(const void *context, FILE *out);
int time_write(const struct time_choice *choice, time_print_fn print, const void *context);
