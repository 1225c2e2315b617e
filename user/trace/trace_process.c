/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: what belongs to one, how it is charged, and how one begins at an EVENT_PROCESS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "runtime/cpython/offsets.h"
#include "trace/state.h"
#include "util/array.h"
#include "util/error.h"

/* --- trace tgids ------------------------------------------------------------------------------ */

/*
 * Maps tgids to processes, and remembers tgids of dropped processes that may still send records.
 * Only the most recent of the latter are kept, in two generations, so that memory stays bounded in
 * long sessions.
 */

#define GENERATION 1024u /* tgids */

void state_tgids_begin(struct trace *trace)
{
	struct id_map *const maps[] = {&trace->tgids, &trace->dropped_tgids[0],
				       &trace->dropped_tgids[1]};

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		maps[i]->seed = trace->seed;
		maps[i]->account = &trace->account;
	}
}

void state_tgids_free(struct trace *trace)
{
	id_map_free(&trace->tgids);
	id_map_free(&trace->dropped_tgids[0]);
	id_map_free(&trace->dropped_tgids[1]);
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

void state_tgid_drop(struct trace *trace, uint32_t tgid)
{
	struct id_map *dropped = trace->dropped_tgids;

	id_map_remove(&trace->tgids, tgid);
	if (dropped[0].count >= GENERATION) {
		id_map_free(&dropped[1]);
		dropped[1] = dropped[0];
		dropped[0] =
			(struct id_map){.seed = dropped[1].seed, .account = dropped[1].account};
	}
	/* Without memory, its later records count as malformed. */
	id_map_put(&dropped[0], tgid, 0);
}

int state_tgid_is_dropped(struct trace *trace, uint32_t tgid)
{
	if (id_map_find(&trace->dropped_tgids[0], tgid) != ID_MAP_NONE)
		return 1;
	if (id_map_find(&trace->dropped_tgids[1], tgid) == ID_MAP_NONE)
		return 0;
	state_tgid_drop(trace, tgid); /* still active: move it to the current generation */
	return 1;
}

/* --- trace life ------------------------------------------------------------------------------- */

/*
 * The end of processes. An ended process is reduced to a snapshot. The number of such snapshots is
 * limited, and those with the fewest bytes of their own are evicted first.
 */

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

/* Finds an index for a new process. 0, -ENOMEM, -EDQUOT, -EOVERFLOW. */
static int state_index_new(struct trace *trace, size_t *index)
{
	if (!trace->free_count) {
		*index = trace->process_count;
		return ARRAY_RESERVE(&trace->account, trace, processes, process_count,
				     process_capacity, 1);
	}
	for (*index = 0; trace->processes[*index]; ++*index)
		;
	return 0;
}

/* --- trace process ---------------------------------------------------------------------------- */

/* Parts of the memory that processes share: */
#define PROCESS_SHARE 4u    /* a process may use up to 4 times what the others leave */
#define FLOOR_SHARE   1024u /* a process may use this much without regard to its share */
#define RESERVE_SHARE 4u    /* upper limit of the reserve for processes below the floor */

/* Allocates the process and its account, and charges both to that account. */
static int process_alloc(struct trace *trace, struct process_state **out)
{
	struct process_state *process = calloc(1, sizeof(*process));
	struct account *account = calloc(1, sizeof(*account));
	int err = -ENOMEM;

	if (process && account) {
		*account = (struct account){.parent = &trace->tables,
					    .share = PROCESS_SHARE,
					    .floor = trace->tables.limit / FLOOR_SHARE};
		err = account_charge(account, sizeof(*process) + sizeof(*account));
	}
	if (err) {
		free(process);
		free(account);
		return err;
	}
	state_account(process, account);
	*out = process;
	return 0;
}

void state_free_process(struct process_state *process)
{
	if (!process)
		return;
	state_tables_free(process);
	state_final_free(process);
	account_clear(process->account);
	free(process->account);
	free(process);
}

/* Starts with the reserved stacks and the unknown code object, index 0. */
static int process_new(struct trace *trace, struct process_state **out)
{
	struct process_state *process;
	int err = process_alloc(trace, &process);

	if (err)
		return err;
	process->stack_ids.seed = process->frame_ids.seed = trace->seed;
	process->code_ids.seed = process->symbol_ids.seed = process->tids.seed =
		process->owners.index.seed = process->pools.seed = process->windows.pools.seed =
			trace->seed;
	err = state_tables_new(process->blocks, process->account)
			?: strings_new_in(&process->strings, process->account)
			?: strings_intern(process->strings, TRACE_UNKNOWN, strlen(TRACE_UNKNOWN),
				&process->unknown)
			?: array_reserve_in(process->account, &process->stacks,
				&process->stack_capacity, 0, STACK_NO_MEMORY + 1,
				sizeof(*process->stacks))
			?: array_reserve_in(process->account, &process->codes,
				&process->code_capacity, 0, 1, sizeof(*process->codes));
	if (err) {
		state_free_process(process);
		return err;
	}
	while (process->stack_count <= STACK_NO_MEMORY)
		process->stacks[process->stack_count++] =
			(struct stack_entry){.total = 1, .known = 1};
	process->codes[process->code_count++] = (struct code_entry){
		.filename = process->unknown, .function = process->unknown, .version = 1};
	*out = process;
	return 0;
}

/* 0: unknown version. */
static uint32_t pool_bytes(uint32_t python_version)
{
	const struct python_offsets *offsets = offsets_for(python_version >> 16, BUILD_RELEASE);

	return offsets ? offsets->heap.pool_bytes : 0;
}

static void info_set(struct process_state *process, const struct event_target *event)
{
	process->info = (struct trace_process){
		.tgid = event->header.tgid,
		.ns_pid = event->ns_pid,
		.parent = event->parent,
		.python_version = event->python_version,
		.nframe = event->nframe,
		.mode = event->mode & EVENT_MODE_MASK,
		.layers = state_layers(event->mode),
		.large_skipped = ((event->mode & EVENT_MODE_MASK) == EVENT_MODE_GROWTH ||
				  (event->mode & EVENT_MODE_MASK) == EVENT_MODE_WINDOWS) &&
				 !(event->mode & EVENT_MODE_LARGE),
		.large_windowed = (event->mode & EVENT_MODE_MASK) == EVENT_MODE_WINDOWS &&
				  event->mode & EVENT_MODE_LARGE_WINDOWS,
		.reuse_unseen = !!(event->mode & EVENT_MODE_NO_REUSE),
		.ends_unseen = !!(event->mode & EVENT_MODE_NO_ENDS),
		.tasks = !!(event->mode & EVENT_MODE_TASKS),
		.is_mimalloc = !!(event->mode & EVENT_MODE_MIMALLOC),
		.pool_bytes = pool_bytes(event->python_version),
		.sample_bytes = event->sample_bytes,
		.from_start = event->from_start != 0,
		.start_ns = event->header.time_ns,
		.age_ns = event->age_ns,
		.budget_permille = event->budget_permille,
		.end_ns = event->header.time_ns,
		.start_realtime_ns = event->realtime_ns,
	};
	process->info.counters.events = 1;
	memcpy(process->info.name, event->name, sizeof(event->name));
	memcpy(process->info.container, event->container, sizeof(event->container));
}

/* The reserve for small processes grows with the number of processes. */
static void reserve_set(struct trace *trace)
{
	struct account *tables = &trace->tables;
	uint64_t most = tables->limit / RESERVE_SHARE;
	uint64_t floors = trace->process_count * (tables->limit / FLOOR_SHARE);

	tables->reserve = floors < most ? floors : most;
}

struct process_state *state_process_of(struct trace *trace, uint32_t tgid)
{
	if (trace->last && trace->last->info.tgid == tgid)
		return trace->last;
	size_t index;
	if (trace_process_find(trace, tgid, &index))
		return NULL;
	trace->last = trace->processes[index];
	return trace->last;
}

/* If the end of the last process with this tgid was not seen, ends that process first. */
static int process_add(struct trace *trace, const struct event_target *event)
{
	struct process_state *process, *parent,
		*before = state_process_of(trace, event->header.tgid);
	size_t index;
	int err;

	if (!event->nframe || event->nframe > EVENT_MAX_FRAMES ||
	    event->sample_bytes > SAMPLE_MEAN_MAX)
		return -EBADMSG;
	if (before && before->info.end < TRACE_EXITED) {
		err = state_end(trace, before, TRACE_EXITED);
		if (err)
			return err;
	}
	err = state_index_new(trace, &index) ?: process_new(trace, &process);
	if (err)
		return err;
	info_set(process, event);
	parent = event->parent ? state_process_of(trace, event->parent) : NULL;
	if (parent && !parent->table_kept)
		err = state_inherit(process, parent);
	if (!err && event->mode & EVENT_MODE_TASKS_UNREPORTED)
		err = strings_intern(process->strings, TRACE_UNREPORTED, strlen(TRACE_UNREPORTED),
				     &process->unreported);
	if (!err)
		err = id_map_put(&trace->tgids, event->header.tgid, (uint32_t)index);
	if (err) {
		state_free_process(process);
		return err;
	}
	trace->free_count -= index < trace->process_count;
	trace->process_count += index == trace->process_count;
	trace->processes[index] = process;
	trace->last = process;
	reserve_set(trace);
	return 0;
}

int state_process_begin(struct trace *trace, const struct event_target *event)
{
	int err;

	do
		err = process_add(trace, event);
	while (account_is_full(err) && !state_evict(trace));
	if (!account_is_full(err))
		return err;
	trace->dropped.processes++;
	state_tgid_drop(trace, event->header.tgid);
	return error_set(err, "no memory left to trace it (--budget)");
}
