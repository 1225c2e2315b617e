/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork and exit. A child starts with a copy of its parent's tables, including stacks and code
 * objects; its own records use ids of their own. An ended process is reduced to a snapshot. The
 * number of such snapshots is limited, and those with the fewest bytes of their own are evicted
 * first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "trace/state.h"

#define SMALL_SHARE 1024u /* of the memory for ended processes; smaller ones are evicted last */

/* Copies the first count elements of an array into an empty one. */
static int array_copy(struct account *account, void *out, size_t *capacity, const void *from,
		      size_t count, size_t size)
{
	void *copy;
	int err = count ? array_reserve_in(account, out, capacity, 0, count, size) : 0;

	if (err || !count)
		return err;
	memcpy(&copy, out, sizeof(copy));
	memcpy(copy, from, count * size);
	return 0;
}

static int codes_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(child->account, &child->codes, &child->code_capacity, parent->codes,
			     parent->code_count, sizeof(*parent->codes));

	if (err)
		return err;
	for (; child->code_count < parent->code_count; child->code_count++) {
		struct code_entry *code = &child->codes[child->code_count];
		uint8_t *lines = code->lines;

		code->marks = NULL;
		code->mark_count = code->marked = 0;
		if (!code->lines_capacity)
			continue;
		err = account_charge(child->account, code->lines_capacity);
		if (err)
			return err;
		code->lines = malloc(code->lines_capacity);
		if (!code->lines) {
			account_uncharge(child->account, code->lines_capacity);
			return -ENOMEM;
		}
		memcpy(code->lines, lines, code->lines_have);
	}
	return 0;
}

static int stacks_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(child->account, &child->stacks, &child->stack_capacity, parent->stacks,
			     parent->stack_count, sizeof(*parent->stacks));

	if (!err)
		err = array_copy(child->account, &child->stack_frames, &child->stack_frame_capacity,
				 parent->stack_frames, parent->stack_frame_count,
				 sizeof(*parent->stack_frames));
	if (!err)
		err = array_copy(child->account, &child->frames, &child->frame_capacity,
				 parent->frames, parent->frame_count, sizeof(*parent->frames));
	if (err)
		return err;
	child->stack_count = parent->stack_count;
	child->stack_frame_count = parent->stack_frame_count;
	child->frame_count = parent->frame_count;
	/* Late records belong to the parent, because ids are per process. */
	for (size_t i = 0; i < child->stack_count; i++)
		child->stacks[i].waiting = 0;
	return 0;
}

static int symbols_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(child->account, &child->symbols, &child->symbol_capacity,
			     parent->symbols, parent->symbol_count, sizeof(*parent->symbols));

	if (!err)
		err = array_copy(child->account, &child->symbol_frames,
				 &child->symbol_frame_capacity, parent->symbol_frames,
				 parent->symbol_frame_count, sizeof(*parent->symbol_frames));
	if (err)
		return err;
	child->symbol_count = parent->symbol_count;
	child->symbol_frame_count = parent->symbol_frame_count;
	return 0;
}

/*
 * The results of past heap walks hold for the child, too. A walk in progress reads only the parent.
 */
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
	int err = strings_copy(&child->strings, parent->strings, child->account);

	for (size_t i = 0; i < EVENT_LAYER_TABLES && !err; i++)
		err = blocks_copy(&child->blocks[i], parent->blocks[i], child->account);
	for (size_t i = 0; i < EVENT_LAYER_TABLES && !err; i++)
		blocks_inherit_all(child->blocks[i]);
	if (!err)
		err = regions_copy(&child->regions, &parent->regions);
	for (size_t i = 0; i < child->regions.count; i++)
		child->regions.items[i].inherited = 1;
	if (!err)
		err = state_windows_copy(&child->windows, &parent->windows);
	if (!err)
		err = id_map_copy(&child->stack_ids, &parent->stack_ids);
	if (!err)
		err = id_map_copy(&child->frame_ids, &parent->frame_ids);
	if (!err)
		err = id_map_copy(&child->code_ids, &parent->code_ids);
	if (!err)
		err = id_map_copy(&child->symbol_ids, &parent->symbol_ids);
	if (!err)
		err = id_map_copy(&child->pools, &parent->pools);
	if (!err)
		err = stacks_copy(child, parent);
	if (!err)
		err = symbols_copy(child, parent);
	if (!err)
		err = codes_copy(child, parent);
	return err ? err : census_copy(child, parent);
}

int state_inherit(struct process_state *child, const struct process_state *parent)
{
	struct process_state copy = {.info = child->info};
	struct trace_process *info = &copy.info;
	int err;

	state_account(&copy, child->account);
	copy.tids.seed = child->tids.seed;
	err = tables_copy(&copy, parent);
	if (err)
		state_tables_free(&copy);
	if (account_is_full(err)) {
		child->info.not_inherited = 1;
		for (size_t i = 0; i < EVENT_LAYER_TABLES; i++) {
			child->info.counters.blocks_dropped += parent->info.tables[i].live_blocks;
			child->info.counters.bytes_dropped += parent->info.tables[i].live_bytes;
		}
		return 0;
	}
	if (err)
		return err;
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++) {
		info->tables[i].live_bytes = info->tables[i].peak_bytes =
			parent->info.tables[i].live_bytes;
		info->tables[i].live_blocks = parent->info.tables[i].live_blocks;
		copy.inherited_bytes += info->tables[i].live_bytes;
	}
	info->large_blocks = parent->info.large_blocks;
	info->rounded_blocks = parent->info.rounded_blocks;
	info->from_start = parent->info.from_start;
	info->coverage = parent->info.coverage;
	state_tables_free(child);
	*child = copy;
	return 0;
}

static void process_drop(struct trace *trace, struct process_state *process, size_t index)
{
	uint32_t tgid = process->info.tgid;

	if (trace->last == process)
		trace->last = NULL;
	trace->ended_count -= process->ended_bytes != 0;
	trace->ended_large -= process->ended_large;
	trace->ended_bytes -= process->ended_bytes;
	state_free_process(process);
	trace->processes[index] = NULL;
	trace->free_count++;
	/* The tgid may already be reused. */
	if (id_map_find(&trace->tgids, tgid) == index)
		state_tgid_drop(trace, tgid);
}

/* Bytes that it held beyond what it inherited. */
static uint64_t own_bytes(const struct process_state *process)
{
	return process->kept_bytes > process->inherited_bytes
		       ? process->kept_bytes - process->inherited_bytes
		       : 0;
}

/* Drops the ended process that held the fewest bytes of its own, of all or of the large ones. */
static int ended_drop(struct trace *trace, int large_only)
{
	size_t smallest = SIZE_MAX;
	const struct process_state *process;

	for (size_t i = 0; i < trace->process_count; i++) {
		process = trace->processes[i];
		if (process && process->info.end >= TRACE_EXITED &&
		    (process->ended_large || !large_only) &&
		    (smallest == SIZE_MAX ||
		     own_bytes(process) < own_bytes(trace->processes[smallest])))
			smallest = i;
	}
	if (smallest == SIZE_MAX)
		return -ENOENT;
	process = trace->processes[smallest];
	trace->dropped.processes++;
	trace->dropped.blocks += process->kept_blocks;
	trace->dropped.bytes += process->kept_bytes;
	process_drop(trace, trace->processes[smallest], smallest);
	return 0;
}

int state_evict(struct trace *trace)
{
	return ended_drop(trace, trace->ended_large != 0);
}

/* Frees everything except the counters and the final snapshot. */
static int tables_forget(struct process_state *process)
{
	struct process_state empty = {.inherited_bytes = process->inherited_bytes, .table_kept = 1};
	int err;

	state_account(&empty, process->account);
	err = state_tables_new(empty.blocks, NULL);
	if (err) {
		state_tables_free(&empty);
		return err;
	}
	empty.final = process->final;
	empty.final_bytes = process->final_bytes;
	empty.info = process->info;
	for (size_t i = 0; i < empty.final->trace_count; i++) {
		empty.kept_blocks += empty.final->traces[i].count;
		empty.kept_bytes += empty.final->traces[i].count * empty.final->traces[i].bytes;
	}
	state_tables_free(process);
	*process = empty;
	return 0;
}

void state_final_free(struct process_state *process)
{
	snapshot_free(process->final);
	account_uncharge(process->account, process->final_bytes);
	process->final = NULL;
	process->final_bytes = 0;
}

static int final_take(struct trace *trace, struct process_state *process)
{
	int err = state_snapshot(trace, process, &process->final);

	if (!err)
		snapshot_fit(process->final);
	return err;
}

/*
 * If memory does not suffice for both, the snapshot is kept and the tables are freed: what follows
 * is only the interpreter's shutdown.
 */
int state_finalize(struct trace *trace, struct process_state *process)
{
	size_t bytes;
	int err;

	process->info.end = TRACE_FINALIZING;
	if (process->final)
		return 0;
	err = final_take(trace, process);
	if (err)
		return err;
	bytes = snapshot_memory(process->final);
	if (account_charge(process->account, bytes))
		return tables_forget(process);
	process->final_bytes = bytes;
	return 0;
}

/*
 * Adds to the totals of ended processes. While they fit their share of the memory, the process's
 * snapshot is protected from other requests by its floor.
 */
static void ended_count(struct trace *trace, struct process_state *process, uint64_t bytes)
{
	uint64_t keep = trace->tables.limit / STATE_KEEP_SHARE;

	process->ended_bytes = bytes;
	process->ended_large = bytes > keep / SMALL_SHARE;
	if (trace->ended_bytes + bytes <= keep)
		process->account->floor = bytes;
	trace->ended_count++;
	trace->ended_large += process->ended_large;
	trace->ended_bytes += bytes;
}

/*
 * Charges the snapshot of an ended process. Other ended processes are evicted for it, or it is
 * evicted itself.
 */
static int ended_charge(struct trace *trace, struct process_state *process)
{
	const struct trace_process *info = &process->info;
	size_t bytes = snapshot_memory(process->final) - process->final_bytes, index;
	int err = trace_process_find(trace, info->tgid, &index);

	ended_count(trace, process, process->account->used + bytes);
	while (!err && account_charge(process->account, bytes)) {
		err = state_evict(trace);
		if (!trace->processes[index])
			return err;
	}
	if (!err)
		process->final_bytes += bytes;
	return trace->ended_count > TRACE_ENDED_MAX ? ended_drop(trace, 0) : err;
}

static int table_keep(struct trace *trace, struct process_state *process, enum trace_end end)
{
	enum trace_end before = process->info.end;
	int err;

	process->info.end = end;
	err = process->final ? 0 : final_take(trace, process);
	/* Its tables may already have been freed when it was finalizing. */
	if (!err && !process->table_kept)
		err = tables_forget(process);
	if (err) {
		process->info.end = before;
		return err;
	}
	return ended_charge(trace, process);
}

int state_discard(struct trace *trace, struct process_state *process)
{
	size_t index;

	if (trace_process_find(trace, process->info.tgid, &index))
		return 0;
	process_drop(trace, process, index);
	return 0;
}

int state_end(struct trace *trace, struct process_state *process, enum trace_end end)
{
	const struct trace_table *table = &process->info.tables[trace_first_layer(&process->info)];
	int err;

	if (end == TRACE_EXECED && process->info.parent)
		return state_discard(trace, process);
	err = table_keep(trace, process, end);
	if (!account_is_full(err))
		return err;
	trace->dropped.processes++;
	trace->dropped.blocks += table->live_blocks;
	trace->dropped.bytes += table->live_bytes;
	return state_discard(trace, process);
}

int state_index_new(struct trace *trace, size_t *index)
{
	if (!trace->free_count) {
		*index = trace->process_count;
		return array_reserve_in(&trace->account, &trace->processes,
					&trace->process_capacity, trace->process_count, 1,
					sizeof(*trace->processes));
	}
	for (*index = 0; trace->processes[*index]; ++*index)
		;
	return 0;
}
