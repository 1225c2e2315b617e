/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/error.h"
#include "cli/cli.h"
#include "export/pprof.h"

static const struct argp_child children[] = {{&cli_report_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = state->input;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cli_report(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "FILE...",
		.doc = "Statistics of snapshots, as tracemalloc computes them.",
		.children = children,
	};
	struct report_choice choice;
	int next, status;

	report_choice_default(&choice);
	status = cli_parse(&argp, argc, argv, ARGP_NO_ARGS, &next, &choice);
	if (status)
		return status < 0 ? EXIT_DONE : status;
	if (next >= argc) {
		error_print(error_set(-EINVAL, "no snapshot file is named"), "tracer report FILE", "report");
		return EXIT_USAGE;
	}
	for (status = EXIT_DONE; next < argc && status == EXIT_DONE; next++) {
		struct snapshot *snapshot;
		int err = pprof_read(argv[next], &snapshot);

		if (err) {
			error_print(err, NULL, "%s", argv[next]);
			return EXIT_FAILED;
		}
		status = cli_report_print(snapshot, &choice);
		snapshot_free(snapshot);
	}
	return status;
}
