/* SPDX-License-Identifier: Apache-2.0 */
#include "options/trace_checks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define WINDOW_MS_MAX 3600000ul

error_t trace_options_window(struct trace_options *out, const char *arg)
{
	unsigned long on, off;
	char *end;

	on = strtoul(arg, &end, 10);
	if (arg[0] < '0' || arg[0] > '9' || *end != '/' || end[1] < '0' || end[1] > '9')
		on = 0;
	off = on ? strtoul(end + 1, &end, 10) : 0;
	if (*end || !on || !off || on > WINDOW_MS_MAX || off > WINDOW_MS_MAX)
		return cli_reject("--window", arg,
				  "milliseconds from 1 to 3600000, for example 40/1000");
	out->session.window_on_ns = on * 1000000ull;
	out->session.window_off_ns = off * 1000000ull;
	return 0;
}

static int reject(const char *option, const char *why, const char *remedy)
{
	error_print(error_set(-EINVAL, "%s", why), remedy, "%s", option);
	return EXIT_USAGE;
}

int trace_options_targets(const struct trace_options *options)
{
	const struct target_set *set = &options->targets;
	int narrower =
		set->pid_count || set->container_count || set->cgroup_count || set->name_count;
	const char *why = NULL,
		   *remedy = "tracer -p PID, -c CONTAINER, -a, or tracer -- COMMAND ARG...";

	if (target_set_is_empty(set) == !options->command.count)
		why = options->command.count ? "either running processes or a command can be the "
					       "target, not both"
					     : "no target is named";
	else if (set->all && narrower)
		why = "-a is every process already", remedy = "drop it or the other targets";
	else if (set->pid_count && (set->cgroup_count || set->name_count))
		why = "-p names the processes themselves", remedy = "combine it only with -c";
	else if (set->wait && !set->pid_count && !set->container_count && !options->command.count)
		why = "--wait applies to named processes and containers",
		remedy = "use it with -p or -c";
	return why ? reject("trace", why, remedy) : 0;
}

int trace_options_modes(const struct trace_options *out)
{
	const struct plan_target_opts *plan = &out->session.plan;
	int growth = plan->python.mode == EVENT_MODE_GROWTH;

	if (out->alloc_count && plan->layers && !(plan->layers & 1u << EVENT_LAYER_NATIVE))
		return reject("--alloc", "these functions belong to the native layer",
			      "drop --layer, or use --layer native or all");
	if (!growth && plan->python.large_blocks)
		return reject("--large-blocks",
			      "large blocks are always traced, except in growth mode",
			      "drop it, or use --mode growth");
	if (growth && out->session.sample_bytes)
		return reject("--sample",
			      "growth mode does not trace blocks, so there is nothing to sample",
			      "drop it, or use --mode census or exact");
	if (out->session.window_on_ns && plan->python.mode != EVENT_MODE_CENSUS)
		return reject("--window", "windows are of census mode", "drop --mode");
	if (out->session.window_on_ns && out->session.overhead > 0)
		return reject("--window", "--overhead chooses the windows itself",
			      "use one of them");
	if (out->session.window_on_ns && out->session.sample_bytes)
		return reject("--window", "a sample of blocks cannot be taken in windows",
			      "drop it, or --sample");
	if (growth && plan->python.public_only)
		return reject("--public", "pools are created by a function that is not public",
			      "drop it, or use another mode");
	return 0;
}

int trace_options_files(const struct trace_options *out)
{
	if (out->record_ns && !out->record)
		return reject("--every", "it is the interval of a recording",
			      "name its file with --record FILE");
	if (out->record && !strcmp(out->record, "-"))
		return reject("--record", "a recording is a file", "name one");
	if ((out->snapshot_ns || out->keep) && (!out->output || !strcmp(out->output, "-")))
		return reject(out->snapshot_ns ? "--snapshot-every" : "--keep",
			      "it needs a file to write to", "name it with -o FILE");
	if (out->keep && !out->snapshot_ns)
		return reject("--keep", "one snapshot is written, at the end",
			      "use it with --snapshot-every");
	return 0;
}
