/* SPDX-License-Identifier: Apache-2.0 */
/* tracer timeline: a recording over time. */
#include <langinfo.h>
#include <locale.h>
#include <string.h>

#include "cmd/cli.h"
#include "cmd/time/time_options.h"
#include "cmd/time/timeline_text.h"
#include "util/error.h"

#define POINTS_TEXT 48 /* with the figures and a name it fits in most terminals */
#define POINTS      120

struct timeline_command {
	struct time_choice choice;
	struct cli_arguments files;
};

enum { KEY_BY = 0x500 };

static const struct argp_option options[] = {
	{"by", KEY_BY, "OWNER", 0,
	 "thread, task, context NAME or local FUNCTION:NAME in place of lines, if the recording "
	 "was made with that",
	 1},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct timeline_command *command = state->input;

	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &command->choice;
		return 0;
	}
	if (key == KEY_BY)
		return time_take_by(&command->choice, NULL, arg, state);
	return cli_parse_arguments(key, state, &command->files);
}

static int timeline_show(const struct timeline_command *command)
{
	static const time_print_fn print[] = {[TIME_TEXT] = timeline_text,
					      [TIME_JSON] = timeline_json,
					      [TIME_HTML] = timeline_html};
	const struct time_choice *choice = &command->choice;
	struct series series;
	struct timeline timeline = {.series = &series,
				    .name = command->files.items[0],
				    .by = choice->group,
				    .top = choice->top};

	if (time_series_read(choice, timeline.name,
			     choice->format == TIME_TEXT ? POINTS_TEXT : POINTS, &series))
		return EXIT_FAILED;
	setlocale(LC_CTYPE, "");
	timeline.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	int status = time_write(choice, print[choice->format], &timeline);
	series_free(&series);
	return status;
}

int cli_timeline(int argc, char **argv)
{
	static const struct argp_child children[] = {{&time_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE",
		.doc = "A recording (tracer --record FILE) over time: the total, RSS, and the "
		       "lines that held most.",
		.children = children,
	};
	struct timeline_command command = {0};

	time_choice_default(&command.choice);
	command.choice.has_html = 1;
	int status = cli_parse(&argp, argc, argv, 0, &command);
	if (!status && command.files.count != 1) {
		error_print(error_set(-EINVAL, "one recording is shown"), "tracer timeline FILE",
			    "timeline");
		status = EXIT_USAGE;
	}
	if (!status)
		status = timeline_show(&command);
	time_choice_free(&command.choice);
	return status < 0 ? EXIT_DONE : status;
}
