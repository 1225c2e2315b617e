/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that are forked, and those that end. A child begins with a copy of its parent's tables, stacks and code
 * objects among them: what its records name later has ids of its own. A process that has ended is a snapshot; there
 * are so many of them at most, and those that came to the least by themselves make room.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "trace/state.h"

/* A copy of the first count elements of an array, with room for no more. */
static int array_copy(void *out, size_t *room, const void *from, size_t count, size_t size)
{
	void *copy = count ? malloc(count * size) : NULL;

	if (count && !copy)
		return -ENOMEM;
	if (count)
		memcpy(copy, from, count * size);
	memcpy(out, &copy, sizeof(copy));
	*room = count;
	return 0;
}

static int codes_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(&child->codes, &child->code_room, parent->codes, parent->code_count,
			     sizeof(*parent->codes));

	if (err)
		return err;
	for (; child->code_count < parent->code_count; child->code_count++) {
		struct code_entry *code = &child->codes[child->code_count];
		uint8_t *lines = code->lines;

		code->marks = NULL;
		code->mark_count = code->marked = 0;
		if (!code->lines_room)
			continue;
		code->lines = malloc(code->lines_room);
		if (!code->lines)
			return -ENOMEM;
		memcpy(code->lines, lines, code->lines_have);
		child->lines_memory += code->lines_room;
	}
	return 0;
}

static int stacks_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(&child->stacks, &child->stack_room, parent->stacks, parent->stack_count,
			     sizeof(*parent->stacks));

	if (!err)
		err = array_copy(&child->stack_frames, &child->stack_frame_room, parent->stack_frames,
				 parent->stack_frame_count, sizeof(*parent->stack_frames));
	if (!err)
		err = array_copy(&child->frames, &child->frame_room, parent->frames, parent->frame_count,
				 sizeof(*parent->frames));
	if (err)
		return err;
	child->stack_count = parent->stack_count;
	child->stack_frame_count = parent->stack_frame_count;
	child->frame_count = parent->frame_count;
	/* Records that come late go to the parent: its ids are not the child's. */
	for (size_t i = 0; i < child->stack_count; i++)
		child->stacks[i].waiting = 0;
	return 0;
}

static int symbols_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(&child->symbols, &child->symbol_room, parent->symbols, parent->symbol_count,
			     sizeof(*parent->symbols));

	if (!err)
		err = array_copy(&child->symbol_frames, &child->symbol_frame_room, parent->symbol_frames,
				 parent->symbol_frame_count, sizeof(*parent->symbol_frames));
	if (err)
		return err;
	child->symbol_count = parent->symbol_count;
	child->symbol_frame_count = parent->symbol_frame_count;
	return 0;
}

/* What readings have told of the heap is true of the child's, too; one that is under way reads the parent's. */
static int census_copy(struct process_state *child, const struct process_state *parent)
{
	child->census.known = parent->census.known;
	child->census.epoch = parent->census.epoch;
	child->census.old_large = parent->census.old_large;
	if (parent->census.running)
		blocks_confirm_all(child->blocks[EVENT_LAYER_PYTHON], child->census.epoch);
	return address_set_copy(&child->census.old, &parent->census.old);
}

static int tables_copy(struct process_state *child, const struct process_state *parent)
{
	int err = 0;

	for (size_t i = 0; i < EVENT_LAYER_TABLES && !err; i++)
		err = blocks_copy(&child->blocks[i], parent->blocks[i]);
	if (!err)
		err = regions_copy(&child->regions, &parent->regions);
	if (!err)
		err = id_map_copy(&child->stack_ids, &parent->stack_ids);
	if (!err)
		err = id_map_copy(&child->frame_ids, &parent->frame_ids);
	if (!err)
		err = id_map_copy(&child->code_ids, &parent->code_ids);
	if (!err)
		err = id_map_copy(&child->symbol_ids, &parent->symbol_ids);
	if (!err)
		err = stacks_copy(child, parent);
	if (!err)
		err = symbols_copy(child, parent);
	if (!err)
		err = codes_copy(child, parent);
	return err ? err : census_copy(child, parent);
}

int state_inherit(struct trace *trace, struct process_state *child, const struct process_state *parent)
{
	struct process_state copy = {.info = child->info, .tids = child->tids};
	struct trace_process *info = &copy.info;
	size_t bytes = state_memory(parent);
	int err;

	if (bytes > TRACE_INHERITED_MAX - trace->inherited_bytes) {
		child->info.not_inherited = 1;
		return 0;
	}
	err = tables_copy(&copy, parent);
	if (err) {
		state_tables_free(&copy);
		return err;
	}
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++) {
		info->tables[i].live_bytes = info->tables[i].peak_bytes = parent->info.tables[i].live_bytes;
		info->tables[i].live_blocks = parent->info.tables[i].live_blocks;
		copy.born_bytes += info->tables[i].live_bytes;
	}
	info->large_blocks = parent->info.large_blocks;
	info->rounded_blocks = parent->info.rounded_blocks;
	info->from_start = parent->info.from_start;
	info->coverage = parent->info.coverage;
	copy.inherited_bytes = bytes;
	trace->inherited_bytes += bytes;
	child->tids = (struct id_map){0};
	state_tables_free(child);
	*child = copy;
	return 0;
}

static int process_drop(struct trace *trace, struct process_state *process, size_t index)
{
	uint32_t tgid = process->info.tgid;

	if (trace->last == process)
		trace->last = NULL;
	state_tables_free(process);
	snapshot_free(process->final);
	free(process);
	trace->processes[index] = NULL;
	trace->free_count++;
	/* The number may be another's by now. */
	return id_map_find(&trace->tgids, tgid) == index ? id_map_put(&trace->tgids, tgid, STATE_DROPPED) : 0;
}

/* Bytes that it held and had not begun with. */
static uint64_t own_bytes(const struct process_state *process)
{
	return process->kept_bytes > process->born_bytes ? process->kept_bytes - process->born_bytes : 0;
}

/* The one that has ended and held the fewest bytes of its own. */
static int smallest_drop(struct trace *trace)
{
	size_t smallest = SIZE_MAX;
	const struct process_state *process;

	for (size_t i = 0; i < trace->process_count; i++) {
		process = trace->processes[i];
		if (process && process->table_kept &&
		    (smallest == SIZE_MAX || own_bytes(process) < own_bytes(trace->processes[smallest])))
			smallest = i;
	}
	process = trace->processes[smallest];
	trace->dropped.processes++;
	trace->dropped.blocks += process->kept_blocks;
	trace->dropped.bytes += process->kept_bytes;
	trace->ended_count--;
	return process_drop(trace, trace->processes[smallest], smallest);
}

/* Only what a snapshot is made of is let go: the counters stay. */
static int table_keep(struct trace *trace, struct process_state *process, enum trace_end end)
{
	struct process_state empty = {.born_bytes = process->born_bytes};
	enum trace_end before = process->info.end;
	int err;

	process->info.end = end;
	err = process->final ? 0 : state_snapshot(trace, process, &process->final);
	if (!err)
		err = state_tables_new(empty.blocks);
	if (err) {
		process->info.end = before;
		return err;
	}
	empty.final = process->final;
	empty.info = process->info;
	empty.table_kept = 1;
	for (size_t i = 0; i < empty.final->trace_count; i++) {
		empty.kept_blocks += empty.final->traces[i].count;
		empty.kept_bytes += empty.final->traces[i].count * empty.final->traces[i].bytes;
	}
	state_tables_free(process);
	*process = empty;
	trace->ended_count++;
	return 0;
}

int state_discard(struct trace *trace, struct process_state *process)
{
	size_t index;

	trace->inherited_bytes -= process->inherited_bytes;
	if (trace_process_find(trace, process->info.tgid, &index))
		return 0;
	return process_drop(trace, process, index);
}

int state_end(struct trace *trace, struct process_state *process, enum trace_end end)
{
	int err;

	if (end == TRACE_EXECED && process->info.parent)
		return state_discard(trace, process);
	trace->inherited_bytes -= process->inherited_bytes;
	process->inherited_bytes = 0;
	err = table_keep(trace, process, end);
	if (!err && trace->ended_count > TRACE_ENDED_MAX)
		err = smallest_drop(trace);
	return err;
}

int state_place(struct trace *trace, size_t *index)
{
	if (!trace->free_count) {
		*index = trace->process_count;
		return array_reserve(&trace->processes, &trace->process_room, trace->process_count, 1,
				     sizeof(*trace->processes));
	}
	for (*index = 0; trace->processes[*index]; ++*index)
		;
	return 0;
}
