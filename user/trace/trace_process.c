/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: what belongs to one, how it is charged, and how one begins at an EVENT_PROCESS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "base/array.h"
#include "base/error.h"
#include "layouts/offsets.h"
#include "trace/state.h"

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
	err = state_tables_new(process->blocks, process->account);
	if (!err)
		err = strings_new_in(&process->strings, process->account);
	if (!err)
		err = strings_intern(process->strings, TRACE_UNKNOWN, strlen(TRACE_UNKNOWN),
				     &process->unknown);
	if (!err)
		err = array_reserve_in(process->account, &process->stacks, &process->stack_capacity,
				       0, STACK_NO_MEMORY + 1, sizeof(*process->stacks));
	if (!err)
		err = array_reserve_in(process->account, &process->codes, &process->code_capacity,
				       0, 1, sizeof(*process->codes));
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
	err = state_index_new(trace, &index);
	if (!err)
		err = process_new(trace, &process);
	if (err)
		return err;
	info_set(process, event);
	parent = event->parent ? state_process_of(trace, event->parent) : NULL;
	if (parent && !parent->table_kept)
		err = state_inherit(process, parent);
	if (!err && event->mode & EVENT_MODE_TASKS_UNTOLD)
		err = strings_intern(process->strings, TRACE_UNTOLD, strlen(TRACE_UNTOLD),
				     &process->untold);
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
