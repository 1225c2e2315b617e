/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace tells of itself. */
#include <errno.h>

#include "stats/estimate.h"
#include "trace/state.h"

size_t trace_process_count(const struct trace *trace)
{
	return trace->process_count;
}

const struct trace_process *trace_process_at(const struct trace *trace, size_t index)
{
	return index < trace->process_count && trace->processes[index] ? &trace->processes[index]->info
								       : NULL;
}

int trace_process_find(const struct trace *trace, uint32_t tgid, size_t *index)
{
	uint32_t found = id_map_find(&trace->tgids, tgid);

	if (found >= trace->process_count || !trace->processes[found] ||
	    trace->processes[found]->info.tgid != tgid)
		return -ENOENT;
	*index = found;
	return 0;
}

struct trace_dropped trace_dropped(const struct trace *trace)
{
	return trace->dropped;
}

struct trace_told trace_told(const struct trace *trace)
{
	return trace->told;
}

const struct event_loss *trace_loss(const struct trace *trace)
{
	return &trace->loss;
}

uint64_t trace_orphans(const struct trace *trace)
{
	return trace->orphans;
}

enum event_layer trace_first_layer(const struct trace_process *process)
{
	for (int layer = 0; layer < EVENT_LAYERS; layer++)
		if (process->layers & 1u << layer)
			return layer;
	return EVENT_LAYER_PYTHON;
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
			live.live_bytes +=
				state->regions.items[i].accessible
					? state->regions.items[i].end - state->regions.items[i].start
					: 0;
			live.live_blocks += state->regions.items[i].accessible;
		}
		return live;
	}
	live = state->info.tables[layer];
	if (!state->info.sample_bytes)
		return live;
	while ((block = blocks_next(state->blocks[layer], &cursor)))
		estimate_add(&sum, state->info.sample_bytes, block->bytes, 1);
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

const struct strings *trace_strings(const struct trace *trace)
{
	return trace->strings;
}

static size_t snapshot_memory(const struct snapshot *snapshot)
{
	if (!snapshot)
		return 0;
	return sizeof(*snapshot) + strings_memory(snapshot->strings) +
	       snapshot->frame_count * sizeof(*snapshot->frames) +
	       snapshot->traceback_count * sizeof(*snapshot->tracebacks) +
	       snapshot->trace_count * sizeof(*snapshot->traces);
}

size_t state_memory(const struct process_state *process)
{
	return sizeof(*process) + address_set_memory(&process->census.old) +
	       address_set_memory(&process->census.died) +
	       process->census.doubtful_room * sizeof(*process->census.doubtful) +
	       blocks_memory(process->blocks[EVENT_LAYER_PYTHON]) +
	       blocks_memory(process->blocks[EVENT_LAYER_NATIVE]) + id_map_memory(&process->stack_ids) +
	       id_map_memory(&process->frame_ids) + id_map_memory(&process->code_ids) +
	       id_map_memory(&process->tids) + id_map_memory(&process->symbol_ids) +
	       process->symbol_room * sizeof(*process->symbols) +
	       process->symbol_frame_room * sizeof(*process->symbol_frames) +
	       process->stack_room * sizeof(*process->stacks) +
	       process->stack_frame_room * sizeof(*process->stack_frames) +
	       process->frame_room * sizeof(*process->frames) + process->code_room * sizeof(*process->codes) +
	       process->lines_memory + process->thread_room * sizeof(*process->threads) +
	       snapshot_memory(process->final);
}

size_t trace_memory(const struct trace *trace)
{
	size_t bytes = sizeof(*trace) + strings_memory(trace->strings) + id_map_memory(&trace->tgids) +
		       trace->process_room * sizeof(*trace->processes);

	for (size_t i = 0; i < trace->process_count; i++)
		bytes += trace->processes[i] ? state_memory(trace->processes[i]) : 0;
	return bytes;
}
