/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer ctl: talks to the session that traces a process. The session opens no file: a snapshot's
 * file is opened here, with the rights of the user who asks, and its descriptor is passed.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "cmd/tui/watch.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "session/ctl/ask.h"
#include "session/ctl/session_socket.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/size.h"
#include "util/text.h"

#define END_TIMEOUT_MS 120000 /* older kernels remove probes one by one */

struct ctl {
	struct report_choice choice; /* only its format is used */
	struct cli_arguments arguments;
	uint64_t pid, session;
	int watch; /* the request is for the live view, not one of the session's */
	enum outfile_replace replace;
	struct ages_choice limits; /* watch: of which ages */
	int all;                   /* snapshot: all processes of the session */
	int ages;                  /* snapshot, watch: how old blocks are, too */
	int fd;                    /* connection to the session */
	struct buffer answer;
};

enum { KEY_SESSION = 0x300, KEY_FORMAT, KEY_ALL };

static const struct argp_option options[] = {
	{"session", KEY_SESSION, "PID", 0,
	 "choose one of several sessions that trace the process: the tracer's PID", 1},
	{"all", KEY_ALL, NULL, 0, "snapshot: all processes that the session traces, not only PID",
	 1},
	CLI_OPTION_AGES("snapshot: tell how old blocks are, too; watch: show it", 1),
	CLI_OPTION_FORCE(1),
	{"format", KEY_FORMAT, "KIND", 0, "text (default) or json", 1},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word formats[] = {{"text", FORMAT_TEXT}, {"json", FORMAT_JSON}};
	struct ctl *ctl = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &ctl->limits;
		return 0;
	case KEY_SESSION:
		if (!cli_parse_number(arg, 1, 1 << 22, &ctl->session))
			return 0;
		error_print(error_set(-EINVAL, "\"%s\" is not a process id", arg), NULL,
			    "--session");
		return CLI_REPORTED;
	case KEY_ALL:
		ctl->all = 1;
		return 0;
	case CLI_KEY_AGES:
		ctl->ages = 1;
		return 0;
	case CLI_KEY_FORCE:
		ctl->replace = OUTFILE_ANY;
		return 0;
	case KEY_FORMAT:
		return CLI_WORD("--format", arg, formats, ctl->choice.format);
	}
	return cli_parse_arguments(key, state, &ctl->arguments);
}

/*
 * jansson refuses lone surrogates, the JSON form of bytes in a file name that are not UTF-8. In
 * text they are shown as U+FFFD.
 */
static void surrogates_replace(char *text)
{
	for (char *at = text; (at = strchr(at, '\\')); at += at[1] ? 2 : 1) {
		if (strncmp(at, "\\ud", 3) != 0 || !strchr("89abcdef", at[3]))
			continue;
		if (strchr("89ab", at[3]) && !strncmp(at + 6, "\\ud", 3) && at[9] &&
		    strchr("cdef", at[9]))
			at += 6; /* a pair */
		else
			memcpy(at, "\\ufffd", 6);
	}
}

/* The answer as an object, NULL if it is none; json_decref() releases it. */
static json_t *answer_object(struct ctl *ctl)
{
	surrogates_replace((char *)ctl->answer.data);
	return json_loads((char *)ctl->answer.data, 0, NULL);
}

/*
 * Sends a request, and prints an error if it fails. Returns the answer, whose JSON is already
 * printed if print is set and the format is JSON; NULL: failed.
 */
static json_t *question(struct ctl *ctl, const struct request *request, int passed, int timeout_ms,
			int print)
{
	const char *remedy = "tracer ctl PID status shows whether it still runs";
	int err = ask(ctl->fd, request, passed, timeout_ms, &ctl->answer);
	json_t *object = NULL, *reason;

	if (!err) {
		char *line = strdup((char *)ctl->answer.data);

		object = line ? answer_object(ctl) : NULL;
		reason = json_object_get(object, "error");
		if (!json_is_object(object))
			err = error_set(-EBADMSG, "the session's answer is malformed");
		else if (reason)
			err = error_set(-EINVAL, "%s", json_string_value(reason)), remedy = NULL;
		else if (print && ctl->choice.format == FORMAT_JSON)
			puts(line);
		free(line);
	}
	if (!err)
		return object;
	json_decref(object);
	error_print(err, remedy, "PID %" PRIu64, ctl->pid);
	return NULL;
}

static uint64_t member(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *member_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

static void coverage_print(const json_t *coverage)
{
	uint64_t new_blocks = member(coverage, "new_blocks"),
		 seen = member(coverage, "seen_blocks");

	if (!json_is_object(coverage))
		puts("  coverage: not measured");
	else if (!new_blocks)
		puts("  coverage: no small block on the heap is new");
	else /* rounded down: 100.0 means all */
		printf("  coverage: %.1f %% of the %" PRIu64
		       " small blocks that are new on the heap\n",
		       (double)(uint64_t)((double)seen * 1000 / (double)new_blocks) / 10,
		       new_blocks);
}

/*
 * Prints what is traced: Python's blocks, or the named layer if there is no Python, or it is not
 * traced.
 */
static void traced_print(const json_t *status)
{
	const char *python = json_string_value(json_object_get(status, "python"));
	const char *layer = json_string_value(json_object_get(status, "layer"));

	printf(")");
	if (python)
		printf(", CPython %s", python);
	if (layer)
		printf(", %s", !strcmp(layer, "mmap")    ? "mapped memory"
			       : !strcmp(layer, "pages") ? "resident pages"
							 : "native blocks");
}

static double percent_of(const json_t *object, const char *key)
{
	return json_real_value(json_object_get(object, key)) * 100;
}

/* machine: NULL where there is no limit. */
static void machine_print(const json_t *machine)
{
	if (!machine)
		return;
	printf("  probes of all processes: %.2f %% of a CPU lately, at most %.2f %%",
	       percent_of(machine, "took"), percent_of(machine, "limit"));
	if (percent_of(machine, "budget_part") < 100)
		printf(": each has %.1f %% of its budget", percent_of(machine, "budget_part"));
	putchar('\n');
}

static void status_print(const json_t *status)
{
	const json_t *traced = json_object_get(status, "traced_memory");

	printf("PID %" PRIu64 " (", member(status, "pid"));
	text_print(stdout, member_text(status, "name"));
	traced_print(status);
	printf(": %s, %s mode, for %.1f s, by session %" PRIu64 "\n",
	       json_is_true(json_object_get(status, "is_tracing")) ? "is traced" : "was traced",
	       member_text(status, "mode"), json_real_value(json_object_get(status, "uptime")),
	       member(status, "session"));
	printf("  traced memory: size=%s, count=%" PRIu64 " (peak size=%s)\n",
	       SIZE_TEXT(member(traced, "size")), member(status, "live_blocks"),
	       SIZE_TEXT(member(traced, "peak")));
	printf("  tracer memory: %s\n", SIZE_TEXT(member(status, "tracer_memory")));
	printf("  traceback limit: %" PRIu64 "\n", member(status, "traceback_limit"));
	printf("  lost events: %" PRIu64 "\n", member(status, "lost_events"));
	if (json_object_get(status, "sample_bytes"))
		printf("  sampled: one block for every %s allocated; sizes and counts are "
		       "estimates\n",
		       SIZE_TEXT(member(status, "sample_bytes")));
	else if (!json_object_get(status, "layer")) /* coverage is about Python's heap */
		coverage_print(json_object_get(status, "coverage"));
	machine_print(json_object_get(status, "machine"));
	printf("  longest pause for a request: %.1f ms\n",
	       (double)member(status, "longest_pause_ns") / 1e6);
}

static void lookup_print(const json_t *answer)
{
	const json_t *block = json_object_get(answer, "block");
	const json_t *frames = json_object_get(answer, "traceback");

	printf("0x%" PRIx64 ": ", member(answer, "address"));
	if (!json_is_object(block)) {
		puts("in no block that is traced");
		return;
	}
	printf("%" PRIu64 " bytes into a block of %s%s at 0x%" PRIx64, member(block, "offset"),
	       json_is_true(json_object_get(block, "rounded")) ? "at most " : "",
	       SIZE_TEXT(member(block, "size")), member(block, "address"));
	if (member(block, "domain"))
		printf(", domain %" PRIu64, member(block, "domain"));
	putchar('\n');
	for (size_t i = 0; i < json_array_size(frames); i++) {
		const json_t *frame = json_array_get(frames, i);

		fputs("    ", stdout);
		text_print(stdout, member_text(frame, "filename"));
		printf(":%" PRIu64 " in ", member(frame, "lineno"));
		text_print(stdout, member_text(frame, "function"));
		putchar('\n');
	}
}

/* "0x7f…", or decimal as id() prints it. */
static int address_parse(const char *text, uint64_t *address)
{
	char *end;

	errno = 0;
	*address = strtoull(text, &end, !strncmp(text, "0x", 2) ? 16 : 10);
	if (!errno && end != text && !*end && text[0] != '-' && *address && *address <= INT64_MAX)
		return 0;
	return error_set(-EINVAL, "\"%s\" is not an address: decimal as id() gives it, or 0x...",
			 text);
}

static int lookup_run(struct ctl *ctl)
{
	struct request request = {.kind = REQUEST_LOOKUP, .pid = (uint32_t)ctl->pid};

	for (size_t i = 2; i < ctl->arguments.count; i++) {
		address_parse(ctl->arguments.items[i], &request.address); /* checked before */
		json_t *answer = question(ctl, &request, -1, ASK_TIMEOUT_MS, 1);
		if (!answer)
			return EXIT_FAILED;
		if (ctl->choice.format == FORMAT_TEXT)
			lookup_print(answer);
		json_decref(answer);
	}
	return EXIT_DONE;
}

/* Requests that a file is written for. */
static int writes_file(enum request_kind kind)
{
	return kind == REQUEST_SNAPSHOT || kind == REQUEST_BLOCKS;
}

/* Reports which processes the snapshot covers. */
static void snapshot_print(const struct ctl *ctl, const json_t *answer, const char *path)
{
	uint64_t of = member(answer, "of");

	if (of && ctl->all)
		log_info("snapshot of all %" PRIu64 " processes of the session written to %s", of,
			 path);
	else if (of)
		log_info("snapshot of PID %" PRIu64 ", one of %" PRIu64
			 " processes of the session (--all: of all of them), written to %s",
			 ctl->pid, of, path);
	else
		log_info("snapshot of PID %" PRIu64 " written to %s", ctl->pid, path);
}

static int file_run(struct ctl *ctl, enum request_kind kind)
{
	const struct request request = {
		.kind = kind, .pid = (uint32_t)ctl->pid, .all = ctl->all, .ages = ctl->ages};
	const char *path = ctl->arguments.items[2];
	int to_stdout = !strcmp(path, "-");
	struct outfile *file;
	int err = outfile_open(&file, path, ctl->replace);

	if (err) {
		error_print(err, NULL, "%s", path);
		return EXIT_FAILED;
	}
	json_t *answer = question(ctl, &request, outfile_fd(file), ASK_FOREVER, !to_stdout);
	if (!answer) {
		outfile_discard(file);
		return EXIT_FAILED;
	}
	err = outfile_commit(file);
	if (err)
		error_print(err, "the existing file is unchanged", "%s", path);
	else if (ctl->choice.format == FORMAT_TEXT && kind == REQUEST_BLOCKS)
		log_info("blocks of PID %" PRIu64 " written to %s", ctl->pid,
			 to_stdout ? "stdout" : path);
	else if (ctl->choice.format == FORMAT_TEXT)
		snapshot_print(ctl, answer, to_stdout ? "stdout" : path);
	json_decref(answer);
	return err ? EXIT_FAILED : EXIT_DONE;
}

static int plain_run(struct ctl *ctl, enum request_kind kind)
{
	const struct request request = {.kind = kind, .pid = (uint32_t)ctl->pid};
	json_t *answer = question(ctl, &request, -1, ASK_TIMEOUT_MS, 1);
	int err = 0;

	if (!answer)
		return EXIT_FAILED;
	if (kind == REQUEST_STATUS && ctl->choice.format == FORMAT_TEXT)
		status_print(answer);
	json_decref(answer);
	if (kind == REQUEST_STOP)
		err = ask_end(ctl->fd, END_TIMEOUT_MS);
	if (!err)
		return EXIT_DONE;
	error_print(error_set(err, "the session was asked to end, and has not ended yet"), NULL,
		    "PID %" PRIu64, ctl->pid);
	return EXIT_FAILED;
}

static int watch_ask(struct ctl *ctl)
{
	struct watch_opts opts = {
		.session = ctl->fd, .end = -1, .messages = -1, .by_age = ctl->ages};
	int end = cli_ages_at(&ctl->limits, clock_ns(CLOCK_REALTIME), &opts.ages)
			  ?: privileges_drop(1, 0)
			  ?: calls_limit(0);

	if (!end)
		end = watch_run(&opts);

	if (end == WATCH_END_SESSION)
		log_info("the session has ended");
	if (end >= 0)
		return EXIT_DONE;
	error_print(end, end == -ENOTTY ? "tracer ctl PID status works anywhere" : NULL, "watch");
	return EXIT_FAILED;
}

/* 0, or -EINVAL (error_set) */
static int arguments_check(struct ctl *ctl, enum request_kind *kind)
{
	const struct cli_arguments *arguments = &ctl->arguments;
	uint64_t address;

	if (arguments->count < 2)
		return error_set(-EINVAL, "a process and a request are needed");
	if (cli_parse_number(arguments->items[0], 1, 1 << 22, &ctl->pid))
		return error_set(-EINVAL, "\"%s\" is not a process id", arguments->items[0]);
	ctl->watch = !strcmp(arguments->items[1], "watch");
	if (ctl->watch)
		*kind = REQUEST_SUMS;
	else if (request_kind_of(arguments->items[1], kind) || *kind > REQUEST_BLOCKS)
		return error_set(-EINVAL, "\"%s\" is not a request", arguments->items[1]);
	size_t most = *kind == REQUEST_LOOKUP ? SIZE_MAX : writes_file(*kind) ? 3 : 2;
	if (arguments->count > most)
		return error_set(-EINVAL, "\"%s\" is one argument too many",
				 arguments->items[most]);
	if (writes_file(*kind) && arguments->count < 3)
		return error_set(-EINVAL, "no file is named");
	if (*kind == REQUEST_LOOKUP && arguments->count < 3)
		return error_set(-EINVAL, "no address is named");
	if (*kind != REQUEST_SNAPSHOT && ctl->all)
		return error_set(-EINVAL, "--all applies only to snapshot");
	if (!ctl->watch && ages_any(&ctl->limits.ages))
		return error_set(-EINVAL, "ages apply only to watch; a snapshot has all of them "
					  "with --ages");
	if (*kind != REQUEST_SNAPSHOT && !ctl->watch && ctl->ages)
		return error_set(-EINVAL, "--ages applies only to snapshot and watch");
	for (size_t i = 2; *kind == REQUEST_LOOKUP && i < arguments->count; i++)
		if (address_parse(arguments->items[i], &address))
			return -EINVAL;
	return 0;
}

static const char *find_remedy(int err)
{
	switch (err) {
	case -ESRCH:
		return "tracer -p PID starts one";
	case -EEXIST:
		return "choose one with --session";
	case -EACCES:
	case -EPERM:
		return "a session listens to its own user only: run it as that user, or with sudo";
	default:
		return NULL;
	}
}

static int ctl_run(struct ctl *ctl, enum request_kind kind)
{
	int status;

	ctl->fd = ask_find(SOCKET_DIRECTORY, (uint32_t)ctl->pid, (pid_t)ctl->session);
	if (ctl->fd < 0) {
		error_print(ctl->fd, find_remedy(ctl->fd), "PID %" PRIu64, ctl->pid);
		return EXIT_FAILED;
	}
	if (ctl->watch)
		status = watch_ask(ctl);
	else if (kind == REQUEST_LOOKUP)
		status = lookup_run(ctl);
	else
		status = writes_file(kind) ? file_run(ctl, kind) : plain_run(ctl, kind);
	close(ctl->fd);
	buffer_free(&ctl->answer);
	if (status == EXIT_DONE && fflush(stdout)) {
		error_print(error_errno(), NULL, "output");
		status = EXIT_FAILED;
	}
	return status;
}

int cli_ctl(int argc, char **argv)
{
	static const struct argp_child children[] = {{&cli_ages_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.children = children,
		.args_doc = "PID status\nPID snapshot [--all] [--ages] FILE\nPID blocks FILE\n"
			    "PID clear\nPID reset-peak\nPID lookup ADDR...\nPID watch [--ages]\n"
			    "PID stop",
		.doc = "Talks to the session that traces a process.\v"
		       "status: what is traced, and how much. snapshot: writes the present state "
		       "to FILE (pprof; - is stdout). blocks: writes which line allocated each "
		       "live block, for tracer heap --by line. clear: forgets every block, as "
		       "tracemalloc.clear_traces(). reset-peak: sets the peak to the present size. "
		       "lookup: the traceback of the block that contains ADDR, for example an "
		       "id(). watch: a live view of all processes of the session. "
		       "stop: ends the session, as Ctrl-C does, and waits until it has "
		       "ended.",
	};
	struct ctl ctl = {0};
	enum request_kind kind;

	report_choice_default(&ctl.choice);
	int status = cli_parse(&argp, argc, argv, 0, &ctl);
	if (status)
		return status < 0 ? EXIT_DONE : status;
	int err = arguments_check(&ctl, &kind);
	if (err) {
		error_print(err, "tracer ctl --help explains", "ctl");
		return EXIT_USAGE;
	}
	return ctl_run(&ctl, kind);
}
