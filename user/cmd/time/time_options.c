/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/time_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/recording/slope.h"
#include "util/array.h"
#include "util/error.h"
#include "util/terminal.h"

enum { KEY_GROUP_BY = 0x300, KEY_TOP, KEY_FORMAT, KEY_POINTS };

static const struct argp_option time_options[] = {
	{"group-by", KEY_GROUP_BY, "KEY", 0,
	 "filename, lineno (default; where no line is known, the function) or function", 1},
	{"top", KEY_TOP, "N", 0, "show N lines (default 10; 0: all)", 1},
	{"format", KEY_FORMAT, "FORMAT", 0, "text, json or, for timeline, html (default text)", 1},
	{"output", 'o', "FILE", 0, "write it there (default: stdout)", 1},
	CLI_OPTION_FORCE(1),
	{"points", KEY_POINTS, "N", 0,
	 "take at most N snapshots, evenly spread (2-1000; default 120, text of timeline 48)", 1},
	{0},
};

static error_t option_group(struct time_choice *choice, const char *arg)
{
	static const struct cli_word words[] = {{"filename", GROUP_FILENAME},
						{"lineno", GROUP_LINENO},
						{"function", GROUP_FUNCTION}};

	return CLI_WORD("--group-by", arg, words, choice->group);
}

error_t time_take_by(struct time_choice *choice, const char *others, const char *arg,
		     struct argp_state *state)
{
	char expected[128];
	error_t err = 0;

	if (cli_is_label(arg)) {
		choice->by = GROUP_LABEL;
		err = cli_parse_label(arg, state, &choice->label);
	} else if (!strcmp(arg, "thread")) {
		choice->by = GROUP_THREAD;
	} else if (!strcmp(arg, "task")) {
		choice->by = GROUP_TASK;
	} else {
		snprintf(expected, sizeof(expected),
			 "%sthread, task, context NAME or local FUNCTION:NAME", others ?: "");
		err = cli_reject("--by", arg, expected);
	}
	return err;
}

/* The order of the options does not matter. */
static error_t options_end(struct time_choice *choice)
{
	if (choice->by < GROUP_THREAD)
		return 0;
	choice->group = choice->by;
	if (!choice->group_asked && !choice->app.asked)
		return 0;
	error_print(error_set(-EINVAL, "it is in place of lines; --group-by, --app and --mine are "
				       "about lines"),
		    "drop it, or drop the others", "--by");
	return CLI_REPORTED;
}

static error_t option_format(struct time_choice *choice, const char *arg)
{
	static const char *const names[] = {"text", "json", "html"};

	for (int i = 0; i < 2 + choice->has_html; i++)
		if (!strcmp(arg, names[i])) {
			choice->format = (enum time_format)i;
			return 0;
		}
	return cli_reject("--format", arg, choice->has_html ? "text, json or html" : "text, json");
}

static error_t time_option(int key, char *arg, struct argp_state *state)
{
	struct time_choice *choice = state->input;
	uint64_t number;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &choice->filter;
		state->child_inputs[1] = &choice->app;
		state->child_inputs[2] = &choice->view;
		state->child_inputs[3] = &choice->layer;
		return 0;
	case KEY_GROUP_BY:
		choice->group_asked = 1;
		return option_group(choice, arg);
	case ARGP_KEY_END:
		return options_end(choice);
	case KEY_FORMAT:
		return option_format(choice, arg);
	case CLI_KEY_FORCE:
		choice->replace = OUTFILE_ANY;
		return 0;
	case 'o':
		choice->output = arg;
		return 0;
	case KEY_TOP:
		if (cli_parse_number(arg, 0, UINT32_MAX, &number))
			return cli_reject("--top", arg, "a number; 0: all");
		choice->top = number;
		choice->top_asked = 1;
		return 0;
	case KEY_POINTS:
		if (cli_parse_number(arg, 2, SLOPE_POINTS_MAX, &number))
			return cli_reject("--points", arg, "a number from 2 to 1000");
		choice->points = number;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_child time_children[] = {{&cli_filter_argp, 0, NULL, 0},
						  {&cli_app_argp, 0, NULL, 0},
						  {&cli_view_argp, 0, NULL, 0},
						  {&cli_layer_argp, 0, NULL, 0},
						  {0}};
const struct argp time_argp = {
	.options = time_options, .parser = time_option, .children = time_children};

void time_choice_default(struct time_choice *choice)
{
	*choice = (struct time_choice){.group = GROUP_LINENO, .layer = -1, .top = 10};
}

void time_choice_free(struct time_choice *choice)
{
	filters_free(&choice->filter.filters);
	app_free(&choice->app);
	view_free(&choice->view);
}

int time_series_read(const struct time_choice *choice, const char *path, size_t points,
		     struct series *out)
{
	const struct series_opts opts = {
		.label = choice->label.text,
		.statistics = {.by = choice->group,
			       .filters = &choice->filter.filters,
			       .app = &choice->app,
			       .sort = SORT_SIZE},
		.view = &choice->view,
		.layer = choice->layer,
		.moments = choice->points ? choice->points : points,
	};
	int err = series_read(path, &opts, out);

	if (err)
		return error_print(err, err == -EBADMSG ? "tracer --record FILE makes one" : NULL,
				   "%s", path);
	if (out->damage[0])
		log_info("%s: %s", path, out->damage);
	return 0;
}

/* A text as it is laid out for a terminal (util/terminal.h), in its place. 0, -ENOMEM. */
static int lay_out(char **text, size_t *bytes, size_t width)
{
	char *page = NULL;
	FILE *out = open_memstream(&page, bytes);

	if (!out)
		return -ENOMEM;
	terminal_print(out, *text, width);
	if (fclose(out)) {
		free(page);
		return -ENOMEM;
	}
	free(*text);
	*text = page;
	return 0;
}

/* Prints to memory, then to the file; width: of the terminal that it is, 0: it is none. */
static int file_write(struct outfile *file, time_print_fn print, const void *context, size_t width)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int err = out ? print(context, out) : -ENOMEM;

	if (out && fclose(out) && !err)
		err = -ENOMEM;
	if (!err && width)
		err = lay_out(&text, &bytes, width);
	err = err ?: outfile_write(file, text, bytes);
	free(text);
	return outfile_end(file, err);
}

size_t time_width(const struct time_choice *choice)
{
	return choice->output || choice->format != TIME_TEXT ? 0 : terminal_width(stdout);
}

int time_write(const struct time_choice *choice, time_print_fn print, const void *context)
{
	const char *name = choice->output ? choice->output : "-";
	struct outfile *file;
	int err = outfile_open(&file, name, choice->replace)
			  ?: file_write(file, print, context, time_width(choice));

	if (!err)
		return EXIT_DONE;
	error_print(err, NULL, "%s", choice->output ? choice->output : "stdout");
	return EXIT_FAILED;
}
