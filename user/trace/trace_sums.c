/* SPDX-License-Identifier: Apache-2.0 */
/* What is live at each stack, for a view that is refreshed often. */
#include <errno.h>
#include <stdlib.h>

#include "trace/state.h"
#include "windowed/trace_windowed.h"

static const struct process_state *running(const struct trace *trace, size_t index)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;

	return process && !process->table_kept ? process : NULL;
}

size_t trace_stack_count(const struct trace *trace, size_t index)
{
	const struct process_state *process = running(trace, index);

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

int trace_has_allocated(const struct trace *trace, size_t index, enum event_layer layer)
{
	const struct process_state *process = running(trace, index);

	return process && state_activity_known(process, BESIDE_ALLOCATED, layer);
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

static int is_sampled(const struct process_state *process, enum event_layer layer)
{
	return process->info.sample_bytes || (layer == EVENT_LAYER_NATIVE && process->weights);
}

/* Do the activities say what is alive? With sampling they are rounded more than once. */
static int is_live_known(const struct process_state *process, enum event_layer layer)
{
	return state_activity_known(process, BESIDE_PEAK, layer) && !is_sampled(process, layer);
}

struct windows_sum {
	struct trace_sum *sums;
	size_t count;
};

static int rows_sum(void *context, const struct snapshot_trace *rows,
		    const struct calibrate_result *result)
{
	const struct windows_sum *out = context;

	for (size_t i = 0; i < result->row_count; i++) {
		if (rows[i].traceback >= out->count)
			continue;
		out->sums[rows[i].traceback].size += result->rows[i].blocks * (double)rows[i].bytes;
		out->sums[rows[i].traceback].count += result->rows[i].blocks;
	}
	return 0;
}

/* What a report says, by stack. 0; -ENOMEM, and nothing was added. */
static int windows_sum(const struct process_state *process, struct trace_sum *sums)
{
	struct windows_sum out = {sums, process->stack_count};
	uint32_t *stacks = calloc(process->stack_count + 1, sizeof(*stacks));
	int err = -ENOMEM;

	for (uint32_t i = 0; stacks && i < process->stack_count; i++)
		stacks[i] = i;
	if (stacks)
		err = trace_windowed_estimate(process, stacks, rows_sum, &out);
	free(stacks);
	return err;
}

/* estimated: without the blocks that estimates cover. */
static void blocks_sum(const struct process_state *process, enum event_layer layer, int estimated,
		       struct trace_sum *sums)
{
	int sampled = is_sampled(process, layer);
	const struct block *block;
	size_t cursor = 0;

	while (process->blocks[layer] && (block = blocks_next(process->blocks[layer], &cursor))) {
		double chance = sampled ? state_chance(process, layer, block) : 1;

		if (block->stack >= process->stack_count ||
		    (estimated && state_block_stands(process, layer, block)))
			continue;
		sums[block->stack].size += (double)block->bytes / chance;
		sums[block->stack].count += 1 / chance;
	}
}

void trace_sums(const struct trace *trace, size_t index, enum event_layer layer,
		struct trace_sum *sums)
{
	const struct process_state *process = running(trace, index);

	if (!process)
		return;
	if (layer == EVENT_LAYER_MMAP) {
		regions_sum(&process->regions, sums, process->stack_count);
		return;
	}
	int live = is_live_known(process, layer);

	if (!live)
		blocks_sum(process, layer,
			   process->info.mode == EVENT_MODE_WINDOWS &&
				   layer == state_window_layer(&process->info) &&
				   !windows_sum(process, sums),
			   sums);
	activities_sum(process, layer, live, sums);
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
	const struct process_state *process = running(trace, index);
	struct trace_sum sum;
	int err = 0;

	if (!process || !process->activities.told_first || since < process->activities.told_first ||
	    !is_live_known(process, layer))
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

uint32_t trace_sums_told(struct trace *trace)
{
	trace->told++;
	for (size_t i = 0; i < trace->process_count; i++) {
		struct process_state *process = trace->processes[i];

		if (!process)
			continue;
		process->activities.telling = trace->told + 1;
		if (process->info.end != TRACE_RUNNING)
			process->activities.told_first = 0;
		else if (!process->activities.told_first)
			process->activities.told_first = trace->told;
	}
	return trace->told;
}
