/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The minimum cost of tracing: runs a command with an empty program at every place where `tracer
 * trace` with the same options would probe, attached by the same links. A probe spec that requires
 * the return places its return probe, as the tracer does.
 *
 * usage: bare [TRACE OPTIONS] -- COMMAND ARG...
 * Exit status: the command's; 1 if it could not be probed.
 */
#include <errno.h>
#include <stdio.h>

#include "attach/attach.h"
#include "cmd/options/trace_options.h"
#include "probe/process/plan_target.h"
#include "proc/launch.h"
#include "util/error.h"

struct bare {
	struct plan_target_opts plan;
	struct plan_caches caches;
	struct attach *attach;
};

static int record_ignore(void *context, void *record, size_t size)
{
	(void)context;
	(void)record;
	(void)size;
	return 0;
}

static int plan_attach(struct bare *bare, const struct plan *plan, const struct elf_file *file,
		       pid_t pid, size_t *count)
{
	*count += plan->count;
	return attach_sites(bare->attach, plan, file, pid);
}

static int sites_attach(pid_t pid, int running, void *context)
{
	struct bare *bare = context;
	struct plan_target target;
	size_t count = 0;
	int err = running ? -ENOENT : plan_target(pid, &bare->plan, &bare->caches, &target);

	if (err)
		return err == -ENOENT ? 0
				      /*
			        * a wrapper that will exec the interpreter; one that loads it late
			        * is not supported
			        */
				      : err;
	if (target.python.count)
		err = plan_attach(bare, &target.python, target.runtime.file, pid, &count);
	if (!err && target.python.memory)
		err = plan_attach(bare, target.python.memory, target.python.memory_file, pid,
				  &count);
	for (size_t i = 0; i < target.native_count && !err; i++)
		err = plan_attach(bare, target.native[i].plan, target.native[i].file, pid, &count);
	if (!err)
		log_info("%zu empty probes; %s", count, attach_backend(bare->attach));
	plan_target_free(&target);
	return err ? err : 1;
}

int main(int argc, char **argv)
{
	struct trace_options options;
	struct bare bare = {0};
	struct attach_opts opts = {.ring_bytes = 1 << 16, .empty = 1, .record = record_ignore};
	struct features features;
	struct launch *launch = NULL;
	const char *remedy = NULL;
	int status = trace_options_parse(argc, argv, &options), err;

	if (status || !options.command.count) {
		trace_options_free(&options);
		return status < 0 ? EXIT_DONE : EXIT_USAGE;
	}
	bare.plan = options.session.plan;
	opts.no_session = options.session.backend != SESSION_BACKEND_BEST;
	opts.no_multi = options.session.backend == SESSION_BACKEND_PERF;
	err = plan_caches_new(&bare.caches, &bare.plan);
	if (!err)
		err = features_probe(&features);
	if (!err)
		err = features_check(&features, &remedy);
	if (!err)
		err = attach_new(&bare.attach, &features, &opts);
	if (!err)
		err = launch_start(&launch, options.command.items, sites_attach, &bare);
	status = EXIT_FAILED;
	if (err)
		error_print(err, remedy, "%s", options.command.items[0]);
	else
		launch_wait(launch, 1, &status);
	launch_free(launch);
	attach_free(bare.attach);
	plan_caches_free(&bare.caches);
	trace_options_free(&options);
	return status;
}
