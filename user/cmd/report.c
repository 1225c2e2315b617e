/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "cmd/cli.h"
#include "cmd/evidence/bundle.h"
#include "cmd/heap/report_holders.h"
#include "report/recording/recording_load.h"
#include "util/archive.h"
#include "util/error.h"
#include "util/terminal.h"

static const struct argp_child children[] = {{&cli_report_argp, 0, NULL, 0},
					     {&cli_pid_argp, 0, NULL, 0},
					     {&cli_layer_argp, 0, NULL, 0},
					     {&holder_argp, 0, NULL, 0},
					     {0}};

enum { KEY_AT = 0x500, KEY_PEAK_OF };

static const struct argp_option options[] = {
	{"at", KEY_AT, "TIME", 0,
	 "of a recording (--record), the last snapshot until then: start, end, 90s or 1h30m after "
	 "its beginning, -5m before its end, 02:10, 2026-11-24T02:10 (default: end); FILE@TIME is "
	 "the same",
	 11},
	{"peak-of", KEY_PEAK_OF, "RANGE", 0,
	 "of a recording, the snapshot with the highest total in a range of such times: T1..T2, "
	 "T1.., ..T2 or .. for all of it; FILE@RANGE is the same",
	 11},
	CLI_OPTION_VERBOSE(10),
	{0},
};

struct report {
	struct report_choice choice;
	struct pid_choice pids;
	struct holder_choice holders;
	struct cli_arguments files;
};

/* --at, --peak-of. 0, or what a parser is to return. */
static error_t time_set(struct report *report, int key, const char *arg)
{
	int is_range = recording_is_range(arg);

	if (is_range && key == KEY_AT)
		return cli_reject("--at", arg, "name one time; --peak-of takes a range");
	if (!is_range && key == KEY_PEAK_OF)
		return cli_reject("--peak-of", arg, "name a range, such as 1h..2h");
	if (report->pids.at) {
		error_print(error_set(-EINVAL, "one moment of a recording is reported"),
			    "name one time or one range", "--%s", key == KEY_AT ? "at" : "peak-of");
		return CLI_REPORTED;
	}
	report->pids.at = arg;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct report *report = state->input;

	if (key == KEY_AT || key == KEY_PEAK_OF)
		return time_set(report, key, arg);
	if (key == 'v') {
		report_choice_verbose(&report->choice);
		return 0;
	}
	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &report->choice;
		state->child_inputs[1] = &report->pids;
		state->child_inputs[2] = &report->choice.layer;
		state->child_inputs[3] = &report->holders;
		return 0;
	}
	return cli_parse_arguments(key, state, &report->files);
}

#define PAGE 2u /* parts of a bundle's report on a page of a terminal */

/* What the bundle says of itself; its copies of a heap are for tracer heap. */
static int bundle_report(const struct report *report, const char *path)
{
	int is_json = report->choice.format == FORMAT_JSON;
	int is_page = !is_json && !report->choice.verbose && terminal_width(stdout);
	int err = bundle_print(path, is_json ? ARCHIVE_FIRST : BUNDLE_REPORT, is_page ? PAGE : 0,
			       stdout);

	if (!err && is_page)
		puts("-v: what holds most, what RSS consisted of");
	return err ? (error_print(err, NULL, "%s", path), EXIT_FAILED) : EXIT_DONE;
}

/* The exit status. */
static int file_report(struct report *report, const char *path)
{
	struct snapshot *snapshot;

	if (bundle_is(path))
		return bundle_report(report, path);
	report->pids.layer = &report->choice.layer;
	if (cli_snapshot_pick(path, &report->pids, &snapshot))
		return EXIT_FAILED;
	/* A snapshot of tracer names its process, a file of tracemalloc does not. */
	int named = !strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC);
	report->choice.opts.name = named ? path : NULL;
	report_choice_next(&report->choice, path);
	int status = report->holders.asked
			     ? report_holders_print(snapshot, &report->choice, &report->holders)
			     : cli_report_print(snapshot, &report->choice);
	status = cli_require_complete(&report->choice, snapshot, path, status);
	snapshot_free(snapshot);
	return status;
}

int cli_report(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE...",
		.doc = "Statistics of snapshots, as tracemalloc computes them. FILE is a snapshot "
		       "of tracer, a moment of a recording (FILE@TIME, FILE@T1..T2), a bundle of "
		       "evidence (--on-oom) or a file of tracemalloc.Snapshot.dump().",
		.children = children,
	};
	struct report report = {0};

	report_choice_default(&report.choice);
	int status = cli_parse(&argp, argc, argv, 0, &report);
	if (!status && !report.files.count) {
		error_print(error_set(-EINVAL, "no snapshot file is named"), "tracer report FILE",
			    "report");
		status = EXIT_USAGE;
	}
	if (!status && (report.holders.asked ? report.files.count > 1
					     : report.holders.heap || report.holders.trace ||
						       report.holders.session)) {
		error_print(error_set(-EINVAL, "it is of one snapshot; --heap, --trace and "
					       "--session are of it"),
			    "tracer report FILE --by-holder", "--by-holder");
		status = EXIT_USAGE;
	}
	for (size_t i = 0;
	     (status == EXIT_DONE || status == EXIT_INCOMPLETE) && i < report.files.count; i++) {
		int one = file_report(&report, report.files.items[i]);

		if (one != EXIT_DONE)
			status = one;
	}
	report_choice_free(&report.choice);
	pid_choice_free(&report.pids);
	return status < 0 ? EXIT_DONE : status;
}
