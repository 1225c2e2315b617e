/* SPDX-License-Identifier: Apache-2.0 */
/* What several commands share: parsing, and printing a report as asked for. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "export/pprof.h"

int cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || *end || *number < low || *number > high ? -EINVAL : 0;
}

int cli_parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	char *end;
	const char *unit;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*bytes = strtoull(text, &end, 10);
	if (errno || *bytes > 1ull << 40)
		return -EINVAL;
	if (!*end)
		return 0;
	unit = strchr(units, toupper((unsigned char)*end));
	if (!unit || end[1])
		return -EINVAL;
	*bytes <<= 10 * (unit - units + 1);
	return 0;
}

int cli_parse_seconds(const char *text, uint64_t *ns)
{
	char *end;
	double seconds;

	errno = 0;
	seconds = strtod(text, &end);
	if (errno || end == text || *end || !isfinite(seconds) || seconds <= 0 || seconds > 1e9)
		return -EINVAL;
	*ns = (uint64_t)(seconds * 1e9);
	return 0;
}

const char *cli_remedy(int err)
{
	switch (err) {
	case -ESRCH:
		return "tracer list shows what can be traced";
	case -ENOENT:
		return "tracer list shows which processes run a Python that is known; where it is yet to be "
		       "loaded, use --wait";
	case -EPERM:
	case -EACCES:
		return geteuid() ? "run it with sudo"
				 : "root is not enough: a security module, a user namespace or a lost "
				   "capability "
				   "forbids it";
	default:
		return NULL;
	}
}

static int pid_is_in(const pid_t *list, size_t count, uint64_t pid)
{
	for (size_t i = 0; i < count; i++)
		if ((uint64_t)list[i] == pid)
			return 1;
	return 0;
}

int cli_parse_pids(const char *text, pid_t **pids, size_t *count)
{
	char *copy = strdup(text), *state = copy;
	pid_t *list = NULL;
	int err = copy ? 0 : -ENOMEM;

	*count = 0;
	for (char *word = NULL; !err && (word = strsep(&state, ","));) {
		pid_t *more = realloc(list, (*count + 1) * sizeof(*list));
		uint64_t number;

		if (!more) {
			err = -ENOMEM;
			break;
		}
		list = more;
		if (cli_parse_number(word, 1, 1 << 22, &number)) {
			err = error_set(-EINVAL, "\"%s\" is not a process id", word);
			break;
		}
		if (!pid_is_in(list, *count, number))
			list[(*count)++] = number;
	}
	free(copy);
	if (!err && !*count)
		err = error_set(-EINVAL, "\"%s\" names no process", text);
	if (err) {
		free(list);
		return err;
	}
	*pids = list;
	return 0;
}

/* Around the parser of each command: argp's own messages take two lines and do not name the remedy. */
struct root_input {
	void *input;
	const char *culprit;
};

static error_t root_parse(int key, char *arg, struct argp_state *state)
{
	struct root_input *root = state->input;

	(void)arg;
	if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = root->input;
	else if (key == ARGP_KEY_ERROR && state->next > 0 && state->next <= state->argc)
		root->culprit = state->argv[state->next - 1];
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

int cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
	const char *slash = strrchr(argv[0], '/');
	char name[32];
	error_t err;

	/* "tracer report", and just "tracer" where the word may be left out. */
	snprintf(name, sizeof(name), "tracer%s%s", slash || !strcmp(argv[0], "tracer") ? "" : " ",
		 slash || !strcmp(argv[0], "tracer") ? "" : argv[0]);
	/* argp would end the process after --help and after its own messages: those return here instead. */
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || !strcmp(argv[i], "--usage")) {
			argp_help(argp, stdout,
				  strcmp(argv[i], "--usage")
					  ? ARGP_HELP_LONG | ARGP_HELP_PRE_DOC | ARGP_HELP_POST_DOC |
						    ARGP_HELP_SHORT_USAGE
					  : ARGP_HELP_USAGE,
				  name);
			return -1;
		}
		if ((flags & ARGP_IN_ORDER) && argv[i][0] != '-')
			break;
	}
	struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
	struct argp root = {.parser = root_parse, .children = children};
	struct root_input root_input = {.input = input};

	err = argp_parse(&root, argc, argv, flags | ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_NO_ERRS, NULL,
			 &root_input);
	if (!err)
		return 0;
	if (err != CLI_REPORTED)
		error_print(error_set(-EINVAL, "not an option, or its value is missing"), "--help lists them",
			    "%s", root_input.culprit ? root_input.culprit : argv[0]);
	return EXIT_USAGE;
}

error_t cli_parse_arguments(int key, struct argp_state *state, struct cli_arguments *arguments)
{
	if (key != ARGP_KEY_ARGS)
		return ARGP_ERR_UNKNOWN;
	arguments->items = state->argv + state->next;
	arguments->count = state->argc - state->next;
	return 0;
}

enum { KEY_GROUP_BY = 0x100, KEY_CUMULATIVE, KEY_TOP, KEY_FORMAT };

/* Says which value the option does not have. */
static error_t reject(const char *option, const char *arg)
{
	error_print(error_set(-EINVAL, "\"%s\" is not one of its values", arg), "--help lists them", "%s",
		    option);
	return CLI_REPORTED;
}

static const struct argp_option output_options[] = {
	{"top", KEY_TOP, "N", 0, "print N entries (default 10; 0: all)", 10},
	{"format", KEY_FORMAT, "KIND", 0, "text (default) or json", 10},
	{0},
};

static error_t output_option(int key, char *arg, struct argp_state *state)
{
	struct report_choice *choice = state->input;
	uint64_t number;

	switch (key) {
	case KEY_TOP:
		if (cli_parse_number(arg, 0, SIZE_MAX, &number))
			return reject("--top", arg);
		choice->opts.top = number;
		return 0;
	case KEY_FORMAT:
		if (!strcmp(arg, "text"))
			choice->format = FORMAT_TEXT;
		else if (!strcmp(arg, "json"))
			choice->format = FORMAT_JSON;
		else
			return reject("--format", arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_output_argp = {.options = output_options, .parser = output_option};

static const struct argp_option report_options[] = {
	{"group-by", KEY_GROUP_BY, "KEY", 0, "filename, lineno (default) or traceback", 10},
	{"cumulative", KEY_CUMULATIVE, NULL, 0, "count a block for every frame of its traceback", 10},
	{0},
};

static error_t report_option(int key, char *arg, struct argp_state *state)
{
	struct report_choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = choice;
		return 0;
	case KEY_GROUP_BY:
		if (!strcmp(arg, "filename"))
			choice->opts.by = GROUP_FILENAME;
		else if (!strcmp(arg, "lineno"))
			choice->opts.by = GROUP_LINENO;
		else if (!strcmp(arg, "traceback"))
			choice->opts.by = GROUP_TRACEBACK;
		else
			return reject("--group-by", arg);
		return 0;
	case KEY_CUMULATIVE:
		choice->opts.cumulative = 1;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_child report_children[] = {{&cli_output_argp, 0, NULL, 0}, {0}};
const struct argp cli_report_argp = {
	.options = report_options, .parser = report_option, .children = report_children};

void report_choice_default(struct report_choice *choice)
{
	memset(choice, 0, sizeof(*choice));
	choice->opts.by = GROUP_LINENO;
	choice->opts.top = 10;
	choice->opts.color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
}

int cli_report_print(const struct snapshot *snapshot, const struct report_choice *choice)
{
	int err = choice->format == FORMAT_JSON ? report_json(snapshot, &choice->opts, stdout)
						: report_text(snapshot, &choice->opts, stdout);

	if (!err && fflush(stdout))
		err = -errno;
	if (!err)
		return EXIT_DONE;
	error_print(err, NULL, "report");
	return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

int cli_snapshot_save(const struct snapshot *snapshot, struct outfile *file)
{
	int err = pprof_write(snapshot, file);

	if (!err)
		return outfile_commit(file);
	outfile_discard(file);
	return err;
}
