/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of processes. An ended process is reduced to a snapshot. The number of such snapshots is
 * limited, and those with the fewest bytes of their own are evicted first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "trace/state.h"

#define SMALL_SHARE 640u /* of the memory for ended processes; smaller ones are evicted last */

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
	struct process_state empty = {.inherited_bytes = process->inherited_bytes,
				      .unknown = process->unknown,
				      .table_kept = 1};
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
