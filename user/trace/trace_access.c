/* SPDX-License-Identifier: Apache-2.0 */
/* Accessors of struct trace. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/estimate.h"
#include "trace/state.h"
#include "util/sorted.h"

/* --- trace meta ------------------------------------------------------------------------------- */

/* The meta data of snapshots: what a process's state and counters say about its table. */

static const char *const moments[] = {
	[TRACE_RUNNING] = "running",
	[TRACE_FINALIZING] = "finalizing",
	[TRACE_EXITED] = "exited",
	[TRACE_EXECED] = "execed",
};

/* A running process was alive when losses were last reported, even if it had no events. */
uint64_t state_moment_ns(const struct trace *trace, const struct trace_process *info)
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
	if (info->changes)
		memcpy(meta->changes, info->changes, sizeof(meta->changes));
	memcpy(meta->name, info->name, sizeof(meta->name));
	memcpy(meta->container, info->container, sizeof(meta->container));
	memcpy(meta->service, info->service, sizeof(meta->service));
	memcpy(meta->version, info->version, sizeof(meta->version));
	memcpy(meta->boot, info->boot, sizeof(meta->boot));
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

static void extra_set(struct snapshot_meta *meta, const struct process_state *process)
{
	const struct trace_process *info = &process->info;
	uint64_t since_ns = process->activities.since_ns;
	enum event_layer window_layer = state_window_layer(info);
	bool windows = info->mode == EVENT_MODE_WINDOWS;

	for (enum snapshot_extras what = 0; what < EXTRAS; what++)
		for (enum event_layer i = 0; i < EVENT_LAYER_TABLES; i++) {
			bool known = state_activity_known(process, what, i);

			/* A profile of windows has the same columns before they have shown any. */
			if (known || (what == EXTRA_ALLOCATED && windows && i == window_layer))
				meta->extra[what].known |= 1u << i;
			if (!known)
				meta->extra[what].gaps |= info->layers & 1u << i;
		}
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
		if (process->activities.peaks[i].time_ns > info->start_ns)
			meta->peak_after_ns[i] =
				process->activities.peaks[i].time_ns - info->start_ns;
	meta->allocated_ns = meta->duration_ns;
	if (since_ns > info->start_ns && since_ns - info->start_ns < meta->duration_ns)
		meta->allocated_ns -= since_ns - info->start_ns;
}

static void pages_set(struct snapshot_meta *meta, const struct process_state *process)
{
	const struct pages *pages = &process->pages;
	struct snapshot_pages *out = &meta->pages;
	struct page_run run;

	meta->unread_ns = process->info.end_ns -
			  (pages->walked_ns ? pages->walked_ns : process->info.start_ns);
	out->before_first = pages->before_bytes;
	out->unread = pages->unread_bytes;
	for (size_t cursor = 0; pages_next(pages, &cursor, &run);) {
		uint64_t bytes = (uint64_t)run.count * EVENT_PAGES_UNIT;

		out->resident += bytes;
		if ((run.bits & PAGE_STATE) == PAGE_BEFORE) {
			out->before += bytes;
			continue;
		}
		/* In a sample these are the pages outside it, too. */
		if ((run.bits & PAGE_STATE) >= PAGE_UNFAULTED && !process->info.sample_bytes)
			out->unfaulted += bytes;
		out->file += run.bits & PAGE_FILE ? bytes : 0;
		out->huge += run.bits & PAGE_HUGE ? bytes : 0;
		out->again += run.bits & PAGE_AGAIN ? bytes : 0;
	}
}

/* A process that has not run since the last heap walk has not changed its heap. */
static bool is_as_walked(const struct trace_process *info)
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
	uint64_t duration = state_moment_ns(trace, info) - info->start_ns;

	*meta = (struct snapshot_meta){
		.pid = info->tgid,
		.ns_pid = info->ns_pid,
		.start_ticks = info->start_ticks,
		.parent = info->parent,
		.has_exited = info->end == TRACE_EXITED,
		.wait_status = info->exit_code,
		.oom_killed = info->oom_killed,
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
		.collections = info->collections,
		.coverage_known = coverage->time_ns != 0,
		.coverage = *coverage,
		.ending = info->ending,
		.change_count = info->change_count,
		.changes_dropped = info->changes_dropped,
		.budget_permille = info->budget_permille,
		.ages = trace->ages,
	};
	meta->labels_hashed = info->labels_hashed;
	memcpy(meta->label, info->label, sizeof(meta->label));
	if (info->cost_ns && info->probes_ns != EVENT_COST_UNKNOWN) {
		meta->cpu_ns = info->cpu_ns;
		meta->wait_ns = info->wait_ns;
		meta->probes_ns = info->probes_ns < info->cpu_ns ? info->probes_ns : info->cpu_ns;
	}
	if (state_needs_walk(info) && meta->layer == EVENT_LAYER_PYTHON && !is_as_walked(info))
		meta->unread_ns =
			info->end_ns - (coverage->time_ns ? coverage->time_ns : info->start_ns);
	if (info->rss_bytes && state_moment_ns(trace, info) > info->rss_ns)
		meta->rss_age_ns = state_moment_ns(trace, info) - info->rss_ns;
	if (layer == EVENT_LAYER_PAGES)
		pages_set(meta, process);
	extra_set(meta, process);
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

/* --- trace access ----------------------------------------------------------------------------- */

size_t trace_process_count(const struct trace *trace)
{
	return trace->process_count;
}

const struct trace_process *trace_process_at(const struct trace *trace, size_t index)
{
	struct process_state *process = state_at(trace, index);

	return process ? &process->info : NULL;
}

struct trace_dropped trace_dropped(const struct trace *trace)
{
	return trace->dropped;
}

struct trace_observed trace_observed(const struct trace *trace)
{
	return trace->observed;
}

const struct event_loss *trace_loss(const struct trace *trace)
{
	return &trace->loss;
}

uint64_t trace_orphans(const struct trace *trace)
{
	return trace->orphans;
}

static struct trace_table pages_live(const struct process_state *state)
{
	struct trace_table live = {0};
	struct page_run run;

	for (size_t cursor = 0; pages_next(&state->pages, &cursor, &run);)
		if (state_pages_count(state, run.bits))
			live.live_blocks += run.count;
	live.live_bytes = live.live_blocks * EVENT_PAGES_UNIT;
	if (state->info.sample_bytes) {
		double chance = estimate_chance(state->info.sample_bytes, EVENT_PAGES_UNIT);

		live.live_blocks = (uint64_t)((double)live.live_blocks / chance + 0.5);
		live.live_bytes = live.live_blocks * EVENT_PAGES_UNIT;
	}
	return live;
}

struct trace_table trace_live(const struct trace *trace, size_t process, enum event_layer layer)
{
	const struct process_state *state = trace->processes[process];
	struct trace_table live = {0};
	struct estimate sum = {0};
	const struct block *block;

	if (layer == EVENT_LAYER_MMAP) {
		for (size_t i = 0; i < state->regions.count; i++) {
			live.live_bytes += state->regions.items[i].accessible
						   ? state->regions.items[i].end -
							     state->regions.items[i].start
						   : 0;
			live.live_blocks += state->regions.items[i].accessible;
		}
		return live;
	}
	if (layer == EVENT_LAYER_PAGES)
		return pages_live(state);
	live = state->info.tables[layer];
	/* Where heap walks find deaths, peak_bytes is only updated by a walk. */
	if (live.peak_bytes < live.live_bytes)
		live.peak_bytes = live.live_bytes;
	if (!state->info.sample_bytes && (layer != EVENT_LAYER_NATIVE || !state->weights))
		return live;
	for (size_t cursor = 0; (block = blocks_next(state->blocks[layer], &cursor));)
		estimate_add_sampled(&sum, state_chance(state, layer, block), block->bytes, 1);
	if (estimate_round(sum.count, &live.live_blocks))
		live.live_blocks = INT64_MAX;
	return live;
}

uint64_t trace_age_ns(const struct trace *trace, size_t index, const struct block *block)
{
	const struct process_state *process = trace->processes[index];
	uint64_t now_ns = state_moment_ns(trace, &process->info);
	uint64_t since_ns = process->activities.since_ns;

	if (block || since_ns < process->births_ns)
		since_ns = block ? state_birth_ns(process, block) : process->births_ns;
	return now_ns - lesser(since_ns, now_ns);
}

const struct blocks *trace_blocks(const struct trace *trace, size_t process, enum event_layer layer)
{
	return trace_process_at(trace, process) && layer < EVENT_LAYER_TABLES
		       ? trace->processes[process]->blocks[layer]
		       : NULL;
}

const struct block *trace_block_containing(const struct trace *trace, size_t process,
					   enum event_layer layer, uint64_t address)
{
	return trace_blocks(trace, process, layer)
		       ? state_block_containing(trace->processes[process], layer, address)
		       : NULL;
}

const struct strings *trace_strings(const struct trace *trace, size_t process)
{
	const struct process_state *state = state_at(trace, process);

	return state && state->strings ? state->strings : trace->strings;
}

bool trace_is_walk(const struct trace *trace, size_t process)
{
	return trace_process_at(trace, process) && trace->processes[process]->census.running;
}

size_t trace_memory(const struct trace *trace)
{
	return trace->account.used;
}

int trace_unnamed_next(const struct trace *trace, size_t index, size_t *cursor, uint64_t *address)
{
	const struct process_state *process = state_at(trace, index);

	for (; process && *cursor < process->symbol_count; ++*cursor) {
		if (process->symbols[*cursor].known)
			continue;
		*address = process->symbols[(*cursor)++].address;
		return 1;
	}
	return 0;
}

struct trace_traceback trace_traceback_at(struct trace *trace, size_t index, uint32_t traceback)
{
	struct trace_frame *frames = trace->scratch.frames;

	if (trace_process_at(trace, index) && traceback < trace->processes[index]->stack_count)
		state_traceback(trace->processes[index], traceback, &trace->scratch);
	else
		trace->scratch = (struct traceback_frames){
			.frames = {{.function = trace->unknown, .filename = trace->unknown}},
			.count = 1,
			.total = 1};
	return (struct trace_traceback){
		.frames = frames, .nframe = trace->scratch.count, .total = trace->scratch.total};
}

/* --- windows ---------------------------------------------------------------------------------- */

/* What a session asks about blocks that were seen in windows. */

/* How many addresses of a window there are at most. */
static size_t window_most(const struct trace_windows *windows, enum trace_sighted which)
{
	return windows->open           ? windows->fresh_count
	       : which == SIGHTED_LAST ? windows->last_count
				       : 0;
}

static size_t window_take(const struct process_state *process, enum trace_sighted which,
			  uint64_t *pools)
{
	const struct trace_windows *windows = &process->windows;
	uint64_t bytes = process->info.pool_bytes;
	size_t count = 0;

	for (size_t i = 0; bytes && i < window_most(windows, which); i++) {
		const struct sampled_block *found =
			sampled_blocks_find(&windows->sampled_blocks, windows->fresh[i]);

		if (found && !(which == SIGHTED_FRESH && found->kind) &&
		    !(found->flags & SAMPLED_BLOCK_LARGE))
			pools[count++] = windows->fresh[i] / bytes * bytes;
	}
	return count;
}

static size_t all_take(const struct process_state *process, uint64_t *pools)
{
	const struct id_map *map = &process->windows.pools;
	size_t count = 0;

	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].value != ID_MAP_NONE)
			pools[count++] = map->slots[i].key;
	return count;
}

int trace_sighted_pools(const struct trace *trace, size_t index, enum trace_sighted which,
			uint64_t **out, size_t *count)
{
	const struct process_state *process = state_at(trace, index);
	size_t most = !process               ? 0
		      : which == SIGHTED_ALL ? process->windows.pools.count
					     : window_most(&process->windows, which);
	uint64_t *pools = calloc(most + 1, sizeof(*pools));
	size_t taken, kept = 0;

	if (!pools)
		return -ENOMEM;
	taken = !most                  ? 0
		: which == SIGHTED_ALL ? all_take(process, pools)
				       : window_take(process, which, pools);
	qsort(pools, taken, sizeof(*pools), key_compare);
	for (size_t i = 0; i < taken; i++)
		if (!kept || pools[i] != pools[kept - 1])
			pools[kept++] = pools[i];
	*out = pools;
	*count = kept;
	return 0;
}

int trace_sighted_large(const struct trace *trace, size_t index, int fresh, uint64_t **out,
			size_t *count)
{
	const struct process_state *process = state_at(trace, index);
	const struct sampled_blocks *sampled_blocks =
		process ? &process->windows.sampled_blocks : NULL;
	int has_large = process && process->info.large_windowed;
	const struct sampled_block *sampled_block;
	uint64_t *addresses;
	size_t cursor = 0, most = 0;

	while (has_large && (sampled_block = sampled_blocks_next(sampled_blocks, &cursor)))
		most += (sampled_block->flags & SAMPLED_BLOCK_LARGE) &&
			!(fresh && sampled_block->kind);
	addresses = calloc(most + 1, sizeof(*addresses));
	if (!addresses)
		return -ENOMEM;
	*count = cursor = 0;
	while (*count < most && (sampled_block = sampled_blocks_next(sampled_blocks, &cursor)))
		if (sampled_block->flags & SAMPLED_BLOCK_LARGE && !(fresh && sampled_block->kind))
			addresses[(*count)++] = sampled_block->address;
	qsort(addresses, *count, sizeof(*addresses), key_compare);
	*out = addresses;
	return 0;
}

int trace_sighted_native(const struct trace *trace, size_t index, struct trace_seen **out,
			 size_t *count)
{
	const struct process_state *process = state_at(trace, index);
	const struct trace_windows *windows = process ? &process->windows : NULL;
	size_t most = windows ? windows->sampled_blocks.count + windows->frees.count : 0;
	struct trace_seen *seen = calloc(most + 1, sizeof(*seen));
	const struct sampled_block *sampled_block;
	size_t taken = 0, cursor = 0;

	if (!seen)
		return -ENOMEM;
	while (taken < most &&
	       (sampled_block = sampled_blocks_next(&windows->sampled_blocks, &cursor)))
		if (sampled_block->flags & SAMPLED_BLOCK_NATIVE)
			seen[taken++] = (struct trace_seen){sampled_block->address,
							    sampled_block->made_ns ?: 1};
	for (size_t i = 0; taken < most && i < windows->frees.count; i++)
		seen[taken++] = (struct trace_seen){.address = windows->frees.items[i].address};
	SORT_BY(seen, taken, address);
	*out = seen;
	*count = taken;
	return 0;
}
