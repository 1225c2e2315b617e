/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "report/pprof/pprof.h"
#include "trace/capture.h"
#include "trace/trace.h"
#include "util/error.h"

/*
 * Memory limit per byte of a capture: a record costs no more than its size, but children begin with
 * copies of tables.
 */
#define CAPTURE_RATIO 32u

struct replay {
	struct report_choice choice;
	const char *output;
	int ages;
	enum outfile_replace replace;
	struct cli_arguments files;
};

static const struct argp_option options[] = {
	{"output", 'o', "FILE", 0,
	 "write the snapshot there (-: to stdout, and the report to stderr)", 0},
	CLI_OPTION_FORCE(0),
	CLI_OPTION_AGES("tell how old blocks are, in the report and the snapshot", 0),
	CLI_OPTION_VERBOSE(10),
	{0},
};

static const struct argp_child children[] = {{&cli_report_argp, 0, NULL, 0},
					     {&cli_layer_argp, 0, NULL, 0},
					     {&cli_ages_argp, 0, NULL, 0},
					     {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct replay *replay = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &replay->choice;
		state->child_inputs[1] = &replay->choice.layer;
		state->child_inputs[2] = &replay->choice.ages;
		return 0;
	case 'v':
		report_choice_verbose(&replay->choice);
		return 0;
	case CLI_KEY_AGES:
		replay->ages = 1;
		return 0;
	case CLI_KEY_FORCE:
		replay->replace = OUTFILE_ANY;
		return 0;
	case 'o':
		replay->output = arg;
		return 0;
	}
	return cli_parse_arguments(key, state, &replay->files);
}

struct feeding {
	struct trace *trace;
	uint64_t bytes;
};

/* Records may use memory in proportion to the file's size, since forks copy tables. */
static int feed(const void *record, size_t size, void *context)
{
	struct feeding *feeding = context;

	feeding->bytes += size;
	trace_budget(feeding->trace, account_file_limit(feeding->bytes, CAPTURE_RATIO));
	int err = trace_feed(feeding->trace, record, size);

	/* a malformed record is counted, and reported as not seen */
	return err == -ENOMEM ? err : 0;
}

/* Prints the report of the capture, and writes the snapshot file if one is open. */
static int replay_report(struct trace *trace, const struct replay *replay, struct outfile **file)
{
	struct snapshot *snapshot;

	cli_dropped_print(trace);
	if (!trace_process_count(trace)) {
		error_print(error_set(-EINVAL, "the capture holds no process"), NULL, "replay");
		return EXIT_FAILED;
	}
	int err = trace_snapshot_all(trace, 1, &snapshot);
	if (err) {
		error_print(err, NULL, "replay");
		return EXIT_FAILED;
	}
	int status = cli_require_complete(&replay->choice, snapshot, NULL,
					  cli_ages_report(snapshot, &replay->choice));
	if (status == EXIT_DONE && replay->choice.require_complete &&
	    trace_dropped(trace).processes)
		status = cli_incomplete(NULL, "processes are not in the report");
	if (*file) {
		err = pprof_save(snapshot, *file);
		*file = NULL;
	}
	snapshot_free(snapshot);
	if (err)
		error_print(err, NULL, "%s", replay->output);
	return err ? EXIT_FAILED : status;
}

/* The exit status. */
static int replay_run(const struct replay *replay)
{
	struct outfile *file = NULL;
	struct feeding feeding = {0};
	struct trace *trace;
	size_t records;
	int err;

	if (replay->files.count != 1) {
		error_print(error_set(-EINVAL, "one capture file is needed"),
			    "tracer replay CAPTURE", "replay");
		return EXIT_USAGE;
	}
	if (replay->output) {
		err = outfile_open(&file, replay->output, replay->replace);
		if (err) {
			error_print(err, NULL, "%s", replay->output);
			return EXIT_FAILED;
		}
	}
	err = trace_new(&trace, NULL);
	if (err) {
		outfile_discard(file);
		error_print(err, NULL, "replay");
		return EXIT_FAILED;
	}
	feeding.trace = trace;
	if (replay->ages || ages_any(&replay->choice.ages.ages))
		trace_ages(trace);
	err = capture_read(replay->files.items[0], feed, &feeding, &records);
	/* The records before the cut are good: report them, but exit with an error. */
	if (err)
		error_print(err, NULL, "%s", replay->files.items[0]);
	int status = EXIT_FAILED;
	if (!err || (err == -ENODATA && trace_process_count(trace)))
		status = replay_report(trace, replay, &file);
	outfile_discard(file);
	trace_free(trace);
	return err ? EXIT_FAILED : status;
}

int cli_replay(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "CAPTURE",
		.doc = "Rebuilds the tables from a recorded event stream (tracer --capture), "
		       "without root.",
		.children = children,
	};
	struct replay replay = {0};

	report_choice_default(&replay.choice);
	int status = cli_parse(&argp, argc, argv, 0, &replay);
	report_choice_extra(&replay.choice, replay.output);
	if (!status)
		status = replay_run(&replay);
	report_choice_free(&replay.choice);
	return status < 0 ? EXIT_DONE : status;
}
