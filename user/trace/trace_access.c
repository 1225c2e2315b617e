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

	if (found == ID_MAP_NONE || !trace->processes[found] || trace->processes[found]->info.tgid != tgid)
		return -ENOENT;
	*index = found;
	return 0;
}

struct trace_dropped trace_dropped(const struct trace *trace)
{
	return trace->dropped;
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
	return process->layers & 1u << EVENT_LAYER_PYTHON ? EVENT_LAYER_PYTHON : EVENT_LAYER_NATIVE;
}

uint64_t trace_live_count(const struct trace *trace, size_t process, enum event_layer layer)
{
	const struct trace_process *info = &trace->processes[process]->info;
	struct estimate sum = {0};
	const struct block *block;
	size_t cursor = 0;
	uint64_t count;

	if (!info->sample_bytes)
		return info->tables[layer].live_blocks;
	while ((block = blocks_next(trace->processes[process]->blocks[layer], &cursor)))
		estimate_add(&sum, info->sample_bytes, block->bytes, 1);
	return estimate_round(sum.count, &count) ? INT64_MAX : count;
}

const struct blocks *trace_blocks(const struct trace *trace, size_t process, enum event_layer layer)
{
	return trace_process_at(trace, process) ? trace->processes[process]->blocks[layer] : NULL;
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
