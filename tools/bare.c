/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of what tracing can cost: a command run with a program that does nothing at every place where
 * `tracer -- COMMAND` would probe, attached by the same links. A request whose return is wanted plants its return
 * probe, as ours does.
 *
 * usage: bare [--mode MODE] [--no-reuse] -- COMMAND ARG...    exit status: the command's; 1 when it could not be probed
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "probe/attach.h"
#include "probe/plan_process.h"
#include "target/launch.h"

struct bare {
	struct plan_opts plan;
	struct attach *attach;
};

static int record_ignore(void *context, void *record, size_t size)
{
	(void)context;
	(void)record;
	(void)size;
	return 0;
}

static int sites_attach(pid_t pid, void *context)
{
	struct bare *bare = context;
	struct python_runtime runtime = {0};
	struct process_info info;
	struct plan plan = {0};
	int err = plan_process(pid, &bare->plan, &info, &runtime, &plan);

	if (err)
		return err == -ENOENT ? 0 : err; /* a wrapper that will exec the interpreter */
	err = attach_sites(bare->attach, &plan, runtime.file, pid);
	if (!err)
		log_info("%zu empty probes; %s", plan.count, attach_backend(bare->attach));
	plan_free(&plan);
	python_runtime_close(&runtime);
	return err ? err : 1;
}

/* As many of `tracer trace`'s options as change the plan. */
static int options_parse(int argc, char **argv, struct bare *bare)
{
	static const struct option options[] = {
		{"mode", required_argument, NULL, 'm'},
		{"no-reuse", no_argument, NULL, 'r'},
		{0},
	};
	int key;

	while ((key = getopt_long(argc, argv, "+", options, NULL)) >= 0) {
		if (key == 'r')
			bare->plan.no_reuse = 1;
		else if (key != 'm' || strcmp(optarg, "exact"))
			return -EINVAL;
	}
	return optind < argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	struct bare bare = {0};
	struct attach_opts opts = {.ring_bytes = 1 << 16, .empty = 1, .record = record_ignore};
	struct features features;
	struct launch *launch = NULL;
	const char *remedy = NULL;
	int status = 1, err;

	if (options_parse(argc, argv, &bare)) {
		fprintf(stderr, "usage: bare [--mode exact] [--no-reuse] -- COMMAND ARG...\n");
		return 2;
	}
	err = features_probe(&features);
	if (!err)
		err = features_check(&features, &remedy);
	if (!err)
		err = attach_new(&bare.attach, &features, &opts);
	if (!err)
		err = launch_start(&launch, argv + optind, sites_attach, &bare);
	if (err)
		error_print(err, remedy, "%s", argv[optind]);
	else
		launch_wait(launch, 1, &status);
	launch_free(launch);
	attach_free(bare.attach);
	return status;
}
