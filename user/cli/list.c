/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "container/container.h"
#include "layouts/version.h"
#include "options/options.h"
#include "process/process.h"
#include "select/target_set.h"
#include "session/session.h"
#include "text/text.h"

#define CONTAINER_COLUMN 20
#define HIDDEN_NAMED     4u

/*
 * The share of the allocations that a session would see. A shared libpython calls its allocator
 * through symbols, so probes see all of it. In an executable the allocator may be inlined, and only
 * a session can measure the share.
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

/*
 * Prints a foreign name, padded with blanks. A name that is too long is not cut: the user may have
 * to type it.
 */
static void column_print(const char *text, int width)
{
	char escaped[4 * (CONTAINER_LABEL_SIZE + 16)];

	text_escape(escaped, sizeof(escaped), text);
	printf("%-*s ", width, escaped);
}

/* "web-1 (docker)"; "-" outside of containers. */
static const char *container_text(const struct container_list *containers, pid_t pid,
				  char out[CONTAINER_LABEL_SIZE + 16])
{
	const struct container *container = container_of(containers, pid);
	char label[CONTAINER_LABEL_SIZE];

	if (!container)
		return "-";
	snprintf(out, CONTAINER_LABEL_SIZE + 16, container->runtime ? "%s (%s)" : "%s",
		 container_label(container, label), container_runtime_name(container->runtime));
	return out;
}

/* Processes that could not be inspected, the first few of them with their names. */
struct hidden {
	char names[HIDDEN_NAMED * 96];
	size_t bytes, count;
};

static void hidden_add(struct hidden *hidden, const struct process_info *info)
{
	char name[4 * sizeof(info->name)];

	if (hidden->count++ >= HIDDEN_NAMED)
		return;
	text_escape(name, sizeof(name), info->name);
	hidden->bytes += (size_t)snprintf(hidden->names + hidden->bytes,
					  sizeof(hidden->names) - hidden->bytes, "%sPID %d (%.64s)",
					  hidden->bytes ? ", " : "", (int)info->pid, name);
}

/* An empty list is an error if some processes could not be inspected. */
static int hidden_print(const struct hidden *hidden, size_t listed)
{
	const char *remedy = cli_remedy(-EPERM);
	char more[48] = "";

	if (!hidden->count)
		return EXIT_DONE;
	if (hidden->count > HIDDEN_NAMED)
		snprintf(more, sizeof(more), " and %zu more", hidden->count - HIDDEN_NAMED);
	if (listed) {
		log_info("could not be inspected: %s%s; %s", hidden->names, more, remedy);
		return EXIT_DONE;
	}
	error_print(error_set(-EPERM, "nothing is listed, and %s%s could not be inspected",
			      hidden->names, more),
		    remedy, "list");
	return EXIT_FAILED;
}

/* Returns 1 if the process is listed. */
static int process_print(pid_t pid, const struct container_list *containers, struct hidden *hidden)
{
	char container[CONTAINER_LABEL_SIZE + 16];
	struct python_runtime runtime = {0};
	struct process_info info;
	char version[VERSION_TEXT], reason[256];
	int err = process_info_read(pid, &info);

	if (err || info.kernel_thread || info.zombie)
		return 0;
	err = python_runtime_find(pid, NULL, &runtime);
	if (err == -EPERM)
		hidden_add(hidden, &info);
	if (err && err != -ENOTSUP)
		return 0;
	if (err)
		snprintf(reason, sizeof(reason), "%s", error_reason(err));
	printf("%7d  %-10s %-26s ", pid, err ? "Python" : "CPython",
	       err ? "not supported" : version_text(version, runtime.version_hex));
	column_print(container_text(containers, pid, container), CONTAINER_COLUMN);
	if (err)
		printf("%-26s ", reason);
	else
		printf("%-26s ", coverage_expected(&runtime));
	text_print(stdout, info.command[0] ? info.command : info.name);
	putchar('\n');
	if (!err)
		python_runtime_close(&runtime);
	return 1;
}

int cli_list(int argc, char **argv)
{
	static const struct argp argp = {.doc = "Processes that can be traced."};
	struct container_list containers = {0};
	struct hidden hidden = {0};
	size_t count, listed = 0;
	char why[160];
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
	err = container_list_read(&containers);
	if (err)
		error_print(err, NULL, "containers");
	printf("%7s  %-10s %-26s %-*s %-26s %s\n", "PID", "RUNTIME", "VERSION", CONTAINER_COLUMN,
	       "CONTAINER", "COVERAGE", "COMMAND");
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid())
			listed += (size_t)process_print(pids[i], &containers, &hidden);
	free(pids);
	if (containers.remark[0])
		log_info("containers: %s", containers.remark);
	container_list_free(&containers);
	if (target_hidden_explain(why, sizeof(why)))
		log_info("%s: other users' processes are not in this list", why);
	if (listed)
		log_info(
			"COVERAGE is the share of a process's allocations that a trace sees: full, "
			"none, or measured during a trace, because the allocator is inlined");
	return hidden_print(&hidden, listed);
}
