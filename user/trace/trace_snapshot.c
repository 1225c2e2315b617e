/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots. Tracebacks stand in the order in which the trace first met them and traces in theirs,
 * so that the same events give the same snapshot whatever the seeds of the tables.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/builder.h"
#include "snapshot/estimate.h"
#include "snapshot/merge.h"
#include "trace/state.h"

/*
 * The work on one snapshot; both maps are by id in the trace and hold UINT32_MAX where nothing
 * stands yet.
 */
struct taking {
	struct trace *trace;
	struct process_state *process;
	struct account account; /* of the builder */
	struct builder builder;
	uint32_t *strings;
	uint32_t string_count;
	uint32_t *tracebacks;
	uint64_t unread, unnamed; /* frames of Python's, native ones */
	uint64_t slow;            /* native ones */
	uint64_t cut;             /* tracebacks */
	uint8_t *unknown;         /* enum snapshot_unknown of each traceback that is wanted */
	struct snapshot_unknowns unknowns[SNAPSHOT_UNKNOWNS + 1];
	uint64_t blocks_left, bytes_left; /* there is no room for them, or for their tracebacks */
};

static int string_map(struct taking *taking, uint32_t id, uint32_t *out)
{
	/* An address without a name has its text made while the snapshot is. */
	if (id >= taking->string_count) {
		const char *text = strings_get(taking->process->strings, id);

		return strings_intern(taking->builder.snapshot->strings, text, strlen(text), out);
	}
	if (taking->strings[id] == UINT32_MAX) {
		const char *text = strings_get(taking->process->strings, id);
		int err = strings_intern(taking->builder.snapshot->strings, text, strlen(text),
					 &taking->strings[id]);

		if (err)
			return err;
	}
	*out = taking->strings[id];
	return 0;
}

static int frame_map(struct taking *taking, const struct trace_frame *frame,
		     struct snapshot_frame *out)
{
	int err = string_map(taking, frame->filename, &out->filename);

	if (!err)
		err = string_map(taking, frame->function, &out->function);
	out->line = frame->line;
	return err;
}

static int traceback_take(struct taking *taking, uint32_t index)
{
	struct snapshot_frame frames[EVENT_MAX_FRAMES];
	size_t known = taking->builder.snapshot->traceback_count;
	struct traceback_frames *traceback = &taking->trace->scratch;
	int err = 0;

	state_traceback(taking->trace, taking->process, index, traceback);
	for (uint32_t i = 0; !err && i < traceback->count; i++)
		err = frame_map(taking, &traceback->frames[i], &frames[i]);
	if (!err)
		err = builder_traceback(&taking->builder, frames, traceback->count,
					traceback->total, &taking->tracebacks[index]);
	if (taking->builder.snapshot->traceback_count > known) {
		taking->unread += traceback->unread;
		taking->unnamed += traceback->unnamed;
	}
	taking->slow += traceback->slow; /* also of those that now look like one that is known */
	taking->cut += taking->process->stacks[index].cut;
	taking->unknown[index] = (uint8_t)state_unknown(taking->trace, taking->process, index);
	return err;
}

/* The tracebacks that blocks and regions have, in the order in which the trace first met them. */
static int tracebacks_take(struct taking *taking)
{
	const struct process_state *process = taking->process;
	const struct block *block;
	int err = 0;

	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++)
		for (size_t cursor = 0; (block = blocks_next(process->blocks[layer], &cursor));)
			taking->tracebacks[block->traceback] = 0; /* marks it as wanted */
	for (size_t i = 0; i < process->regions.count; i++)
		taking->tracebacks[process->regions.items[i].traceback] = 0;
	for (uint32_t i = 0; !err && i < process->stack_count; i++) {
		if (taking->tracebacks[i] == UINT32_MAX)
			continue;
		taking->tracebacks[i] = UINT32_MAX;
		err = traceback_take(taking, i);
		if (account_is_full(err))
			err = 0;
	}
	return err;
}

static int trace_add(struct taking *taking, enum event_layer layer,
		     const struct snapshot_trace *trace)
{
	int err = -EDQUOT;

	if (trace->traceback != UINT32_MAX)
		err = layer == trace_first_layer(&taking->process->info)
			      ? builder_trace(&taking->builder, trace)
			      : builder_layer(&taking->builder, layer, trace);
	if (!account_is_full(err))
		return err;
	taking->blocks_left += trace->count;
	taking->bytes_left += trace->bytes;
	return 0;
}

static int blocks_add(struct taking *taking, enum event_layer layer)
{
	const struct blocks *blocks = taking->process->blocks[layer];
	const struct block *block;
	size_t cursor = 0;
	int err = 0;

	while (!err && (block = blocks_next(blocks, &cursor))) {
		struct snapshot_trace trace = {.traceback = taking->tracebacks[block->traceback],
					       .domain = block->domain,
					       .flags = (block->rounded ? SNAPSHOT_ROUNDED : 0) |
							(block->inherited ? SNAPSHOT_INHERITED : 0),
					       .bytes = block->bytes,
					       .count = 1};

		err = trace_add(taking, layer, &trace);
		if (err || layer != trace_first_layer(&taking->process->info))
			continue;
		struct snapshot_unknowns *why =
			&taking->unknowns[taking->unknown[block->traceback]];
		why->blocks++;
		why->bytes += block->bytes;
	}
	return err;
}

static int regions_add(struct taking *taking)
{
	const struct regions *regions = &taking->process->regions;
	int err = 0;

	for (size_t i = 0; i < regions->count && !err; i++) {
		const struct region *region = &regions->items[i];
		struct snapshot_trace trace = {.traceback = taking->tracebacks[region->traceback],
					       .flags = region->inherited ? SNAPSHOT_INHERITED : 0,
					       .bytes = region->end - region->start,
					       .count = 1};

		if (region->accessible)
			err = trace_add(taking, EVENT_LAYER_MMAP, &trace);
	}
	return err;
}

static int layers_add(struct taking *taking)
{
	int err = tracebacks_take(taking);

	if (!err)
		err = blocks_add(taking, EVENT_LAYER_PYTHON);
	if (!err)
		err = blocks_add(taking, EVENT_LAYER_NATIVE);
	return err ? err : regions_add(taking);
}

static const char *const moments[] = {
	[TRACE_RUNNING] = "running",
	[TRACE_FINALIZING] = "finalizing",
	[TRACE_EXITED] = "exited",
	[TRACE_EXECED] = "execed",
};

/*
 * Up to when the table is known: one that goes on was heard of when losses were told last, though
 * it may have done nothing.
 */
static uint64_t moment_ns(const struct trace *trace, const struct trace_process *info)
{
	uint64_t told = trace->loss.header.time_ns;

	return info->end == TRACE_RUNNING && told > info->end_ns ? told : info->end_ns;
}

static void meta_set(struct snapshot_meta *meta, const struct trace *trace,
		     const struct process_state *process)
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
		.peak_bytes = table->peak_bytes,
		.frees_unknown = table->frees_unknown,
		.replaced = table->replaced,
		.stacks_unknown = info->counters.stacks_unknown,
		.frames_unknown = info->counters.frames_unknown,
		.frames_unnamed = info->counters.frames_unnamed,
		.frames_slow = info->counters.frames_slow,
		.stacks_cut = info->counters.stacks_cut,
		.layer = layer,
		.rounded_blocks = info->rounded_blocks,
		.sample_bytes = info->sample_bytes,
		.records_malformed = info->counters.records_malformed + trace->orphans,
		.layers = info->layers & ~(1u << layer),
		.native = {info->tables[EVENT_LAYER_NATIVE].peak_bytes,
			   info->tables[EVENT_LAYER_NATIVE].frees_unknown,
			   info->tables[EVENT_LAYER_NATIVE].replaced},
		.large_skipped = info->large_skipped,
		.reuse_unseen = info->reuse_unseen,
		.ends_unseen = info->ends_unseen,
		.pool_bytes = info->pool_bytes,
		.regions_dropped = info->counters.regions_dropped,
		.blocks_dropped = info->counters.blocks_dropped,
		.bytes_dropped = info->counters.bytes_dropped,
		.stacks_dropped = info->counters.stacks_dropped,
		.codes_dropped = info->counters.codes_dropped,
		.symbols_dropped = info->counters.symbols_dropped,
		.readings_dropped = info->counters.readings_dropped,
		.rss_bytes = info->rss_bytes,
		.coverage_known = coverage->time_ns != 0,
		.coverage = *coverage,
		.ending = info->ending,
	};
	if (state_heap_tells(info) && meta->layer == EVENT_LAYER_PYTHON)
		meta->unread_ns =
			info->end_ns - (coverage->time_ns ? coverage->time_ns : info->start_ns);
	if (info->rss_bytes && moment_ns(trace, info) > info->rss_ns)
		meta->rss_age_ns = moment_ns(trace, info) - info->rss_ns;
	meta->change_count = info->change_count;
	meta->changes_dropped = info->changes_dropped;
	memcpy(meta->changes, info->changes, sizeof(meta->changes));
	memcpy(meta->name, info->name, sizeof(meta->name));
	memcpy(meta->container, info->container, sizeof(meta->container));
	snprintf(meta->mode, sizeof(meta->mode), "%s", snapshot_mode_name(info->mode));
	snprintf(meta->moment, sizeof(meta->moment), "%s", moments[info->end]);
	memcpy(meta->loss, trace->loss.counts, sizeof(meta->loss));
}

static int trace_compare(const void *a, const void *b)
{
	const struct snapshot_trace *x = a, *y = b;

	if (x->traceback != y->traceback)
		return x->traceback < y->traceback ? -1 : 1;
	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x->flags < y->flags ? -1 : x->flags > y->flags;
}

/* Equal traces become one, unless they are to stay apart. */
static void layer_sort(struct snapshot_layer *layer, int apart)
{
	size_t count = 0;

	if (layer->trace_count)
		qsort(layer->traces, layer->trace_count, sizeof(*layer->traces), trace_compare);
	for (size_t i = 0; i < layer->trace_count && !apart; i++) {
		if (count && !trace_compare(&layer->traces[count - 1], &layer->traces[i]))
			layer->traces[count - 1].count += layer->traces[i].count;
		else
			layer->traces[count++] = layer->traces[i];
	}
	if (!apart)
		layer->trace_count = count;
}

/* UINT32_MAX in each place. */
static uint32_t *map_new(size_t count)
{
	uint32_t *map = reallocarray(NULL, count, sizeof(*map));

	if (map)
		memset(map, 0xff, count * sizeof(*map));
	return map;
}

/*
 * What a layer of the snapshot holds was there at once. The peak that is kept may be less: where
 * the heap tells of deaths it is that of its readings, and in a sample each block's share was
 * rounded by itself.
 */
static void peak_raise(const struct snapshot *snapshot, enum event_layer layer, uint64_t *peak)
{
	struct snapshot only = snapshot_of_layer(snapshot, layer);
	struct estimate sum = {0};
	uint64_t bytes = 0;

	for (size_t i = 0; i < only.trace_count; i++)
		if (only.meta.sample_bytes)
			estimate_add(&sum, only.meta.sample_bytes, only.traces[i].bytes,
				     only.traces[i].count);
		else
			bytes += only.traces[i].bytes * only.traces[i].count;
	/* Rounded up, as the total may be. */
	if (only.meta.sample_bytes && estimate_round(sum.size + 0.5, &bytes))
		bytes = INT64_MAX;
	if (bytes > *peak)
		*peak = bytes;
}

static void peaks_raise(struct snapshot *snapshot)
{
	struct snapshot_meta *meta = &snapshot->meta;

	if (meta->layer < EVENT_LAYER_TABLES)
		peak_raise(snapshot, meta->layer, &meta->peak_bytes);
	if (meta->layers & 1u << EVENT_LAYER_NATIVE)
		peak_raise(snapshot, EVENT_LAYER_NATIVE, &meta->native.peak_bytes);
}

int state_snapshot(struct trace *trace, struct process_state *process, struct snapshot **out)
{
	struct taking taking = {
		.trace = trace, .process = process, .account.parent = &trace->account};
	int err = builder_begin_in(&taking.builder, &taking.account);

	if (err)
		return err;
	taking.string_count = strings_count(process->strings);
	taking.strings = map_new(taking.string_count);
	taking.tracebacks = map_new(process->stack_count);
	taking.unknown = calloc(process->stack_count, sizeof(*taking.unknown));
	err = taking.strings && taking.tracebacks && taking.unknown ? layers_add(&taking) : -ENOMEM;
	free(taking.strings);
	free(taking.unknown);
	free(taking.tracebacks);
	if (err) {
		builder_abort(&taking.builder);
		return err;
	}
	process->info.counters.frames_unknown = taking.unread;
	process->info.counters.frames_unnamed = taking.unnamed;
	process->info.counters.frames_slow = taking.slow;
	process->info.counters.stacks_cut = taking.cut;
	struct snapshot *snapshot = builder_finish(&taking.builder);
	meta_set(&snapshot->meta, trace, process);
	memcpy(snapshot->meta.unknown, taking.unknowns, sizeof(snapshot->meta.unknown));
	snapshot->meta.blocks_dropped += taking.blocks_left;
	snapshot->meta.bytes_dropped += taking.bytes_left;
	if (snapshot->trace_count)
		qsort(snapshot->traces, snapshot->trace_count, sizeof(*snapshot->traces),
		      trace_compare);
	for (size_t i = 0; i < EVENT_LAYERS; i++)
		layer_sort(&snapshot->layers[i], i == EVENT_LAYER_MMAP);
	peaks_raise(snapshot);
	*out = snapshot;
	return 0;
}

int trace_meta(const struct trace *trace, size_t index, struct snapshot_meta *meta)
{
	if (!trace_process_at(trace, index))
		return -ENOENT;
	meta_set(meta, trace, trace->processes[index]);
	return 0;
}

int trace_snapshot(struct trace *trace, size_t index, int want_final, struct snapshot **out)
{
	if (!trace_process_at(trace, index))
		return -ENOENT;
	struct process_state *process = trace->processes[index];
	if (!process->final || (!want_final && !process->table_kept))
		return state_snapshot(trace, process, out);
	int err = snapshot_copy(process->final, out);
	if (err)
		return err;
	/*
	 * Loss is counted for the session and often told only at its end, as is coverage: what is
	 * known of them now says more about the final state than what was known then.
	 */
	struct snapshot_meta now, *meta = &(*out)->meta;
	meta_set(&now, trace, process);
	memcpy(meta->loss, now.loss, sizeof(meta->loss));
	meta->records_malformed = now.records_malformed;
	meta->coverage_known = now.coverage_known;
	meta->coverage = now.coverage;
	meta->has_exited = now.has_exited;
	meta->wait_status = now.wait_status;
	return 0;
}

/* Malformed records that belong to no process are the whole's alone, where there are several. */
static int processes_merge(struct trace *trace, int want_final, struct merger *merger)
{
	int err = 0;

	for (size_t i = 0; !err && i < trace->process_count; i++) {
		struct snapshot *one;

		err = trace_snapshot(trace, i, want_final, &one);
		if (err == -ENOENT) {
			err = 0;
			continue;
		}
		if (err)
			break;
		one->meta.records_malformed -= trace->orphans;
		err = merger_add(merger, one, NULL);
		snapshot_free(one);
	}
	return err;
}

int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out)
{
	struct account account = {.parent = &trace->account};
	struct merger merger;

	if (trace->process_count - trace->free_count <= 1) {
		size_t only = 0;

		while (only < trace->process_count && !trace->processes[only])
			only++;
		return trace_snapshot(trace, only, want_final, out);
	}
	int err = merger_begin_in(&merger, &account);
	if (err)
		return err;
	err = processes_merge(trace, want_final, &merger);
	if (err) {
		merger_abort(&merger);
		return err;
	}
	*out = merger_finish(&merger);
	(*out)->meta.records_malformed += trace->orphans;
	return 0;
}
