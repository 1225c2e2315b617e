/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/error.h"
#include "cli/cli.h"
#include "export/pprof.h"

static const struct argp_child children[] = {{&cli_report_argp, 0, NULL, 0}, {0}};

struct report {
	struct report_choice choice;
	struct cli_arguments files;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct report *report = state->input;

	(void)arg;
	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = &report->choice;
		return 0;
	}
	return cli_parse_arguments(key, state, &report->files);
}

int cli_report(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "FILE...",
		.doc = "Statistics of snapshots, as tracemalloc computes them.",
		.children = children,
	};
	struct report report = {0};
	int status;

	report_choice_default(&report.choice);
	status = cli_parse(&argp, argc, argv, 0, &report);
	if (status)
		return status < 0 ? EXIT_DONE : status;
	if (!report.files.count) {
		error_print(error_set(-EINVAL, "no snapshot file is named"), "tracer report FILE", "report");
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < report.files.count && status == EXIT_DONE; i++) {
		struct snapshot *snapshot;
		int err = pprof_read(report.files.items[i], &snapshot);

		if (err) {
			error_print(err, NULL, "%s", report.files.items[i]);
			return EXIT_FAILED;
		}
		status = cli_report_print(snapshot, &report.choice);
		snapshot_free(snapshot);
	}
	return status;
}
