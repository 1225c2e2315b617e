/* SPDX-License-Identifier: Apache-2.0 */
/* Accessors of struct trace. */
#include <errno.h>

#include "snapshot/estimate.h"
#include "trace/state.h"

size_t trace_process_count(const struct trace *trace)
{
	return trace->process_count;
}

const struct trace_process *trace_process_at(const struct trace *trace, size_t index)
{
	return index < trace->process_count && trace->processes[index]
		       ? &trace->processes[index]->info
		       : NULL;
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

struct trace_table trace_live(const struct trace *trace, size_t process, enum event_layer layer)
{
	const struct process_state *state = trace->processes[process];
	struct trace_table live = {0};
	struct estimate sum = {0};
	const struct block *block;
	size_t cursor = 0;

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
	live = state->info.tables[layer];
	/* Where heap walks find deaths, peak_bytes is only updated by a walk. */
	if (live.peak_bytes < live.live_bytes)
		live.peak_bytes = live.live_bytes;
	if (!state->info.sample_bytes && (layer != EVENT_LAYER_NATIVE || !state->weights))
		return live;
	while ((block = blocks_next(state->blocks[layer], &cursor)))
		estimate_add_sampled(&sum, state_chance(state, layer, block), block->bytes, 1);
	if (estimate_round(sum.count, &live.live_blocks))
		live.live_blocks = INT64_MAX;
	return live;
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
	const struct process_state *state =
		trace_process_at(trace, process) ? trace->processes[process] : NULL;

	return state && state->strings ? state->strings : trace->strings;
}

int trace_is_walk(const struct trace *trace, size_t process)
{
	return trace_process_at(trace, process) && trace->processes[process]->census.running;
}

size_t trace_memory(const struct trace *trace)
{
	return trace->account.used;
}

int trace_unnamed_next(const struct trace *trace, size_t index, size_t *cursor, uint64_t *address)
{
	const struct process_state *process =
		index < trace->process_count ? trace->processes[index] : NULL;

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
