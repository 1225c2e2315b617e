/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "probe/session.h"
#include "python/version.h"
#include "target/process.h"

/*
 * What a session would see of it. A shared libpython calls its allocator through symbols, so probes see all of it;
 * in an executable the allocator may be inlined, and only a session can measure how much of it is.
 */
static const char *coverage_expected(const struct python_runtime *runtime)
{
	struct plan_opts opts = {0};
	struct plan plan;
	const char *expected = "none";

	if (!plan_python(runtime->file, &opts, &plan)) {
		expected = runtime->static_exe ? "measured when traced" : "full";
		plan_free(&plan);
	}
	return expected;
}

static int process_print(pid_t pid)
{
	struct python_runtime runtime = {0};
	struct process_info info;
	char version[VERSION_TEXT];
	int err = process_info_read(pid, &info);

	if (err || info.kernel_thread || info.zombie)
		return 0;
	err = python_runtime_find(pid, &runtime);
	if (err == -EPERM)
		return 1;
	if (err && err != -ENOTSUP)
		return 0;
	if (err)
		printf("%7d  %-10s %-26s %-13s ", pid, "Python", "not supported",
		       info.container[0] ? "" : "-");
	else
		printf("%7d  CPython    %-26s %-13.12s ", pid, version_text(version, runtime.version_hex),
		       info.container[0] ? info.container : "-");
	if (err)
		printf("%-26s ", error_reason(err));
	else
		printf("%-26s ", coverage_expected(&runtime));
	text_print(stdout, info.command[0] ? info.command : info.name);
	putchar('\n');
	if (!err)
		python_runtime_close(&runtime);
	return 0;
}

int cli_list(int argc, char **argv)
{
	static const struct argp argp = {.doc = "Processes that can be traced."};
	size_t count, hidden = 0;
	int status, err;
	pid_t *pids;

	status = cli_parse(&argp, argc, argv, 0, NULL);
	if (status)
		return status < 0 ? EXIT_DONE : status;
	err = process_list(&pids, &count);
	if (err) {
		error_print(err, NULL, "list");
		return EXIT_FAILED;
	}
	printf("%7s  %-10s %-26s %-13s %-26s %s\n", "PID", "RUNTIME", "VERSION", "CONTAINER", "COVERAGE",
	       "COMMAND");
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid())
			hidden += process_print(pids[i]);
	free(pids);
	if (hidden)
		log_info("%zu process%s could not be looked into: permission denied", hidden,
			 hidden == 1 ? "" : "es");
	return EXIT_DONE;
}
