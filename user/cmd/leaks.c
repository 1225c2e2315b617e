/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer leaks: what grows in the heaps of processes (heap_leaks.h), or which lines of a recording
 * grow. --lines does both: first the heaps are read, of processes that no probe disturbs; then a
 * process of its own makes the recording, as tracer -p PID --record with a file that is removed
 * afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/evidence/bundle.h"
#include "cmd/heap/heap_leaks.h"
#include "cmd/options/trace_options.h"
#include "cmd/time/line_name.h"
#include "cmd/time/recording_leaks.h"
#include "cmd/time/time_options.h"
#include "report/caveats/completeness.h"
#include "util/error.h"

/* --- leaks confirm ---------------------------------------------------------------------------- */

/*
 * tracer leaks --lines: what the heaps say, beside what probes have measured afterwards. A line
 * that grows confirms a holder if most of its blocks come through code that fills the holder: if
 * that is a frame of their tracebacks. Pure.
 */

#define THROUGH_LEAST 0.5 /* of a line's bytes */

static bool is_filler(const struct snapshot *snapshot, const struct snapshot_frame *frame,
		      const struct holder *holder, const struct filler *filler)
{
	const char *filename = strings_get(snapshot->strings, frame->filename),
		   *function = strings_get(snapshot->strings, frame->function),
		   *filled = strings_get(holder->filled_names, filler->function);

	if (strcmp(filename, strings_get(holder->filled_names, filler->filename)) != 0)
		return 0;
	return frame->line == filler->line || (filled[0] && !strcmp(function, filled));
}

static int comes_through(const struct snapshot *snapshot, const struct snapshot_traceback *of,
			 const struct holder *holder)
{
	size_t count =
		holder->filler_count < GROWTH_FILLERS ? holder->filler_count : GROWTH_FILLERS;

	for (uint32_t i = 0; i < of->nframe; i++)
		for (size_t k = 0; k < count; k++)
			if (is_filler(snapshot, &snapshot->frames[of->first + i], holder,
				      &holder->fillers[k]))
				return 1;
	return 0;
}

/* The share of the line's bytes, of those alive in the end, that comes through such code. */
static double share_through(const struct snapshot *snapshot, const struct series_line *line,
			    const struct holder *holder)
{
	double all = 0, through = 0;

	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		const struct snapshot_traceback *of = &snapshot->tracebacks[trace->traceback];
		const struct snapshot_frame *frame = &snapshot->frames[of->first];
		double bytes = (double)trace->bytes * (double)trace->count;

		if (!of->nframe || frame->line != line->line ||
		    strcmp(strings_get(snapshot->strings, frame->filename), line->filename) != 0)
			continue;
		all += bytes;
		if (comes_through(snapshot, of, holder))
			through += bytes;
	}
	return all > 0 ? through / all : 0;
}

static void holder_confirm(struct holder *holder, const struct leaks *measured)
{
	const struct series *series = measured->series;
	size_t count = measured->verdicts[EVIDENCE_GROWS] + measured->verdicts[EVIDENCE_UNCLEAR];

	for (size_t i = 0; i < count; i++) {
		size_t number = measured->order[i];
		const struct series_line *line = &series->lines[number];
		double through = share_through(series->last, line, holder);

		if (through < THROUGH_LEAST || holder->line_count == GROWTH_FILLERS)
			continue;
		holder->lines[holder->line_count++] = (struct holder_line){
			.filename = line->filename,
			.function = line->function,
			.line = line->line,
			.slope = leaks_has_rates(measured) ? measured->lines[number].slope.median
							   : NAN,
			.through = through,
			.unclear = i >= measured->verdicts[EVIDENCE_GROWS],
		};
	}
}

/* Sets the lines of the holders, which borrow from the series of `measured`. */
static void leaks_confirm(struct heap_leaks *holders, const struct leaks *measured)
{
	holders->measured =
		measured->verdicts[EVIDENCE_GROWS] ? HOLDERS_LINES_GROW : HOLDERS_LINES_UNCLEAR;
	for (size_t i = 0; i < holders->count; i++)
		if (holders->holders[i].verdict >= HOLDER_BOUNDED)
			holder_confirm(&holders->holders[i], measured);
}

/* --- leaks ------------------------------------------------------------------------------------ */

#define POINTS    120
#define SNAPSHOTS 40 /* of a process */
#define SECONDS   "60"
#define HEAPS_NS  25000000000ull
#define AUTO_NS   600000000000ull /* -d auto ends by then */

#define ROWS_BRIEF 3u

#define PASSED 64 /* options for the trace */

/* An option of tracer trace. */
struct passed {
	const struct argp_option *option;
	const char *arg; /* borrowed */
};

/* BY_LINE_ALONE: or by choice.group, if it is none of lines. */
enum leaks_by { BY_HOLDER, BY_LINE_ALONE };

struct leaks_command {
	struct time_choice choice;
	struct target_set targets;
	int lines; /* --lines */
	enum leaks_by by;
	int probing; /* an option of the trace that is not about which processes */
	struct cli_arguments files;
	struct passed passed[PASSED];
	size_t passed_count;
	const char *duration;           /* borrowed */
	uint64_t duration_ns, heaps_ns; /* of the trace; of reading heaps, 0: HEAPS_NS */
	int automatic, verbose;         /* -d auto, -v */
	uint64_t most_bytes;            /* --memory */
	int fail_on_growth, require_complete;
};

enum { KEY_LINES = 0x500, KEY_MEMORY, KEY_FAIL_ON, KEY_BY };

static const struct argp_option options[] = {
	{"duration", 'd', "SEC", 0,
	 "with -p and the like: look for SEC seconds (default 25; with --lines 60); auto: until it "
	 "is certain what grows, and how fast to ±20 %, 10 minutes at most",
	 1},
	{"lines", KEY_LINES, NULL, 0,
	 "with -p and the like: place probes afterwards, and tell which lines allocate what grows, "
	 "and whether that is the code that fills it; so does an option of the trace (-m, "
	 "--overhead, --layer, ...)",
	 1},
	{"memory", KEY_MEMORY, "BYTES", 0,
	 "copy heaps of at most BYTES (default: a third of the memory that is available); of a "
	 "larger one only types are compared, not what holds them",
	 1},
	{"by", KEY_BY, "KEY", 0,
	 "holder (default); line: only which lines allocate what grows, without what holds it; "
	 "thread, task, context NAME, local FUNCTION:NAME: only for whom that is, of processes, or "
	 "of a recording that was made with that",
	 1},
	{"fail-on", KEY_FAIL_ON, "VERDICT", 0,
	 "grows: exit with status 3 if something grows, for scripts and tests", 1},
	CLI_OPTION_REQUIRE_COMPLETE(1),
	CLI_OPTION_VERBOSE(1),
	{0},
};

/* The options of tracer trace are its own to judge. */
static error_t parse_passed(int key, char *arg, struct argp_state *state)
{
	struct leaks_command *command = state->input;
	error_t err;

	for (const struct argp_option *option = trace_target_options; option->name; option++) {
		if (option->key != key)
			continue;
		if (command->passed_count == PASSED)
			return cli_reject(option->name, arg, "fewer options");
		command->passed[command->passed_count++] = (struct passed){option, arg};
		err = trace_target_take(&command->targets, key, arg);
		command->probing |= err == ARGP_ERR_UNKNOWN;
		return err == ARGP_ERR_UNKNOWN ? 0 : err;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct leaks_command *command = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &command->choice;
		state->child_inputs[1] = command;
		return 0;
	case 'd':
		command->duration = arg;
		command->automatic = !strcmp(arg, "auto");
		command->duration_ns = AUTO_NS;
		return command->automatic
			       ? 0
			       : cli_take_seconds("--duration", arg, &command->duration_ns);
	case 'v':
		command->verbose = 1;
		return 0;
	case KEY_LINES:
		command->lines = 1;
		return 0;
	case KEY_BY:
		command->by = !strcmp(arg, "holder") ? BY_HOLDER : BY_LINE_ALONE;
		command->choice.by = 0;
		if (command->by == BY_HOLDER || !strcmp(arg, "line"))
			return 0;
		return time_take_by(&command->choice, "holder, line, ", arg, state);
	case KEY_FAIL_ON:
		if (strcmp(arg, "grows") != 0)
			return cli_reject("--fail-on", arg, "grows");
		command->fail_on_growth = 1;
		return 0;
	case CLI_KEY_REQUIRE_COMPLETE:
		command->require_complete = 1;
		return 0;
	case KEY_MEMORY:
		if (cli_parse_bytes(arg, &command->most_bytes) || !command->most_bytes)
			return cli_reject("--memory", arg, "a size, such as 2G");
		return 0;
	}
	return cli_parse_arguments(key, state, &command->files);
}

/* Columns of the terminal's page; 0: all is printed, or it is no terminal. */
static size_t page_width(const struct leaks_command *command)
{
	return command->verbose ? 0 : time_width(&command->choice);
}

/* How many rows an answer of heaps has: on a page each takes about five lines. */
static size_t rows_most(const struct leaks_command *command)
{
	return page_width(command) && !command->choice.top_asked ? ROWS_BRIEF : command->choice.top;
}

/*
 * What is missing in an answer: of heaps, of a recording; either may be NULL. why has room for the
 * reason.
 */
static const char *missing_find(const struct heap_leaks *holders, const struct series *series,
				char why[INCOMPLETE_WHY])
{
	const char *reason = NULL;

	if (holders && !heap_leaks_are_complete(holders, &reason))
		return reason;
	if (series && series->damage[0])
		return series->damage;
	return series && !figures_are_complete(series->last, why) ? why : NULL;
}

/* The exit status of an answer; growing: how much grows; missing: missing_find(). */
static int growth_status(const struct leaks_command *command, int status, size_t growing,
			 const char *missing)
{
	if (status != EXIT_DONE)
		return status;
	if (command->require_complete && missing)
		return cli_incomplete(NULL, missing);
	return command->fail_on_growth && growing ? EXIT_FOUND : EXIT_DONE;
}

/* What is written of heaps and of lines: the holders, whose lines are known, and the lines. */
struct both {
	const struct heap_leaks *holders;
	const struct leaks *lines;
};

static int both_text(const void *context, FILE *out)
{
	const struct both *both = context;
	int err = leaks_text(both->lines, out);

	putc('\n', out);
	return err ?: heap_leaks_text(both->holders, out);
}

static int both_write(const struct time_choice *choice, struct heap_leaks *holders,
		      struct leaks *lines)
{
	const struct both both = {holders, lines};

	leaks_confirm(holders, lines);
	lines->more = heap_leaks_holders_json;
	lines->more_context = holders;
	return choice->format == TIME_JSON ? time_write(choice, leaks_json, lines)
					   : time_write(choice, both_text, &both);
}

/* holders: what the heaps said before; NULL: they were not read. The exit status. */
static int recording_judge(const struct leaks_command *command, const char *path, const char *name,
			   struct heap_leaks *holders)
{
	const struct time_choice *choice = &command->choice;
	struct leaks leaks;
	struct series series;
	char why[INCOMPLETE_WHY];
	int err = time_series_read(choice, path, POINTS, &series);

	if (err)
		return EXIT_FAILED;
	err = leaks_find(&series, &leaks);
	if (err) {
		error_print(err, "record for longer", "%s", name);
		series_free(&series);
		return EXIT_FAILED;
	}
	leaks.name = name;
	leaks.by = choice->group;
	leaks.top = holders ? rows_most(command) : choice->top;
	int status =
		holders ? both_write(choice, holders, &leaks)
			: time_write(choice, choice->format == TIME_JSON ? leaks_json : leaks_text,
				     &leaks);
	status = growth_status(command, status,
			       holders ? holders->verdicts[HOLDER_GROWS]
				       : leaks.verdicts[EVIDENCE_GROWS],
			       missing_find(holders, &series, why));
	leaks_free(&leaks);
	series_free(&series);
	return status;
}

static const char *by_text(const struct time_choice *choice)
{
	return choice->group == GROUP_LABEL ? choice->label.text : line_noun(choice->group);
}

/* Does not return. Its report is not wanted. */
static void child_trace(const struct leaks_command *command, const char *path)
{
	int layer = command->choice.layer, null = open("/dev/null", O_WRONLY | O_CLOEXEC), argc = 0;
	char every[32], *argv[PASSED + 17];

	snprintf(every, sizeof(every), "--every=%.3f",
		 (double)command->duration_ns / 1e9 / SNAPSHOTS + 0.001);
	argv[argc++] = (char *)"trace";
	for (size_t i = 0; i < command->passed_count; i++) {
		const struct passed *one = &command->passed[i];

		if (asprintf(&argv[argc++], "--%s%s%s", one->option->name, one->arg ? "=" : "",
			     one->arg ? one->arg : "") < 0)
			exit(EXIT_FAILED);
	}
	if (command->choice.group >= GROUP_THREAD &&
	    asprintf(&argv[argc++], "--by=%s", by_text(&command->choice)) < 0)
		exit(EXIT_FAILED);
	argv[argc++] = (char *)"-d";
	argv[argc++] = (char *)command->duration;
	argv[argc++] = (char *)"--record";
	argv[argc++] = (char *)path;
	argv[argc++] = every;
	argv[argc++] = (char *)"--no-live";
	if (layer >= 0) {
		argv[argc++] = (char *)"--layer";
		argv[argc++] = (char *)event_layer_name((enum event_layer)layer);
	}
	argv[argc] = NULL;
	if (null >= 0)
		dup2(null, STDOUT_FILENO);
	exit(cli_trace(argc, argv));
}

/*
 * The process that records, and where. It has the rights that are given up where heaps are read
 * before it begins: those to trace, and to remove the recording in the end.
 */
struct leaks_recorder {
	char *directory, *path;
	pid_t pid;
	int socket; /* a byte begins the trace, a byte is its exit status, the end removes it all */
};

static int place_make(struct leaks_recorder *recorder)
{
	const char *place = getenv("TMPDIR");

	if (asprintf(&recorder->directory, "%s/tracer-leaks.XXXXXX", place ? place : "/tmp") < 0 ||
	    !mkdtemp(recorder->directory) ||
	    asprintf(&recorder->path, "%s/recording", recorder->directory) < 0)
		return error_print(error_errno(), "TMPDIR=DIRECTORY names another place", "%s",
				   recorder->directory ? recorder->directory : "leaks");
	return 0;
}

/* In the process that records. Ctrl-C ends the trace alone. */
static void recorder_serve(const struct leaks_recorder *recorder,
			   const struct leaks_command *command, int socket)
{
	char byte;
	int status = 0;
	pid_t trace;

	signal(SIGINT, SIG_IGN);
	if (read(socket, &byte, 1) == 1) {
		trace = fork();
		if (!trace) {
			close(socket);
			signal(SIGINT, SIG_DFL);
			child_trace(command, recorder->path);
		}
		while (trace > 0 && waitpid(trace, &status, 0) < 0 && errno == EINTR)
			;
		byte = trace > 0 && WIFEXITED(status) ? (char)WEXITSTATUS(status) : EXIT_FAILED;
		/* Then until the recording is read. */
		if (write(socket, &byte, 1) == 1)
			status = (int)read(socket, &byte, 1);
	}
	unlink(recorder->path);
	rmdir(recorder->directory);
	_exit(0);
}

/* 0, -errno after a message. */
static int recorder_new(struct leaks_recorder *recorder, const struct leaks_command *command)
{
	int ends[2], err = place_make(recorder);

	recorder->socket = -1;
	if (err)
		return err;
	fflush(stdout);
	err = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ? error_errno() : 0;
	if (!err) {
		recorder->pid = fork();
		err = recorder->pid < 0 ? error_errno() : 0;
		if (!recorder->pid) {
			close(ends[0]);
			recorder_serve(recorder, command, ends[1]);
		}
		close(ends[1]);
		recorder->socket = ends[0];
	}
	if (err)
		rmdir(recorder->directory);
	return err ? error_print(err, NULL, "leaks") : 0;
}

/* Ctrl-C ends the trace, and what was recorded until then is judged. The exit status. */
static int recorder_run(const struct leaks_recorder *recorder)
{
	void (*before)(int) = signal(SIGINT, SIG_IGN);
	char byte = 0;
	ssize_t got = write(recorder->socket, &byte, 1);

	while (got == 1 && (got = read(recorder->socket, &byte, 1)) < 0 && errno == EINTR)
		got = 1;
	signal(SIGINT, before);
	return got == 1 ? byte : EXIT_FAILED;
}

/* Returns when the recording is removed. */
static void recorder_free(struct leaks_recorder *recorder)
{
	if (recorder->socket >= 0)
		close(recorder->socket);
	while (recorder->pid > 0 && waitpid(recorder->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(recorder->path);
	free(recorder->directory);
}

/* "PID 1,2", "comm gunicorn": what was traced. */
static void targets_name(const struct leaks_command *command, char *name, size_t bytes)
{
	size_t at = 0;

	for (size_t i = 0; i < command->passed_count && at < bytes; i++) {
		const struct passed *one = &command->passed[i];

		if (one->option->group == 1 && one->arg)
			at += (size_t)snprintf(name + at, bytes - at, "%s%s %s", at ? ", " : "",
					       one->option->key == 'p' ? "PID" : one->option->name,
					       one->arg);
	}
	if (!at)
		snprintf(name, bytes, "all processes");
}

/* Are there heaps to be read before probes are placed? */
static bool has_heaps(const struct leaks_command *command)
{
	int layer = command->choice.layer;

	return command->by == BY_HOLDER && !command->targets.wait &&
	       !target_set_is_empty(&command->targets) &&
	       (layer < 0 || layer == EVENT_LAYER_PYTHON);
}

static int heaps_find(struct leaks_command *command, struct heap_leaks *leaks)
{
	const struct leaks_choice asked = {.targets = &command->targets,
					   .duration_ns = command->heaps_ns ?: HEAPS_NS,
					   .automatic = command->automatic,
					   .brief = page_width(command),
					   .most_bytes = command->most_bytes,
					   .top = rows_most(command)};

	return heap_leaks_find(&asked, leaks);
}

/* Which lines grow; read_heaps: and before that what holds what grows. */
static int process_judge(struct leaks_command *command, int read_heaps)
{
	struct leaks_recorder recorder = {0};
	struct heap_leaks leaks = {0};
	int status = EXIT_FAILED, err = 0;
	char name[256];

	if (!command->duration) {
		command->duration = SECONDS;
		cli_parse_seconds(SECONDS, &command->duration_ns);
	}
	if (!recorder_new(&recorder, command)) {
		if (read_heaps)
			err = heaps_find(command, &leaks);
		/* Of what has no Python the trace tells; other errors it would only say again. */
		read_heaps = read_heaps && !err;
		if (!err || err == -ENOENT)
			status = recorder_run(&recorder);
		targets_name(command, name, sizeof(name));
		if (status == EXIT_DONE)
			status = recording_judge(command, recorder.path, name,
						 read_heaps ? &leaks : NULL);
	}
	heap_leaks_free(&leaks);
	recorder_free(&recorder);
	return status;
}

/* err: of finding them. Frees them. The exit status. */
static int heaps_write(const struct leaks_command *command, struct heap_leaks *leaks, int err)
{
	const struct time_choice *choice = &command->choice;
	time_print_fn print = choice->format == TIME_JSON ? heap_leaks_json : heap_leaks_text;
	int status = err ? EXIT_FAILED : time_write(choice, print, leaks);

	status = growth_status(command, status, leaks->verdicts[HOLDER_GROWS],
			       missing_find(leaks, NULL, NULL));
	heap_leaks_free(leaks);
	return status;
}

/* What grows in the heaps, without a probe. */
static int heaps_judge(struct leaks_command *command)
{
	struct heap_leaks leaks;
	int err = heaps_find(command, &leaks);
	int status = heaps_write(command, &leaks, err);

	if (err != -ENOENT)
		return status;
	log_info("no Python: probes tell its lines (--lines)");
	return process_judge(command, 0);
}

/* bundle: as heap_leaks_of_dumps() has it. */
static int dumps_judge(const struct leaks_command *command, const char *bundle)
{
	const struct cli_arguments *dumps = &command->files;
	struct heap_leaks leaks;
	int err =
		heap_leaks_of_dumps(dumps->items, dumps->count, bundle, rows_most(command), &leaks);

	leaks.brief = page_width(command);
	return heaps_write(command, &leaks, err);
}

/* The copies of a heap in a bundle of evidence. */
static int bundle_judge(struct leaks_command *command)
{
	char *paths[SUSPECT_COPIES], *bundle = command->files.items[0];
	int count = bundle_dumps(bundle, paths), status = EXIT_FAILED;

	if (count < 2) {
		error_print(count < 0 ? count
				      : error_set(-ENODATA, "it has %d cop%s of the heap", count,
						  count == 1 ? "y" : "ies"),
			    "tracer heap tells what is in one", "%s", bundle);
	} else {
		command->files = (struct cli_arguments){paths, (size_t)count};
		status = dumps_judge(command, bundle);
	}
	for (int i = 0; i < count; i++)
		free(paths[i]);
	return status;
}

static int leaks_run(struct leaks_command *command)
{
	const char *why = NULL;
	char text[128];

	command->heaps_ns = command->duration_ns;

	if (!command->files.count && !command->passed_count) {
		why = "a recording is judged, dumps of a heap, or processes";
	} else if (command->files.count && command->passed_count) {
		snprintf(text, sizeof(text),
			 "a recording is judged as it is, --%s is for a process",
			 command->passed[0].option->name);
		why = text;
	} else if (command->files.count && command->duration) {
		why = "--duration is for a process";
	}
	if (why) {
		error_print(error_set(-EINVAL, "%s", why),
			    "tracer leaks FILE, or tracer leaks -p PID", "leaks");
		return EXIT_USAGE;
	}
	if (command->files.count == 1 && bundle_is(command->files.items[0]))
		return bundle_judge(command);
	if (command->files.count > 1)
		return dumps_judge(command, NULL);
	if (command->files.count)
		return recording_judge(command, command->files.items[0], command->files.items[0],
				       NULL);
	if (command->lines || command->probing || command->choice.layer >= 0 ||
	    command->by == BY_LINE_ALONE)
		return process_judge(command, has_heaps(command));
	return heaps_judge(command);
}

int cli_leaks(int argc, char **argv)
{
	static const struct argp passed = {.options = trace_target_options, .parser = parse_passed};
	static const struct argp_child children[] = {
		{&time_argp, 0, NULL, 0}, {&passed, 0, "The processes", 2}, {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID\n-c CONTAINER\n-a\nDUMP DUMP...\nFILE",
		.doc = "What grows in running processes, by what holds it, and which code can fill "
		       "it: their heaps are read from outside, no probe is placed, and the rates "
		       "are their own. The same of dumps of a heap (tracer heap -o), the oldest "
		       "first. Of a recording (tracer --record FILE): which lines grow, and what "
		       "becomes of their blocks. Growth is the robust slope of Theil and Sen, with "
		       "its interval.",
		.children = children,
	};
	struct leaks_command command = {0};

	time_choice_default(&command.choice);
	int status = cli_parse(&argp, argc, argv, 0, &command);
	if (!status)
		status = leaks_run(&command);
	target_set_free(&command.targets);
	time_choice_free(&command.choice);
	return status < 0 ? EXIT_DONE : status;
}
