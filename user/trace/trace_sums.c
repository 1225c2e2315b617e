/* SPDX-License-Identifier: Apache-2.0 */
/* What is live at each stack, for a view that is refreshed often: one pass over a table. */
#include "snapshot/estimate.h"
#include "trace/state.h"

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

static void activities_sum(const struct process_state *process, enum event_layer layer,
			   struct trace_sum *sums)
{
	for (size_t i = 0; i < process->activities.count; i++) {
		const struct activity *activity = &process->activities.items[i];

		if (activity->layer == layer && activity->stack < process->stack_count)
			sums[activity->stack].allocated += (double)activity->bytes;
	}
}

void trace_sums(const struct trace *trace, size_t index, enum event_layer layer,
		struct trace_sum *sums)
{
	const struct process_state *process = running(trace, index);
	const struct block *block;
	size_t cursor = 0;

	if (!process)
		return;
	if (layer == EVENT_LAYER_MMAP) {
		regions_sum(&process->regions, sums, process->stack_count);
		return;
	}
	int sampled =
		process->info.sample_bytes || (layer == EVENT_LAYER_NATIVE && process->weights);

	while (process->blocks[layer] && (block = blocks_next(process->blocks[layer], &cursor))) {
		double chance = sampled ? state_chance(process, layer, block) : 1;

		if (block->stack >= process->stack_count)
			continue;
		sums[block->stack].size += (double)block->bytes / chance;
		sums[block->stack].count += 1 / chance;
	}
	activities_sum(process, layer, sums);
}
