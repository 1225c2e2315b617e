/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "util/error.h"

static const struct argp_child children[] = {{&cli_report_argp, 0, NULL, 0},
					     {&cli_pid_argp, 0, NULL, 0},
					     {&cli_layer_argp, 0, NULL, 0},
					     {0}};

enum { KEY_FAIL_ABOVE = 0x500 };

static const struct argp_option options[] = {
	{"fail-above", KEY_FAIL_ABOVE, "SIZE", 0,
	 "exit with status 3 if the total has grown by more than SIZE (10M), for scripts and tests",
	 10},
	CLI_OPTION_VERBOSE(10),
	{0},
};

struct diff {
	struct report_choice choice;
	struct pid_choice pids;
	struct cli_arguments files;
	uint64_t most_growth; /* bytes */
	int64_t growth;       /* the total's, if choice.size_diff is set */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct diff *diff = state->input;

	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &diff->choice;
		state->child_inputs[1] = &diff->pids;
		state->child_inputs[2] = &diff->choice.layer;
		return 0;
	}
	if (key == 'v') {
		report_choice_verbose(&diff->choice);
		return 0;
	}
	if (key == KEY_FAIL_ABOVE) {
		diff->choice.size_diff = &diff->growth;
		return cli_parse_bytes(arg, &diff->most_growth)
			       ? cli_reject("--fail-above", arg, "a size, such as 10M")
			       : 0;
	}
	return cli_parse_arguments(key, state, &diff->files);
}

/* The exit status. */
static int diff_run(struct diff *diff)
{
	struct snapshot *old = NULL, *new = NULL;
	int status = EXIT_FAILED;

	if (diff->files.count != 2) {
		error_print(error_set(-EINVAL, "two snapshot files are compared"),
			    "tracer diff OLD NEW", "diff");
		return EXIT_USAGE;
	}
	diff->pids.layer = &diff->choice.layer;
	if (!cli_snapshot_pick(diff->files.items[0], &diff->pids, &old) &&
	    !cli_snapshot_pick(diff->files.items[1], &diff->pids, &new)) {
		diff->choice.opts.old = old;
		diff->choice.opts.old_name = diff->files.items[0];
		diff->choice.opts.name = diff->files.items[1];
		if (diff->choice.opts.by != GROUP_TRACEBACK)
			report_choice_next(&diff->choice, diff->files.items[1]);
		status = cli_report_print(new, &diff->choice);
		for (int i = 0; i < 2; i++)
			status = cli_require_complete(&diff->choice, i ? new : old,
						      diff->files.items[i], status);
		if (status == EXIT_DONE && diff->growth > (int64_t)diff->most_growth)
			status = EXIT_FOUND;
	}
	snapshot_free(old);
	snapshot_free(new);
	return status;
}

int cli_diff(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "OLD NEW",
		.doc = "What has grown and shrunk between two snapshots, as Snapshot.compare_to() "
		       "of tracemalloc computes it; the filters apply to both. Lines are compared "
		       "across processes; --by process identifies a process by its PID and "
		       "command. Each file is a snapshot of tracer, a moment of a "
		       "recording (FILE@TIME, as --at of tracer report) or a file of "
		       "tracemalloc.Snapshot.dump().",
		.children = children,
	};
	struct diff diff = {0};

	report_choice_default(&diff.choice);
	int status = cli_parse(&argp, argc, argv, 0, &diff);
	if (!status)
		status = diff_run(&diff);
	report_choice_free(&diff.choice);
	pid_choice_free(&diff.pids);
	return status < 0 ? EXIT_DONE : status;
}
