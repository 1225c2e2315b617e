/* SPDX-License-Identifier: Apache-2.0 */
/* The meta data of snapshots: what a process's state and counters say about its table. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trace/state.h"

static const char *const moments[] = {
	[TRACE_RUNNING] = "running",
	[TRACE_FINALIZING] = "finalizing",
	[TRACE_EXITED] = "exited",
	[TRACE_EXECED] = "execed",
};

/*
 * Until when the table is valid. A running process was alive when losses were last reported, even
 * if it had no events.
 */
static uint64_t moment_ns(const struct trace *trace, const struct trace_process *info)
{
	uint64_t loss_ns = trace->loss.header.time_ns;

	return info->end == TRACE_RUNNING && loss_ns > info->end_ns ? loss_ns : info->end_ns;
}

/* Without pymalloc census mode sees every free, and so it is exact. */
static uint32_t mode_now(const struct trace_process *info)
{
	return info->mode == EVENT_MODE_CENSUS && !state_needs_walk(info) &&
			       info->tables[EVENT_LAYER_PYTHON].allocs
		       ? EVENT_MODE_EXACT
		       : info->mode;
}

static void arrays_set(struct snapshot_meta *meta, const struct trace *trace,
		       const struct trace_process *info)
{
	memcpy(meta->loss, trace->loss.counts, sizeof(meta->loss));
	memcpy(meta->changes, info->changes, sizeof(meta->changes));
	memcpy(meta->name, info->name, sizeof(meta->name));
	memcpy(meta->container, info->container, sizeof(meta->container));
	snprintf(meta->mode, sizeof(meta->mode), "%s", snapshot_mode_name(mode_now(info)));
	snprintf(meta->moment, sizeof(meta->moment), "%s", moments[info->end]);
}

static void counters_set(struct snapshot_meta *meta, const struct trace_counters *counters)
{
	meta->stacks_unknown = counters->stacks_unknown;
	meta->frames_unknown = counters->frames_unknown;
	meta->frames_unnamed = counters->frames_unnamed;
	meta->frames_slow = counters->frames_slow;
	meta->regions_dropped = counters->regions_dropped;
	meta->blocks_dropped = counters->blocks_dropped;
	meta->bytes_dropped = counters->bytes_dropped;
	meta->stacks_dropped = counters->stacks_dropped;
	meta->codes_dropped = counters->codes_dropped;
	meta->symbols_dropped = counters->symbols_dropped;
	meta->walks_dropped = counters->walks_dropped;
}

static void beside_set(struct snapshot_meta *meta, const struct process_state *process)
{
	const struct trace_process *info = &process->info;
	uint64_t since_ns = process->activities.since_ns;

	for (enum snapshot_besides what = 0; what < BESIDES; what++)
		for (enum event_layer i = 0; i < EVENT_LAYER_TABLES; i++) {
			if (state_activity_known(process, what, i))
				meta->beside[what].known |= 1u << i;
			else
				meta->beside[what].gaps |= info->layers & 1u << i;
		}
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
		if (process->activities.peaks[i].time_ns > info->start_ns)
			meta->peak_after_ns[i] =
				process->activities.peaks[i].time_ns - info->start_ns;
	meta->allocated_ns = meta->duration_ns;
	if (since_ns > info->start_ns && since_ns - info->start_ns < meta->duration_ns)
		meta->allocated_ns -= since_ns - info->start_ns;
}

/* A process that has not run since the last heap walk has not changed its heap. */
static int is_as_walked(const struct trace_process *info)
{
	return info->coverage.time_ns && info->cost_ns >= info->coverage.time_ns &&
	       info->walked_cpu_ns == info->cpu_ns;
}

void state_meta(const struct trace *trace, const struct process_state *process,
		struct snapshot_meta *meta)
{
	const struct trace_process *info = &process->info;
	const struct snapshot_coverage *coverage = &info->coverage;
	static const struct trace_table none;
	enum event_layer layer = trace_first_layer(info);
	const struct trace_table *table = layer < EVENT_LAYER_TABLES ? &info->tables[layer] : &none;
	uint64_t duration = moment_ns(trace, info) - info->start_ns;

	*meta = (struct snapshot_meta){
		.pid = info->tgid,
		.ns_pid = info->ns_pid,
		.parent = info->parent,
		.has_exited = info->end == TRACE_EXITED,
		.wait_status = info->exit_code,
		.python_version = info->python_version,
		.traceback_limit = info->nframe,
		.duration_ns = duration,
		.taken_realtime_ns = info->start_realtime_ns + duration,
		.from_start = info->from_start,
		.tasks = info->tasks,
		.peak_bytes = table->peak_bytes,
		.frees_unknown = table->frees_unknown,
		.replaced = table->replaced,
		.layer = layer,
		.rounded_blocks = info->rounded_blocks,
		.sample_bytes = info->sample_bytes,
		.self_sampled = info->self_sampled,
		.self_sampled_ns = info->self_sampled_ns,
		.records_malformed = info->counters.records_malformed + trace->orphans,
		.layers = info->layers & ~(1u << layer),
		.native = {info->tables[EVENT_LAYER_NATIVE].peak_bytes,
			   info->tables[EVENT_LAYER_NATIVE].frees_unknown,
			   info->tables[EVENT_LAYER_NATIVE].replaced},
		.large_skipped = info->large_skipped,
		.reuse_unseen = info->reuse_unseen,
		.ends_unseen = info->ends_unseen,
		.pool_bytes = info->pool_bytes,
		.rss_bytes = info->rss_bytes,
		.emptied = info->emptied,
		.coverage_known = coverage->time_ns != 0,
		.coverage = *coverage,
		.ending = info->ending,
		.change_count = info->change_count,
		.changes_dropped = info->changes_dropped,
		.budget_permille = info->budget_permille,
	};
	if (info->cost_ns && info->probes_ns != EVENT_COST_UNKNOWN) {
		meta->cpu_ns = info->cpu_ns;
		meta->wait_ns = info->wait_ns;
		meta->probes_ns = info->probes_ns < info->cpu_ns ? info->probes_ns : info->cpu_ns;
	}
	if (state_needs_walk(info) && meta->layer == EVENT_LAYER_PYTHON && !is_as_walked(info))
		meta->unread_ns =
			info->end_ns - (coverage->time_ns ? coverage->time_ns : info->start_ns);
	if (info->rss_bytes && moment_ns(trace, info) > info->rss_ns)
		meta->rss_age_ns = moment_ns(trace, info) - info->rss_ns;
	beside_set(meta, process);
	counters_set(meta, &info->counters);
	arrays_set(meta, trace, info);
}

int trace_meta(const struct trace *trace, size_t index, struct snapshot_meta *meta)
{
	if (!trace_process_at(trace, index))
		return -ENOENT;
	state_meta(trace, trace->processes[index], meta);
	return 0;
}
