/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots. Tracebacks are in the order in which the trace first saw them, and traces in the order
 * of their tracebacks. So the same events give the same snapshot, independent of hash seeds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/ages.h"
#include "snapshot/builder.h"
#include "snapshot/estimate.h"
#include "snapshot/merge.h"
#include "trace/estimate/windowed_large.h"
#include "trace/state.h"
#include "util/array.h"
#include "util/id_map.h"
#include "util/sorted.h"

/* --- trace sums ------------------------------------------------------------------------------- */

/* What is live at each stack, for a view that is refreshed often. */

size_t trace_stack_count(const struct trace *trace, size_t index)
{
	const struct process_state *process = state_running(trace, index);

	return process ? process->stack_count : 0;
}

static void regions_sum(const struct regions *regions, struct trace_sum *sums, size_t count)
{
	for (size_t i = 0; i < regions->count; i++) {
		const struct region *region = &regions->items[i];

		if (!region->accessible || region->stack >= count)
			continue;
		sums[region->stack].size += (double)(region->end - region->start);
		sums[region->stack].count++;
	}
}

static void pages_sum(const struct process_state *process, struct trace_sum *sums)
{
	uint64_t mean = process->info.sample_bytes;
	double chance = mean ? estimate_chance(mean, EVENT_PAGES_UNIT) : 1;
	struct page_run run;

	for (size_t cursor = 0; pages_next(&process->pages, &cursor, &run);) {
		if (!state_pages_count(process, run.bits) || run.stack >= process->stack_count)
			continue;
		sums[run.stack].size += run.count * EVENT_PAGES_UNIT / chance;
		sums[run.stack].count += run.count / chance;
	}
}

bool trace_has_allocated(const struct trace *trace, size_t index, enum event_layer layer)
{
	const struct process_state *process = state_running(trace, index);

	return process && process->info.mode != EVENT_MODE_WINDOWS &&
	       state_activity_known(process, EXTRA_ALLOCATED, layer);
}

void trace_rate(const struct trace *trace, size_t index, struct trace_rate *out)
{
	const struct process_state *process = state_running(trace, index);

	*out = (struct trace_rate){0};
	if (process)
		state_window_allocs_rate(process, out);
}

static void activity_add(const struct activity *activity, int live, struct trace_sum *sum)
{
	sum->allocated += (double)activity->bytes;
	if (!live)
		return;
	sum->size += (double)activity->live_bytes;
	sum->count += (double)activity->live_units / ACTIVITY_UNIT;
}

static void activities_sum(const struct process_state *process, enum event_layer layer, int live,
			   struct trace_sum *sums)
{
	for (size_t i = 0; i < process->activities.count; i++) {
		const struct activity *activity = &process->activities.items[i];

		if (activity->layer == layer && activity->stack < process->stack_count)
			activity_add(activity, live, &sums[activity->stack]);
	}
}

static bool is_sampled(const struct process_state *process, enum event_layer layer)
{
	return process->info.sample_bytes || (layer == EVENT_LAYER_NATIVE && process->weights);
}

/* Do the activities say what is alive? With sampling they are rounded more than once. */
static bool is_live_known(const struct process_state *process, enum event_layer layer)
{
	return state_activity_known(process, EXTRA_PEAK, layer) && !is_sampled(process, layer);
}

struct age_sums {
	struct trace_age_sum *items;
	size_t count, capacity;
	struct id_map index; /* by stack and age */
	uint64_t most_ns;    /* as in ages_coarse() */
	int err;             /* -ENOMEM: some are missing */
};

/* What is to be summed up: of all blocks, or with ages of some at a moment. */
struct aged_sums {
	struct trace_sum *sums;  /* by stack, */
	size_t count;            /* of so many; */
	struct age_sums *by_age; /* NULL, or by stack and age */
	const struct ages *ages;
	uint64_t moment_ns;
};

static struct trace_age_sum *age_sum_of(struct age_sums *sums, uint32_t stack, uint32_t age)
{
	uint64_t key = (uint64_t)stack << 32 | age;
	uint32_t at = id_map_find(&sums->index, key);

	if (at != ID_MAP_NONE)
		return &sums->items[at];
	sums->err = sums->err ?: ARRAY_GROW(sums->items, sums->capacity, sums->count)
				      ?: id_map_put(&sums->index, key, (uint32_t)sums->count);
	if (sums->err)
		return NULL;
	sums->items[sums->count] = (struct trace_age_sum){.stack = stack, .age = age};
	return &sums->items[sums->count++];
}

/* known: is the age known? */
static void aged_add(const struct aged_sums *out, uint32_t stack, uint64_t age_ns, bool known,
		     const struct trace_sum *sum)
{
	const struct ages *ages = out->ages;
	struct trace_age_sum *of;

	if (stack >= out->count ||
	    (ages && (!known || age_ns < ages->least_ns || age_ns > ages->most_ns)))
		return;
	if (!out->by_age) {
		out->sums[stack].size += sum->size;
		out->sums[stack].count += sum->count;
		return;
	}
	of = age_sum_of(out->by_age, stack,
			known ? ages_coarse(age_ns, out->by_age->most_ns) : AGE_UNKNOWN);
	if (of) {
		of->size += sum->size;
		of->count += sum->count;
	}
}

static int rows_sum(void *context, const struct snapshot_trace *rows,
		    const struct calibrate_result *result, uint64_t ages_error_ns)
{
	const struct aged_sums *out = context;
	(void)ages_error_ns;

	for (size_t i = 0; i < result->row_count; i++) {
		const struct trace_sum sum = {.size = result->rows[i].blocks *
						      (double)rows[i].bytes,
					      .count = result->rows[i].blocks};

		aged_add(out, rows[i].traceback, rows[i].age * AGE_UNIT_NS,
			 rows[i].age != AGE_UNKNOWN, &sum);
	}
	return 0;
}

/* What a report says, by stack. 0; -ENOMEM, and nothing was added. */
static int windows_sum(const struct process_state *process, struct aged_sums *out)
{
	const struct windowed_split split = {.moment_ns =
						     out->ages || out->by_age ? out->moment_ns : 0};
	uint32_t *stacks = state_stacks_all(process);
	int err =
		stacks ? trace_windowed_estimate(process, stacks, &split, rows_sum, out) : -ENOMEM;

	free(stacks);
	return err;
}

uint32_t *state_stacks_all(const struct process_state *process)
{
	uint32_t *stacks = calloc(process->stack_count + 1, sizeof(*stacks));

	for (uint32_t i = 0; stacks && i < process->stack_count; i++)
		stacks[i] = i;
	return stacks;
}

bool state_block_stands(const struct process_state *process, enum event_layer layer,
			const struct block *block)
{
	return process->info.mode == EVENT_MODE_WINDOWS &&
	       layer == state_window_layer(&process->info) &&
	       (block->pooled || process->info.large_windowed || layer == EVENT_LAYER_NATIVE) &&
	       !block->domain;
}

/* estimated: without the blocks that estimates cover. */
static void blocks_sum(const struct process_state *process, enum event_layer layer, int estimated,
		       const struct aged_sums *out)
{
	int sampled = is_sampled(process, layer);
	const struct block *block;

	for (size_t cursor = 0;
	     process->blocks[layer] && (block = blocks_next(process->blocks[layer], &cursor));) {
		double chance = sampled ? state_chance(process, layer, block) : 1;
		const struct trace_sum sum = {.size = (double)block->bytes / chance,
					      .count = 1 / chance};
		uint64_t born_ns = state_birth_ns(process, block);

		if (!estimated || !state_block_stands(process, layer, block))
			aged_add(out, block->stack,
				 out->moment_ns > born_ns ? out->moment_ns - born_ns : 0, true,
				 &sum);
	}
}

/* Of all blocks of a layer that has a table. */
static void live_sum(const struct process_state *process, enum event_layer layer,
		     struct aged_sums *out)
{
	int estimated = process->info.mode == EVENT_MODE_WINDOWS &&
			layer == state_window_layer(&process->info) && !windows_sum(process, out);

	blocks_sum(process, layer, estimated, out);
}

void trace_sums(const struct trace *trace, size_t index, enum event_layer layer,
		const struct ages *ages, struct trace_sum *sums)
{
	const struct process_state *process = state_running(trace, index);

	if (!process)
		return;
	if (layer == EVENT_LAYER_MMAP) {
		if (!ages)
			regions_sum(&process->regions, sums, process->stack_count);
		return;
	}
	if (layer == EVENT_LAYER_PAGES) {
		if (!ages)
			pages_sum(process, sums);
		return;
	}
	struct aged_sums out = {.sums = sums,
				.count = process->stack_count,
				.ages = ages,
				.moment_ns = state_moment_ns(trace, &process->info)};
	int live = !ages && is_live_known(process, layer);

	if (!live)
		live_sum(process, layer, &out);
	if (!ages)
		activities_sum(process, layer, live, sums);
}

int trace_age_sums(const struct trace *trace, size_t index, enum event_layer layer,
		   const struct ages *ages,
		   int (*add)(void *context, const struct trace_age_sum *sum), void *context)
{
	const struct process_state *process = state_running(trace, index);
	struct age_sums sums = {0};
	int err;

	if (!process || layer >= EVENT_LAYER_TABLES)
		return -ENODATA;
	struct aged_sums out = {.count = process->stack_count,
				.by_age = &sums,
				.ages = ages,
				.moment_ns = state_moment_ns(trace, &process->info)};

	sums.most_ns = out.moment_ns - lesser(process->births_ns, out.moment_ns);
	live_sum(process, layer, &out);
	err = sums.err;
	for (size_t i = 0; !err && i < sums.count; i++)
		err = add(context, &sums.items[i]);
	id_map_free(&sums.index);
	free(sums.items);
	return err;
}

/* What the activities of its stack come to, if it is the first of them that has changed. 1, 0. */
static int changed_sum(const struct process_state *process, const struct activity *changed,
		       uint32_t since, struct trace_sum *sum)
{
	const struct activity *first = NULL;

	*sum = (struct trace_sum){0};
	for (uint32_t i = process->stacks[changed->stack].activity; i;) {
		const struct activity *activity = &process->activities.items[i - 1];

		i = activity->next;
		if (activity->layer != changed->layer)
			continue;
		if (!first && activity->changed > since)
			first = activity;
		activity_add(activity, 1, sum);
	}
	return first == changed;
}

int trace_sums_changed(const struct trace *trace, size_t index, enum event_layer layer,
		       uint32_t since,
		       int (*add)(void *context, uint32_t stack, const struct trace_sum *sum),
		       void *context)
{
	const struct process_state *process = state_running(trace, index);
	struct trace_sum sum;
	int err = 0;

	if (!process || !process->activities.reported_first ||
	    since < process->activities.reported_first || !is_live_known(process, layer))
		return -ENODATA;
	for (size_t i = 0; !err && i < process->activities.count; i++) {
		const struct activity *activity = &process->activities.items[i];

		if (activity->changed > since && activity->layer == layer &&
		    activity->stack < process->stack_count &&
		    changed_sum(process, activity, since, &sum))
			err = add(context, activity->stack, &sum);
	}
	return err;
}

uint32_t trace_sums_reported(struct trace *trace)
{
	trace->reported++;
	for (size_t i = 0; i < trace->process_count; i++) {
		struct process_state *process = trace->processes[i];

		if (!process)
			continue;
		process->activities.telling = trace->reported + 1;
		if (process->info.end != TRACE_RUNNING)
			process->activities.reported_first = 0;
		else if (!process->activities.reported_first)
			process->activities.reported_first = trace->reported;
	}
	return trace->reported;
}

/* --- trace snapshot all ----------------------------------------------------------------------- */

/* Snapshots of processes that run or have ended, and of all of them. */

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
	 * Losses and coverage are often reported only at the end of the session. Their current
	 * values describe the final state better than those from when it was taken.
	 */
	struct snapshot_meta now, *meta = &(*out)->meta;
	state_meta(trace, process, &now);
	memcpy(meta->loss, now.loss, sizeof(meta->loss));
	meta->records_malformed = now.records_malformed;
	meta->coverage_known = now.coverage_known;
	meta->coverage = now.coverage;
	meta->has_exited = now.has_exited;
	meta->wait_status = now.wait_status;
	meta->oom_killed = now.oom_killed;
	return 0;
}

static bool is_chosen(const struct trace *trace, size_t index, bool running)
{
	const struct process_state *process = trace->processes[index];

	return process && (!running || process->info.end == TRACE_RUNNING);
}

/* Malformed records without a process are counted once, in the merged snapshot. */
static int processes_merge(struct trace *trace, int want_final, bool running,
			   struct builder *builder)
{
	int err = 0;

	for (size_t i = 0; !err && i < trace->process_count; i++) {
		struct snapshot *one;

		if (!is_chosen(trace, i, running))
			continue;
		err = trace_snapshot(trace, i, want_final, &one);
		if (err == -ENOENT) {
			err = 0;
			continue;
		}
		if (err)
			break;
		one->meta.records_malformed -= trace->orphans;
		err = merge_add(builder, one, NULL);
		snapshot_free(one);
	}
	return err;
}

static int processes_snapshot(struct trace *trace, int want_final, bool running,
			      struct snapshot **out)
{
	struct account account = {.parent = &trace->account};
	size_t count = 0, last = trace->process_count;
	struct builder builder;

	for (size_t i = 0; i < trace->process_count; i++)
		if (is_chosen(trace, i, running)) {
			last = i;
			count++;
		}
	if (count <= 1)
		return trace_snapshot(trace, last, want_final, out);
	int err = builder_begin_in(&builder, &account);
	if (err)
		return err;
	err = processes_merge(trace, want_final, running, &builder);
	if (err) {
		builder_abort(&builder);
		return err;
	}
	*out = merge_finish(&builder);
	(*out)->meta.records_malformed += trace->orphans;
	return 0;
}

int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out)
{
	return processes_snapshot(trace, want_final, false, out);
}

int trace_snapshot_running(struct trace *trace, struct snapshot **out)
{
	return processes_snapshot(trace, 1, true, out);
}

/* --- trace snapshot --------------------------------------------------------------------------- */

#define BIRTH_ERROR_NS 10000000u /* a kernel tick at most (abi/events.h) */

/*
 * The state of taking one snapshot. Both maps are indexed by id in the trace and hold UINT32_MAX
 * for ids not mapped yet.
 */
struct snapshot_job {
	struct trace *trace;
	struct process_state *process;
	uint64_t moment_ns;
	struct account account; /* of the builder */
	struct builder builder;
	uint32_t *strings;
	uint32_t string_count;
	uint32_t *tracebacks;
	uint16_t
		*natives; /* of the process's binaries: native in the snapshot; 0: not mapped yet */
	uint64_t unread, unnamed; /* Python frames; native frames */
	uint64_t slow;            /* native frames */
	struct stack_ends ends;
	uint8_t *unknown; /* enum snapshot_unknown of each traceback in use */
	struct snapshot_unknowns unknowns[SNAPSHOT_UNKNOWNS + 1];
	uint64_t blocks_omitted, bytes_omitted; /* no memory for them or for their tracebacks */
	int allocated_omitted;
};

static int string_map(struct snapshot_job *job, uint32_t id, uint32_t *out)
{
	/* The text of an unnamed address is interned while the snapshot is taken. */
	if (id >= job->string_count) {
		const char *text = strings_get(job->process->strings, id);

		return strings_intern(job->builder.snapshot->strings, text, strlen(text), out);
	}
	if (job->strings[id] == UINT32_MAX) {
		const char *text = strings_get(job->process->strings, id);
		int err = strings_intern(job->builder.snapshot->strings, text, strlen(text),
					 &job->strings[id]);

		if (err)
			return err;
	}
	*out = job->strings[id];
	return 0;
}

static int native_map(struct snapshot_job *job, uint16_t native, uint16_t *out)
{
	int err = 0;

	*out = native;
	if (native <= SNAPSHOT_NATIVE)
		return 0;
	native -= SNAPSHOT_NATIVE + 1;
	if (!job->natives[native]) {
		struct snapshot_binary binary = job->process->binaries[native];

		err = string_map(job, binary.path, &binary.path)
			      ?: string_map(job, binary.build_id, &binary.build_id)
			      ?: builder_binary(&job->builder, &binary, &job->natives[native]);
	}
	*out = job->natives[native];
	return err;
}

static int frame_map(struct snapshot_job *job, const struct trace_frame *frame,
		     struct snapshot_frame *out)
{
	int err = string_map(job, frame->filename, &out->filename)
			  ?: string_map(job, frame->function, &out->function)
			  ?: native_map(job, frame->native, &out->native);

	out->line = frame->line;
	out->inlined = frame->inlined;
	return err;
}

static void stack_end_count(struct snapshot_job *job, uint32_t index)
{
	const char *file = state_native_file(job->process, index);
	uint8_t cut = job->process->stacks[index].cut;

	if (cut)
		stack_ends_cut(&job->ends, cut - 1u, file);
	else if (file[0])
		job->ends.whole++;
}

/* Counts the bytes of a block or region whose stack begins with native frames. */
static void stack_bytes_count(struct snapshot_job *job, uint32_t index, uint64_t bytes)
{
	if (job->process->stacks[index].cut)
		job->ends.cut_bytes += bytes;
	else if (state_native_file(job->process, index)[0])
		job->ends.whole_bytes += bytes;
}

/* Adds the traceback; its frames are then in the trace's scratch. */
static int traceback_add(struct snapshot_job *job, uint32_t index)
{
	struct snapshot_frame frames[EVENT_MAX_FRAMES];
	struct traceback_frames *traceback = &job->trace->scratch;
	int err = 0;

	state_traceback(job->process, index, traceback);
	for (uint32_t i = 0; !err && i < traceback->count; i++)
		err = frame_map(job, &traceback->frames[i], &frames[i]);
	return err ? err
		   : builder_traceback(&job->builder, frames, traceback->count, traceback->total,
				       &job->tracebacks[index]);
}

static int traceback_take(struct snapshot_job *job, uint32_t index)
{
	size_t known = job->builder.snapshot->traceback_count;
	const struct traceback_frames *traceback = &job->trace->scratch;
	int err = traceback_add(job, index);

	if (job->builder.snapshot->traceback_count > known) {
		job->unread += traceback->unread;
		job->unnamed += traceback->unnamed;
	}
	job->slow += traceback->slow; /* counted even if it is equal to a known one */
	stack_end_count(job, index);
	job->unknown[index] = (uint8_t)state_unknown(job->process, index);
	return err;
}

/* Adds the tracebacks of blocks and regions, in the order in which the trace first saw them. */
static int tracebacks_take(struct snapshot_job *job)
{
	const struct process_state *process = job->process;
	const struct block *block;
	struct page_run run;
	int err = 0;

	for (size_t cursor = 0; pages_next(&process->pages, &cursor, &run);)
		if (state_pages_count(process, run.bits))
			job->tracebacks[run.stack] = 0;
	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++)
		for (size_t cursor = 0; (block = blocks_next(process->blocks[layer], &cursor));)
			job->tracebacks[block->stack] = 0; /* marks it as in use */
	for (size_t i = 0; i < process->regions.count; i++)
		job->tracebacks[process->regions.items[i].stack] = 0;
	for (size_t i = 0; i < process->windows.deaths.count; i++)
		job->tracebacks[process->windows.deaths.items[i].stack] = 0;
	for (size_t i = 0; i < process->windows.taken.count; i++)
		job->tracebacks[process->windows.taken.items[i].stack] = 0;
	for (uint32_t i = 0; !err && i < process->stack_count; i++) {
		if (job->tracebacks[i] == UINT32_MAX)
			continue;
		job->tracebacks[i] = UINT32_MAX;
		err = traceback_take(job, i);
		if (account_is_full(err))
			err = 0;
	}
	return err;
}

/*
 * Adds what was allocated, with the tracebacks of which nothing is alive: after the others, and
 * without a part in the figures about those. Without memory, a layer is left out.
 */
static int activities_add(struct snapshot_job *job)
{
	const struct process_state *process = job->process;
	int err = 0;

	for (uint32_t i = 0; !err && i < process->stack_count; i++)
		if (process->stacks[i].activity && job->tracebacks[i] == UINT32_MAX)
			err = traceback_add(job, i);
	if (!err)
		err = state_activities_add(process, job->tracebacks, &job->builder)
			      ?: state_threads_add(process, job->tracebacks, &job->builder);
	if (!account_is_full(err))
		return err;
	job->allocated_omitted = 1;
	for (size_t i = SNAPSHOT_EXTRA_FIRST; i < SNAPSHOT_LAYERS; i++)
		job->builder.snapshot->layers[i].trace_count = 0;
	return 0;
}

static int trace_add(struct snapshot_job *job, enum event_layer layer,
		     const struct snapshot_trace *trace)
{
	int err = -EDQUOT;

	if (trace->traceback != UINT32_MAX)
		err = layer == trace_first_layer(&job->process->info)
			      ? builder_trace(&job->builder, trace)
			      : builder_layer(&job->builder, layer, trace);
	if (!account_is_full(err))
		return err;
	job->blocks_omitted += trace->count;
	job->bytes_omitted += trace->bytes;
	return 0;
}

static uint32_t block_age(const struct snapshot_job *job, const struct block *block)
{
	uint64_t born_ns = state_birth_ns(job->process, block);

	if (!job->trace->ages || block->born_ms == UINT32_MAX)
		return AGE_UNKNOWN;
	return ages_round(job->moment_ns > born_ns ? job->moment_ns - born_ns : 0,
			  job->moment_ns - job->process->births_ns);
}

static int blocks_add(struct snapshot_job *job, enum event_layer layer)
{
	const struct blocks *blocks = job->process->blocks[layer];
	const struct block *block;
	int err = 0;

	for (size_t cursor = 0; !err && (block = blocks_next(blocks, &cursor));) {
		if (state_block_stands(job->process, layer, block))
			continue;
		struct snapshot_trace trace = {.traceback = job->tracebacks[block->stack],
					       .domain = block->domain,
					       .flags = state_block_flags(block),
					       .age = block_age(job, block),
					       .bytes = block->bytes,
					       .count = 1};

		trace.weight = layer == EVENT_LAYER_NATIVE ? state_weight(job->process, block) : 0;
		err = trace_add(job, layer, &trace);
		if (layer == EVENT_LAYER_NATIVE)
			stack_bytes_count(job, block->stack, block->bytes);
		if (err || layer != trace_first_layer(&job->process->info))
			continue;
		struct snapshot_unknowns *why = &job->unknowns[job->unknown[block->stack]];
		why->blocks++;
		why->bytes += block->bytes;
	}
	return err;
}

static int regions_add(struct snapshot_job *job)
{
	const struct regions *regions = &job->process->regions;
	int err = 0;

	for (size_t i = 0; i < regions->count && !err; i++) {
		const struct region *region = &regions->items[i];
		struct snapshot_trace trace = {.traceback = job->tracebacks[region->stack],
					       .flags = region->inherited ? SNAPSHOT_INHERITED : 0,
					       .bytes = region->end - region->start,
					       .count = 1};

		if (!region->accessible)
			continue;
		err = trace_add(job, EVENT_LAYER_MMAP, &trace);
		/* Otherwise the blocks in it are counted. */
		if (!(job->process->info.layers & 1u << EVENT_LAYER_NATIVE))
			stack_bytes_count(job, region->stack, trace.bytes);
	}
	return err;
}

static int pages_add(struct snapshot_job *job)
{
	const struct process_state *process = job->process;
	struct page_run run;
	int err = 0;

	for (size_t cursor = 0; !err && pages_next(&process->pages, &cursor, &run);) {
		const struct snapshot_trace trace = {
			.traceback = job->tracebacks[run.stack],
			.flags = run.bits & PAGE_INHERITED ? SNAPSHOT_INHERITED : 0,
			.bytes = EVENT_PAGES_UNIT,
			.count = run.count};
		unsigned int why = (run.bits & PAGE_STATE) >= PAGE_UNFAULTED
					   ? UNKNOWN_NO_FAULT
					   : job->unknown[run.stack];

		if (!state_pages_count(process, run.bits))
			continue;
		err = trace_add(job, EVENT_LAYER_PAGES, &trace);
		stack_bytes_count(job, run.stack, trace.bytes * trace.count);
		job->unknowns[why].blocks += trace.count;
		job->unknowns[why].bytes += trace.bytes * trace.count;
	}
	return err;
}

static int layers_add(struct snapshot_job *job)
{
	int err = tracebacks_take(job) ?: blocks_add(job, EVENT_LAYER_PYTHON);

	if (!err && job->process->info.mode == EVENT_MODE_WINDOWS)
		err = trace_windowed_add(job->process, job->tracebacks,
					 job->trace->ages ? job->moment_ns : 0, &job->builder);
	return err ?: blocks_add(job, EVENT_LAYER_NATIVE)
			?: regions_add(job)
			?: pages_add(job)
			?: activities_add(job);
}

static int trace_compare(const void *a, const void *b)
{
	const struct snapshot_trace *x = a, *y = b;

	return CMP(x->traceback, y->traceback)
	       ?: CMP(x->domain, y->domain)
	       ?: CMP(x->bytes, y->bytes)
	       ?: CMP(x->flags, y->flags)
	       ?: CMP(x->thread, y->thread)
	       ?: CMP(x->task, y->task);
}

static void trace_join(struct snapshot_trace *trace, const struct snapshot_trace *equal)
{
	trace->count += equal->count;
	trace->weight += equal->weight;
}

/* Sorts the traces and merges equal ones, unless apart is set. */
static void layer_sort(struct snapshot_layer *layer, int apart)
{
	size_t count = 0;

	if (layer->trace_count)
		qsort(layer->traces, layer->trace_count, sizeof(*layer->traces), trace_compare);
	for (size_t i = 0; i < layer->trace_count && !apart; i++) {
		/* Each estimate has an error of its own. */
		if (count && !layer->traces[i].estimate && !layer->traces[count - 1].estimate &&
		    !trace_compare(&layer->traces[count - 1], &layer->traces[i]))
			trace_join(&layer->traces[count - 1], &layer->traces[i]);
		else
			layer->traces[count++] = layer->traces[i];
	}
	if (!apart)
		layer->trace_count = count;
}

/* Every entry is UINT32_MAX. */
static uint32_t *map_new(size_t count)
{
	uint32_t *map = reallocarray(NULL, count, sizeof(*map));

	if (map)
		memset(map, 0xff, count * sizeof(*map));
	return map;
}

/*
 * Raises a peak that is below the layer's current size. The recorded peak may be lower: where heap
 * walks find deaths it is updated only by walks, and with sampling each block's estimate was
 * rounded separately.
 */
static void peak_raise(const struct snapshot *snapshot, enum event_layer layer, uint64_t *peak)
{
	struct snapshot only = snapshot_of_layer(snapshot, layer);
	struct estimate sum = {0};
	uint64_t bytes = 0;

	for (size_t i = 0; i < only.trace_count; i++)
		if (snapshot_is_estimated(&only.meta))
			estimate_add_trace(&sum, &only, &only.traces[i]);
		else
			bytes += only.traces[i].bytes * only.traces[i].count;
	/* Rounded up, because the reported total may be. */
	if (snapshot_is_estimated(&only.meta) && estimate_round(sum.size + 0.5, &bytes))
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
	struct snapshot_job job = {.trace = trace,
				   .process = process,
				   .moment_ns = state_moment_ns(trace, &process->info),
				   .account.parent = &trace->account};
	int err = builder_begin_in(&job.builder, &job.account);

	if (err)
		return err;
	job.string_count = strings_count(process->strings);
	job.strings = map_new(job.string_count);
	job.tracebacks = map_new(process->stack_count);
	job.unknown = calloc(process->stack_count, sizeof(*job.unknown));
	job.natives = calloc(process->binary_count + 1, sizeof(*job.natives));
	err = job.strings && job.tracebacks && job.unknown && job.natives ? layers_add(&job)
									  : -ENOMEM;
	free(job.strings);
	free(job.natives);
	free(job.unknown);
	free(job.tracebacks);
	if (err) {
		builder_abort(&job.builder);
		return err;
	}
	process->info.counters.frames_unknown = job.unread;
	process->info.counters.frames_unnamed = job.unnamed;
	process->info.counters.frames_slow = job.slow;
	struct snapshot *snapshot = builder_finish(&job.builder);
	const struct snapshot_meta built = snapshot->meta;
	state_meta(trace, process, &snapshot->meta);
	snapshot->meta.stack_ends = job.ends;
	memcpy(snapshot->meta.sole_thread, built.sole_thread, sizeof(built.sole_thread));
	memcpy(snapshot->meta.sole_thread_name, built.sole_thread_name,
	       sizeof(built.sole_thread_name));
	snapshot->meta.windows = built.windows;
	snapshot->meta.ages_error_ns = built.ages_error_ns;
	if (trace->ages && snapshot->meta.ages_error_ns < BIRTH_ERROR_NS)
		snapshot->meta.ages_error_ns = BIRTH_ERROR_NS;
	snapshot->meta.windows.large = built.windows.count && process->info.large_windowed;
	snapshot->meta.windows.malloc_blocks = built.windows.count ? large_chunks(process) : 0;
	memcpy(snapshot->meta.unknown, job.unknowns, sizeof(snapshot->meta.unknown));
	if (job.allocated_omitted) {
		for (size_t i = 0; i < EXTRAS; i++) {
			snapshot->meta.extra[i].gaps |= snapshot->meta.extra[i].known;
			snapshot->meta.extra[i].known = 0;
		}
	}
	snapshot->meta.blocks_dropped += job.blocks_omitted;
	snapshot->meta.bytes_dropped += job.bytes_omitted;
	if (snapshot->trace_count)
		qsort(snapshot->traces, snapshot->trace_count, sizeof(*snapshot->traces),
		      trace_compare);
	for (size_t i = 0; i < SNAPSHOT_LAYERS; i++)
		layer_sort(&snapshot->layers[i], i == EVENT_LAYER_MMAP);
	peaks_raise(snapshot);
	*out = snapshot;
	return 0;
}
