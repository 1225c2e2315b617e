/* SPDX-License-Identifier: Apache-2.0 */
/* The options of all commands that print reports or choose traces, and the printing of a report. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/options/options.h"
#include "cmd/options/presets.h"
#include "cmd/options/source_roots.h"
#include "report/caveats/completeness.h"
#include "trace/trace.h"
#include "util/array.h"
#include "util/error.h"
#include "util/size.h"
#include "util/terminal.h"
#include "util/text.h"

enum {
	KEY_GROUP_BY = 0x100,
	KEY_CUMULATIVE,
	KEY_TOP,
	KEY_FORMAT,
	KEY_SOURCE,
	KEY_INCLUDE,
	KEY_EXCLUDE,
	KEY_ALL_FRAMES,
	KEY_DOMAIN,
	KEY_NOT_DOMAIN,
	KEY_BY,
	KEY_PID,
	KEY_APP,
	KEY_MINE,
	KEY_NO_INHERITED,
	KEY_NO_INLINE,
	KEY_SORT,
	KEY_TEMPORARY,
};

static const struct argp_option filter_options[] = {
	{"include", KEY_INCLUDE, "PATTERN[:LINE]", 0,
	 "only blocks of matching files (* ? [a-z] [!a-z], as tracemalloc.Filter); with several "
	 "inclusive options, domains included, one match is enough",
	 11},
	{"exclude", KEY_EXCLUDE, "PATTERN[:LINE]", 0, "no blocks of matching files", 11},
	{"all-frames", KEY_ALL_FRAMES, NULL, 0,
	 "patterns match all frames of a traceback, not only the most recent", 11},
	{"domain", KEY_DOMAIN, "N", 0, "only blocks of that domain (0: Python's allocators)", 11},
	{"not-domain", KEY_NOT_DOMAIN, "N", 0, "no blocks of that domain", 11},
	{"no-inherited", KEY_NO_INHERITED, NULL, 0,
	 "no blocks that a forked process inherited from its parent", 11},
	{0},
};

static error_t filter_domain(struct filter_choice *choice, int inclusive, const char *arg)
{
	uint64_t number;

	if (cli_parse_number(arg, 0, UINT32_MAX, &number))
		return cli_reject(inclusive ? "--domain" : "--not-domain", arg,
				  "a number, 0 for Python's allocators");
	return -filters_add_domain(&choice->filters, inclusive, (uint32_t)number);
}

static error_t filter_option(int key, char *arg, struct argp_state *state)
{
	struct filter_choice *choice = state->input;

	switch (key) {
	case KEY_INCLUDE:
	case KEY_EXCLUDE:
		return -filters_add_file(&choice->filters, key == KEY_INCLUDE, arg);
	case KEY_NO_INHERITED:
		choice->filters.no_inherited = 1;
		return 0;
	case KEY_ALL_FRAMES:
		choice->all_frames = 1;
		return 0;
	case KEY_DOMAIN:
	case KEY_NOT_DOMAIN:
		return filter_domain(choice, key == KEY_DOMAIN, arg);
	case ARGP_KEY_END: /* applies to all patterns, wherever the option was given */
		if (choice->all_frames)
			filters_all_frames(&choice->filters);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_filter_argp = {.options = filter_options, .parser = filter_option};

static const struct argp_option app_options[] = {
	{"app", KEY_APP, NULL, 0,
	 "charge each block to the most recent frame of the application, that is outside the "
	 "standard library, site-packages, dist-packages and <frozen ...>",
	 10},
	{"mine", KEY_MINE, "PATTERN", 0,
	 "the same, with the files that match as the application (* ? [a-z] [!a-z]; repeatable)",
	 10},
	{0},
};

static error_t app_option(int key, char *arg, struct argp_state *state)
{
	struct app *app = state->input;

	switch (key) {
	case KEY_APP:
		app->asked = 1;
		return 0;
	case KEY_MINE:
		return -app_add(app, arg);
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_app_argp = {.options = app_options, .parser = app_option};

#define OUTPUT_OPTIONS(kinds)                                                                      \
	{                                                                                          \
		{"top", KEY_TOP, "N", 0, "print N entries (default 10; 0: all)", 10},              \
			{"format", KEY_FORMAT, "KIND", 0, kinds, 10}, {0},                         \
	}

static const struct argp_option output_options[] =
	OUTPUT_OPTIONS("text (default), json or, for snapshots, csv");
static const struct argp_option figures_options[] = OUTPUT_OPTIONS("text (default) or json");
static const struct argp_option graphs_options[] =
	OUTPUT_OPTIONS("text (default), json, heapsnapshot or pprof");

static error_t output_parse(int key, char *arg, struct argp_state *state,
			    const struct cli_word *words, size_t count)
{
	struct report_choice *choice = state->input;
	uint64_t number;

	switch (key) {
	case KEY_TOP:
		if (cli_parse_number(arg, 0, SIZE_MAX, &number))
			return cli_reject("--top", arg, "a number; 0: all");
		choice->opts.top = number;
		choice->opts.top_asked = 1;
		return 0;
	case KEY_FORMAT: {
		int format = choice->format;
		error_t err = cli_parse_word("--format", arg, words, count, &format);

		choice->format = format;
		choice->format_asked |= !err;
		return err;
	}
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t output_option(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word words[] = {
		{"text", FORMAT_TEXT}, {"json", FORMAT_JSON}, {"csv", FORMAT_CSV}};

	return output_parse(key, arg, state, words, ARRAY_SIZE(words));
}

static error_t figures_option(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word words[] = {{"text", FORMAT_TEXT}, {"json", FORMAT_JSON}};

	return output_parse(key, arg, state, words, ARRAY_SIZE(words));
}

static error_t graphs_option(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word words[] = {{"text", FORMAT_TEXT},
						{"json", FORMAT_JSON},
						{"heapsnapshot", FORMAT_HEAPSNAPSHOT},
						{"pprof", FORMAT_PPROF}};

	return output_parse(key, arg, state, words, ARRAY_SIZE(words));
}

const struct argp cli_output_argp = {.options = output_options, .parser = output_option};
const struct argp cli_figures_argp = {.options = figures_options, .parser = figures_option};
const struct argp cli_graphs_argp = {.options = graphs_options, .parser = graphs_option};

static const struct argp_option report_options[] = {
	{"group-by", KEY_GROUP_BY, "KEY", 0,
	 "filename, lineno (default; where no line is known, the function), function or "
	 "traceback; or blocks by their size or (exact mode) lifetime",
	 10},
	{"by", KEY_BY, "OWNER", 0,
	 "group by owner instead of lines: process, comm (command), container, thread, task "
	 "(asyncio's), greenlet, or by what the blocks were allocated for: context "
	 "NAME[.attribute...], the value of a context variable, local "
	 "FUNCTION:NAME[.attribute...], that of a variable in the nearest frame of a function, or "
	 "what a library keeps there: otel-trace, otel-span, otel-name (OpenTelemetry), django, "
	 "django-view, flask, flask-endpoint, starlette, fastapi, structlog:KEY, celery, "
	 "celery-task, rq, rq-function; a trace tells what is after container only if it was begun "
	 "with that",
	 10},
	{"cumulative", KEY_CUMULATIVE, NULL, 0,
	 "count a block for every line of its traceback, once where a recursion has it several "
	 "times (json and csv: also as often as it occurs, as tracemalloc counts)",
	 10},
	{"sort", KEY_SORT, "KEY", 0,
	 "size (default); allocated: by what was allocated since the trace began, with the lines "
	 "of which nothing is alive; temporary: the same by blocks that were freed before their "
	 "thread's next allocation (exact mode), or were gone at the next heap walk (census mode)",
	 10},
	{"temporary", KEY_TEMPORARY, "N", 0,
	 "call a block temporary if its thread frees it before it allocates another one (0, the "
	 "default; heaptrack's rule), or with at most one other allocation in between (1; memray's "
	 "--temporary-allocations); exact mode",
	 10},
	{"source", KEY_SOURCE, NULL, 0,
	 "with text, print the source line under each entry, as the file is now", 10},
	CLI_OPTION_REQUIRE_COMPLETE(10),
	{0},
};

/* "context NAME", "local FUNCTION:NAME", which may be two arguments, "greenlet", or a preset. */
static int label_parse(const char *arg, struct argp_state *state, struct label_spec *out)
{
	bool is_context = !strncmp(arg, "context", 7);

	if (!strcmp(arg, "greenlet")) {
		*out = (struct label_spec){ABI_LABEL_GREENLET, .text = "greenlet"};
		return 0;
	}
	if (!is_context && strncmp(arg, "local", 5) != 0)
		return presets_parse(arg, out);
	const char *text = arg + (is_context ? 7 : 5);
	if (*text)
		text += strspn(text, " =");
	else if (state && state->next < state->argc && state->argv[state->next][0] != '-')
		text = state->argv[state->next++];
	return label_spec_parse(is_context ? ABI_LABEL_CONTEXT : ABI_LABEL_LOCAL, text, out);
}

bool cli_is_label(const char *arg)
{
	struct label_spec spec;
	int err = label_parse(arg, NULL, &spec);

	error_forget(err);
	return err != -ENOENT;
}

error_t cli_parse_label(const char *arg, struct argp_state *state, struct label_spec *out)
{
	int err = label_parse(arg, state, out);

	if (!err)
		return 0;
	error_print(err, "tracer --help lists what it takes", "--by %s", arg);
	return CLI_REPORTED;
}

static error_t option_label(struct report_choice *choice, const char *arg, struct argp_state *state)
{
	error_t err = cli_parse_label(arg, state, &choice->label);

	if (err)
		return err;
	choice->opts.label = choice->label.text;
	choice->opts.by = GROUP_LABEL;
	return 0;
}

static error_t option_by(struct report_choice *choice, const char *arg, struct argp_state *state)
{
	static const struct cli_word words[] = {
		{"process", GROUP_PROCESS}, {"comm", GROUP_COMM}, {"container", GROUP_CONTAINER},
		{"thread", GROUP_THREAD},   {"task", GROUP_TASK}, {"greenlet", GROUP_LABEL}};

	if (cli_is_label(arg))
		return option_label(choice, arg, state);
	return CLI_WORD("--by", arg, words, choice->opts.by);
}

static error_t option_group(struct report_choice *choice, const char *arg)
{
	static const struct cli_word words[] = {
		{"filename", GROUP_FILENAME}, {"lineno", GROUP_LINENO},
		{"function", GROUP_FUNCTION}, {"traceback", GROUP_TRACEBACK},
		{"size", GROUP_SIZE},         {"lifetime", GROUP_LIFETIME}};

	choice->lines_asked = 1;
	return CLI_WORD("--group-by", arg, words, choice->group);
}

static error_t option_sort(struct report_choice *choice, const char *arg)
{
	static const struct cli_word words[] = {
		{"size", SORT_SIZE}, {"allocated", SORT_ALLOCATED}, {"temporary", SORT_TEMPORARY}};

	return CLI_WORD("--sort", arg, words, choice->opts.sort);
}

static error_t option_temporary(struct report_choice *choice, const char *arg)
{
	uint64_t others;

	if (cli_parse_number(arg, 0, 1, &others))
		return cli_reject("--temporary", arg, "0 or 1");
	choice->opts.temporary_others = (uint32_t)others;
	return 0;
}

/* The order of the options does not matter. */
static error_t options_end(struct report_choice *choice)
{
	if (choice->opts.by < GROUP_PROCESS) {
		choice->opts.by = choice->group;
		return 0;
	}
	if (!choice->lines_asked && !choice->app.asked)
		return 0;
	error_print(
		error_set(
			-EINVAL,
			"it groups by whole processes, threads or tasks; --group-by, --cumulative, "
			"--source, --app and --mine are about lines"),
		"drop it, or drop the others", "--by");
	return CLI_REPORTED;
}

static error_t report_option(int key, char *arg, struct argp_state *state)
{
	struct report_choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = choice;
		state->child_inputs[1] = &choice->filter;
		state->child_inputs[2] = &choice->app;
		state->child_inputs[3] = &choice->view;
		return 0;
	case KEY_GROUP_BY:
		return option_group(choice, arg);
	case KEY_BY:
		return option_by(choice, arg, state);
	case KEY_SORT:
		return option_sort(choice, arg);
	case KEY_TEMPORARY:
		return option_temporary(choice, arg);
	case ARGP_KEY_END:
		return options_end(choice);
	case KEY_CUMULATIVE:
		choice->opts.cumulative = choice->lines_asked = 1;
		return 0;
	case KEY_SOURCE:
		choice->opts.source = choice->lines_asked = 1;
		return 0;
	case CLI_KEY_REQUIRE_COMPLETE:
		choice->require_complete = 1;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_child report_children[] = {{&cli_output_argp, 0, NULL, 0},
						    {&cli_filter_argp, 0, NULL, 0},
						    {&cli_app_argp, 0, NULL, 0},
						    {&cli_view_argp, 0, NULL, 0},
						    {0}};
const struct argp cli_report_argp = {
	.options = report_options, .parser = report_option, .children = report_children};

static const struct argp_option pid_options[] = {
	{"pid", KEY_PID, "PID", 0, "only this one of several processes (repeatable)", 11},
	{"no-inline", KEY_NO_INLINE, NULL, 0,
	 "native frames without the functions that are inlined into others", 11},
	{0},
};

static error_t pid_option(int key, char *arg, struct argp_state *state)
{
	struct pid_choice *choice = state->input;
	uint64_t pid;

	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &choice->ages;
		return 0;
	}
	if (key == KEY_NO_INLINE) {
		choice->no_inline = 1;
		return 0;
	}
	if (key != KEY_PID)
		return ARGP_ERR_UNKNOWN;
	if (cli_parse_number(arg, 1, UINT32_MAX, &pid))
		return cli_reject("--pid", arg, "a process id");
	int err = ARRAY_GROW(choice->pids, choice->capacity, choice->count);
	if (!err)
		choice->pids[choice->count++] = (uint32_t)pid;
	return -err;
}

static const struct argp_child pid_children[] = {{&cli_ages_argp, 0, NULL, 0}, {0}};
const struct argp cli_pid_argp = {
	.options = pid_options, .parser = pid_option, .children = pid_children};

void pid_choice_free(struct pid_choice *choice)
{
	free(choice->pids);
}

static void out_set(struct report_choice *choice, FILE *out)
{
	choice->out = out;
	choice->opts.color = isatty(fileno(out)) && !getenv("NO_COLOR");
	choice->opts.tables = terminal_width(out) != 0;
	choice->opts.brief = choice->verbose ? 0 : terminal_width(out);
}

void report_choice_next(struct report_choice *choice, const char *path)
{
	int shown;

	choice->opts.next = NULL;
	if (!text_is_plain(path))
		return;
	if (choice->opts.by == GROUP_TRACEBACK)
		shown = snprintf(choice->next, sizeof(choice->next),
				 "tracer export %s --format html -o %s.html", path, path);
	else
		shown = snprintf(choice->next, sizeof(choice->next),
				 "tracer report %s --group-by traceback", path);
	if (shown < (int)sizeof(choice->next))
		choice->opts.next = choice->next;
}

void report_choice_verbose(struct report_choice *choice)
{
	choice->verbose = 1;
	choice->opts.brief = 0;
}

void report_choice_extra(struct report_choice *choice, const char *snapshot)
{
	if (snapshot && !strcmp(snapshot, "-"))
		out_set(choice, stderr);
}

void report_choice_default(struct report_choice *choice)
{
	memset(choice, 0, sizeof(*choice));
	choice->layer.layer = -1;
	choice->ages.ages = (struct ages)AGES_ALL;
	choice->opts.by = choice->group = GROUP_LINENO;
	choice->opts.top = 10;
	out_set(choice, stdout);
}

void report_choice_free(struct report_choice *choice)
{
	filters_free(&choice->filter.filters);
	app_free(&choice->app);
	view_free(&choice->view);
}

void cli_dropped_print(const struct trace *trace)
{
	struct trace_dropped dropped = trace_dropped(trace);

	if (dropped.processes)
		log_info("%llu processes that have ended, or that there was no memory for, are not "
			 "in the report: they held %llu blocks, %s; at most %u ended processes are "
			 "kept, fewer if the memory budget is used up (--budget)",
			 (unsigned long long)dropped.processes, (unsigned long long)dropped.blocks,
			 SIZE_TEXT(dropped.bytes), TRACE_ENDED_MAX);
}

void cli_cut_print(const struct snapshot *snapshot)
{
	uint64_t all = 0, cut = 0;

	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		const struct snapshot_traceback *of = &snapshot->tracebacks[trace->traceback];
		uint64_t bytes = trace->bytes * trace->count;

		all += bytes;
		if (of->total != SNAPSHOT_TOTAL_UNKNOWN && of->total > of->nframe)
			cut += bytes;
	}
	if (cut > all / 2 && snapshot->meta.traceback_limit < EVENT_MAX_FRAMES)
		log_info("%.0f %% of the bytes have tracebacks that were cut at %u frames: their "
			 "callers are missing; a trace with -n %u keeps more",
			 100 * (double)cut / (double)all, snapshot->meta.traceback_limit,
			 snapshot->meta.traceback_limit < 64 ? 64 : EVENT_MAX_FRAMES);
}

int cli_incomplete(const char *name, const char *why)
{
	error_print(error_set(-ENODATA, "%s", why), "the report has what is known (-v)", "%s%s%s",
		    name ?: "", name ? ": " : "", "figures are incomplete");
	return EXIT_INCOMPLETE;
}

int cli_require_complete(const struct report_choice *choice, const struct snapshot *snapshot,
			 const char *name, int status)
{
	char why[INCOMPLETE_WHY];

	if (status != EXIT_DONE || !choice->require_complete || figures_are_complete(snapshot, why))
		return status;
	return cli_incomplete(name, why);
}

/* Totals are the same however blocks are grouped. */
static int size_diff_read(const struct snapshot *snapshot, const struct report_opts *opts,
			  int64_t *diff)
{
	const struct statistics_opts by = {.by = GROUP_FILENAME, .filters = opts->filters};
	struct statistics statistics;
	int err = statistics_compare(snapshot, opts->old, &by, &statistics);

	if (err)
		return err;
	*diff = (int64_t)(statistics.total_size - statistics.old_total_size);
	statistics_free(&statistics);
	return 0;
}

static int ages_check(const struct snapshot *snapshot, const struct report_choice *choice)
{
	if (!snapshot->meta.of_ages ||
	    (choice->opts.by < GROUP_LIFETIME && choice->opts.sort == SORT_SIZE &&
	     !choice->layer.at_peak && choice->layer.layer != EVENT_LAYER_MMAP &&
	     choice->layer.layer != EVENT_LAYER_PAGES))
		return 0;
	return error_set(-EINVAL, "of blocks of some ages no more is known than what is alive of "
				  "them, by line, process and size; mapped memory has no ages");
}

int cli_report_print(const struct snapshot *snapshot, const struct report_choice *choice)
{
	static int (*const print[])(const struct snapshot *, const struct report_opts *,
				    FILE *) = {[FORMAT_TEXT] = report_text,
					       [FORMAT_JSON] = report_json,
					       [FORMAT_CSV] = report_csv};
	struct report_opts opts = choice->opts;
	struct snapshot chosen, old;
	struct shown shown = {0}, shown_old = {0};
	struct source_roots roots = {0};
	int err =
		ages_check(snapshot, choice) ?: cli_layer_choose(snapshot, &choice->layer, &chosen);

	if (!err && opts.old)
		err = cli_layer_choose(opts.old, &choice->layer, &old);
	err = err ?: view_apply(&choice->view, &chosen, &shown);
	if (!err && opts.old)
		err = view_apply(&choice->view, &old, &shown_old);
	if (opts.old)
		opts.old = &shown_old.snapshot;
	opts.filters = &choice->filter.filters;
	if (!err && opts.source) {
		source_roots_open(snapshot, choice->live, &roots);
		opts.roots = &roots;
	}
	opts.app = &choice->app;
	err = err ?: print[choice->format](&shown.snapshot, &opts, choice->out);
	if (!err && choice->size_diff)
		err = size_diff_read(&shown.snapshot, &opts, choice->size_diff);
	if (!err && (opts.by == GROUP_TRACEBACK || opts.cumulative || choice->app.asked) &&
	    snapshot->meta.traceback_limit > 1)
		cli_cut_print(&shown.snapshot);
	source_roots_close(&roots);
	shown_free(&shown);
	shown_free(&shown_old);
	if (!err && opts.cumulative && snapshot->meta.traceback_limit == 1)
		log_info("--cumulative: the snapshot keeps one frame per traceback, so there is "
			 "nothing to accumulate");
	if (!err)
		return EXIT_DONE;
	error_print(err, NULL, "report");
	return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

/* --- view options ----------------------------------------------------------------------------- */

/* The options that choose how native tracebacks are shown (snapshot/frames/view.h). */

enum { KEY_ALLOC_WRAPPER = 0x180, KEY_NO_SKIP, KEY_FULL_NAMES };

static const struct argp_option view_options[] = {
	{"alloc-wrapper", KEY_ALLOC_WRAPPER, "PATTERN", 0,
	 "native tracebacks begin at the caller of functions that match, too (* ? [a-z] [!a-z]; "
	 "repeatable)",
	 12},
	{"no-skip", KEY_NO_SKIP, NULL, 0,
	 "native tracebacks begin at malloc's caller, also where that is an allocator's wrapper or "
	 "inside a standard library",
	 12},
	{"full-names", KEY_FULL_NAMES, NULL, 0,
	 "names of C++ and Rust with parameters and template arguments", 12},
	{0},
};

static error_t view_option(int key, char *arg, struct argp_state *state)
{
	struct view_choice *view = state->input;

	switch (key) {
	case KEY_ALLOC_WRAPPER:
		return -view_add_wrapper(view, arg);
	case KEY_NO_SKIP:
		view->no_skip = 1;
		return 0;
	case KEY_FULL_NAMES:
		view->full_names = 1;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_view_argp = {.options = view_options, .parser = view_option};
