/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "abi/sample.h"
#include "runtime/cpython/offsets.h"
#include "trace/process/process_tables.h"
#include "trace/state.h"
#include "util/array.h"
#include "util/error.h"

/* Processes: what belongs to one, how it is charged, and how one begins at an EVENT_PROCESS. */

/* --- trace tgids ------------------------------------------------------------------------------ */

/*
 * Maps tgids to processes, and remembers tgids of dropped processes that may still send records.
 * Only the most recent of the latter are kept, in two generations, so that memory stays bounded in
 * long sessions.
 */

#define GENERATION 1024u /* tgids */

static void state_tgids_begin(struct trace *trace)
{
	struct id_map *const maps[] = {&trace->tgids, &trace->dropped_tgids[0],
				       &trace->dropped_tgids[1]};

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		maps[i]->seed = trace->seed;
		maps[i]->account = &trace->account;
	}
}

static void state_tgids_free(struct trace *trace)
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

/* Remembers that the process of this tgid was dropped, so that its later records are not errors. */
static void state_tgid_drop(struct trace *trace, uint32_t tgid)
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

static bool state_tgid_is_dropped(struct trace *trace, uint32_t tgid)
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

/* process: NULL is legal. */
static void state_free_process(struct process_state *process)
{
	if (!process)
		return;
	state_tables_free(process);
	state_final_free(process);
	array_release(process->account, &process->info.changes, &process->info.changes_capacity,
		      sizeof(*process->info.changes));
	account_clear(process->account);
	free(process->account);
	free(process);
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

/*
 * Drops one ended process: the large one that holds the fewest bytes of its own, or a small one if
 * none is large. 0, -ENOMEM; -ENOENT: no process has ended.
 */
static int state_evict(struct trace *trace)
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

/* The interpreter is finalizing: keeps a snapshot of its table. 0, -ENOMEM. */
/*
 * If memory does not suffice for both, the snapshot is kept and the tables are freed: what follows
 * is only the interpreter's shutdown.
 */
static int state_finalize(struct trace *trace, struct process_state *process)
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

/* Drops and frees the process. 0, -ENOMEM. */
static int state_discard(struct trace *trace, struct process_state *process)
{
	size_t index;

	if (trace_process_find(trace, process->info.tgid, &index))
		return 0;
	process_drop(trace, process, index);
	return 0;
}

/*
 * Ends the process and keeps its last table as a snapshot, or drops it without memory. 0, -ENOMEM.
 */
static int state_end(struct trace *trace, struct process_state *process, enum trace_end end)
{
	struct trace_table live = {0};
	size_t index;
	int err;

	if (end == TRACE_EXECED && process->info.parent)
		return state_discard(trace, process);
	err = table_keep(trace, process, end);
	if (!account_is_full(err))
		return err;
	if (!trace_process_find(trace, process->info.tgid, &index))
		live = trace_live(trace, index, trace_first_layer(&process->info));
	trace->dropped.processes++;
	trace->dropped.blocks += live.live_blocks;
	trace->dropped.bytes += live.live_bytes;
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
			process->pages.numbers.seed = trace->seed;
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
		.labels_hashed = !!(event->mode & EVENT_MODE_LABELS_HASHED),
		.threads = !!(event->mode & EVENT_MODE_THREADS),
		.is_mimalloc = !!(event->mode & EVENT_MODE_MIMALLOC),
		.pool_bytes = pool_bytes(event->python_version),
		.sample_bytes = event->sample_bytes,
		.from_start = event->from_start != 0,
		.start_ns = event->header.time_ns,
		.age_ns = event->age_ns,
		.start_ticks = event->start_ticks,
		.budget_permille = event->budget_permille,
		.end_ns = event->header.time_ns,
		.start_realtime_ns = event->realtime_ns,
	};
	process->births_ns = event->header.time_ns;
	process->info.counters.events = 1;
	memcpy(process->info.name, event->name, sizeof(event->name));
	memcpy(process->info.container, event->container, sizeof(event->container));
	memcpy(process->info.service, event->service, sizeof(event->service) - 1);
	memcpy(process->info.version, event->version, sizeof(event->version) - 1);
	memcpy(process->info.boot, event->boot, sizeof(event->boot) - 1);
	memcpy(process->info.label, event->label, sizeof(event->label) - 1);
}

/* The reserve for small processes grows with the number of processes. */
static void reserve_set(struct trace *trace)
{
	struct account *tables = &trace->tables;
	uint64_t most = tables->limit / RESERVE_SHARE;
	uint64_t floors = trace->process_count * (tables->limit / FLOOR_SHARE);

	tables->reserve = floors < most ? floors : most;
}

/* The most recent process with that tgid; NULL: none. */
static struct process_state *state_process_of(struct trace *trace, uint32_t tgid)
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

/*
 * Starts a process, evicting ended ones if there is no memory. 0; -EBADMSG; -ENOMEM, -EDQUOT: it is
 * dropped (error_set).
 */
static int state_process_begin(struct trace *trace, const struct event_target *event)
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

/*
 * Dispatches records to their handlers. The size of a record is checked here, its content in the
 * handler. A malformed record is counted and changes nothing.
 */

#define SNAPSHOT_SHARE 4u /* of the budget, set aside for building snapshots */
#define FREE_SHARE     8u /* freed at once by evicting ended processes */

/*
 * R(type, bytes, rest, dropped, handler). bytes: of the record's fixed part; of types that have
 * grown, in the oldest captures. rest: more may follow. dropped: what of struct trace_counters
 * counts records that there is no memory for; events: nothing does. Records without a handler (0)
 * belong to no process that is known, or are of no interest: a child is traced only after its own
 * EVENT_PROCESS.
 */
/* clang-format off */
#define OF(name) sizeof(struct event_##name)
#define RECORDS(R)                                                                                 \
	R(ALLOC, OF(alloc), 0, blocks_dropped, state_alloc(process, record))                       \
	R(ALLOC_WEIGHTED, OF(alloc_weighted), 0, blocks_dropped,                                   \
	  state_alloc_weighted(process, record))                                                   \
	R(FREE, OF(free), 0, events, state_free(process, record))                                  \
	R(REALLOC, OF(free), 0, events, state_realloc(process, record))                            \
	R(REALLOC_DONE, OF(alloc), 0, blocks_dropped, state_realloc_done(process, record))         \
	R(REALLOC_FAIL, OF(free), 0, events, state_realloc_fail(process, record))                  \
	R(REUSE, OF(alloc), 0, events, state_reuse(process, record))                               \
	R(SELF_SAMPLED, OF(mark), 0, events, state_self_sampled(process, header->time_ns))         \
	R(STACK, OF(stack), 1, stacks_dropped, state_stack(process, record))                       \
	R(SYMBOL, OF(symbol), 1, symbols_dropped, state_symbol(process, record))                   \
	R(CODE, OF(code), 1, codes_dropped, code_feed(trace, process, record))                     \
	R(CODE_LINES, OF(code_lines), 1, codes_dropped, state_code_lines(process, record))         \
	R(MAP, OF(map), 0, regions_dropped, state_map(process, record))                            \
	R(UNMAP, OF(map), 0, regions_dropped, state_map(process, record))                          \
	R(REMAP, OF(map), 0, regions_dropped, state_map(process, record))                          \
	R(PROTECT, OF(map), 0, regions_dropped, state_map(process, record))                        \
	R(FAULT, OF(fault), 0, events, state_fault(process, record))                               \
	R(PAGES, OF(pages), 1, walks_dropped, state_pages(process, record))                        \
	R(PROCESS, EVENT_TARGET_MIN, 1, events, 0)                                                 \
	R(FORK, EVENT_PROCESS_MIN, 1, events, 0)                                                   \
	R(FINALIZE, EVENT_PROCESS_MIN, 1, events, state_finalize(trace, process))                  \
	R(EXIT, EVENT_PROCESS_MIN, 1, events, exit_feed(trace, process, record))                   \
	R(EXEC, EVENT_PROCESS_MIN, 1, events, state_end(trace, process, TRACE_EXECED))             \
	R(DISCARD, OF(mark), 0, events, state_discard(trace, process))                             \
	R(CLEAR, OF(mark), 0, events, state_clear(process))                                        \
	R(RESET_PEAK, OF(mark), 0, events, peaks_reset(process))                                   \
	R(LOSS, OF(loss), 0, events, 0)                                                            \
	R(RSS, OF(rss), 0, events, rss_set(process, record))                                       \
	R(COST, OF(cost), 0, events, cost_set(process, record))                                    \
	R(COLLECTIONS, OF(collections), 0, events, collections_set(process, record))               \
	R(THREAD, OF(thread), 0, events, state_thread_name(process, record))                       \
	R(TASK, EVENT_TASK_MIN, 1, events, state_task(process, record))                            \
	R(MODE_CHANGE, OF(mode_change), 0, events, state_mode_change(process, record))             \
	R(WINDOW, OF(window), 0, events, state_window(process, record))                            \
	R(CENSUS, EVENT_CENSUS_MIN, 1, events, state_census(process, record))                      \
	R(CENSUS_DONE, EVENT_CENSUS_MIN, 1, events, state_census_done(process, record))            \
	R(CENSUS_THREAD, OF(mark), 0, events, state_census_thread(process, record))                \
	R(CENSUS_ARENA, OF(census_arena), 0, events, state_census_arena(process, record))          \
	R(CENSUS_POOL, OF(census_pool), 1, events, state_census_pool(process, record))             \
	R(CENSUS_SIZES, OF(census_sizes), 1, events, state_census_sizes(process, record))          \
	R(CENSUS_KINDS, OF(census_kinds), 1, events, state_census_kinds(process, record))          \
	R(CENSUS_LARGE, OF(census_large), 1, events, state_census_large(process, record))          \
	R(CENSUS_CHUNKS, OF(census_chunks), 1, events, state_census_chunks(process, record))
/* clang-format on */

struct record_form {
	size_t bytes; /* 0: unknown type */
	int rest;
	size_t dropped; /* offset */
};

static struct record_form form_of(uint32_t type)
{
#define FORM(type, bytes, rest, dropped, handler)                                                  \
	case EVENT_##type:                                                                         \
		return (struct record_form){bytes, rest, offsetof(struct trace_counters, dropped)};

	switch (type) {
		RECORDS(FORM)
	default:
		return (struct record_form){0};
	}
#undef FORM
}

static int record_valid(const void *record, size_t size)
{
	const struct event_header *header = record;

	if (size < sizeof(*header) || header->size != size || size % 8)
		return 0;
	const struct record_form form = form_of(header->type);
	return form.bytes && (form.rest ? size >= form.bytes : size == form.bytes);
}

static int peaks_reset(struct process_state *process)
{
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
		state_peak_now(process, i);
	return 0;
}

static int rss_set(struct process_state *process, const struct event_rss *event)
{
	process->info.rss_bytes = event->bytes;
	process->info.rss_ns = event->header.time_ns;
	return 0;
}

static int cost_set(struct process_state *process, const struct event_cost *event)
{
	process->info.cost_ns = event->header.time_ns;
	process->info.cpu_ns = event->cpu_ns;
	process->info.wait_ns = event->wait_ns;
	process->info.probes_ns = event->probes_ns;
	return 0;
}

static int collections_set(struct process_state *process, const struct event_collections *event)
{
	process->info.collections =
		(struct snapshot_collections){1, event->full, event->all, event->collected};
	return 0;
}

/* Asks for the parts that BPF could not copy. They come as records of their own. */
static int code_feed(struct trace *trace, struct process_state *process,
		     const struct event_code *event)
{
	int err = state_code(process, event);

	if (err || !event->missing || !trace->hooks.code_missing || trace->in_hook)
		return err;
	trace->in_hook = 1;
	trace->hooks.code_missing(trace->hooks.context, event->header.tgid, event->code_id,
				  event->address, event->missing);
	trace->in_hook = 0;
	return 0;
}

static int exit_feed(struct trace *trace, struct process_state *process,
		     const struct event_process *event)
{
	process->info.exit_code = event->code & ~EVENT_EXIT_OOM;
	process->info.oom_killed = (event->code & EVENT_EXIT_OOM) != 0;
	return state_end(trace, process, TRACE_EXITED);
}

static int process_feed(struct trace *trace, struct process_state *process, const void *record)
{
#define HANDLE(type, bytes, rest, dropped, handler)                                                \
	case EVENT_##type:                                                                         \
		return handler;

	const struct event_header *header = record;

	if (state_is_ignored(process, record))
		return 0;
	switch (header->type) {
		RECORDS(HANDLE)
	default:
		return 0;
	}
#undef HANDLE
}

/* Counts a record that was dropped for lack of memory or quota. */
static void dropped_count(struct trace_counters *counters, const void *record)
{
	const struct event_header *header = record;
	size_t offset = form_of(header->type).dropped;

	if (offset)
		++*(uint64_t *)((char *)counters + offset);
	if (header->type == EVENT_ALLOC_WEIGHTED)
		counters->bytes_dropped +=
			((const struct event_alloc_weighted *)record)->weighted_bytes;
	else if (offset == offsetof(struct trace_counters, blocks_dropped))
		counters->bytes_dropped += ((const struct event_alloc *)record)->bytes;
}

static void observed_count(struct trace_observed *observed, uint32_t type)
{
	observed->blocks += type == EVENT_ALLOC || type == EVENT_REALLOC_DONE ||
			    type == EVENT_REUSE || type == EVENT_ALLOC_WEIGHTED ||
			    type == EVENT_FAULT;
	observed->maps += type == EVENT_MAP || type == EVENT_REMAP;
}

static int record_feed(struct trace *trace, const void *record, size_t size)
{
	const struct event_header *header = record;
	struct process_state *process =
		size < sizeof(*header) ? NULL : state_process_of(trace, header->tgid);
	int valid = record_valid(record, size), err;

	if (valid && header->type == EVENT_LOSS) {
		trace->loss = *(const struct event_loss *)record;
		return 0;
	}
	if (valid && header->type == EVENT_PROCESS) {
		struct event_target target = {0};

		memcpy(&target, record, size < sizeof(target) ? size : sizeof(target));
		err = state_process_begin(trace, &target);
		trace->orphans += err == -EBADMSG;
		return err;
	}
	if (valid)
		observed_count(&trace->observed, header->type);
	if (!process && valid && header->type == EVENT_DISCARD) {
		state_tgid_drop(trace, header->tgid);
		return 0;
	}
	/* A dropped process may still send records that were in flight. */
	if (!process && valid && state_tgid_is_dropped(trace, header->tgid))
		return 0;
	if (!process) {
		trace->orphans++;
		return -EBADMSG;
	}
	int ends = valid && (header->type == EVENT_EXIT || header->type == EVENT_EXEC ||
			     header->type == EVENT_DISCARD);
	/* A finalizing process may have had memory for its snapshot only. */
	if (process->info.end >= TRACE_EXITED || (process->table_kept && !ends))
		return 0;
	process->info.counters.events++;
	if (valid && header->time_ns > process->info.end_ns)
		process->info.end_ns = header->time_ns;
	/* The process may be freed by this record. */
	if (ends)
		return process_feed(trace, process, record);
	err = valid ? process_feed(trace, process, record) : -EBADMSG;
	process->info.counters.records_malformed += err == -EBADMSG;
	if (!account_is_full(err))
		return err;
	dropped_count(&process->info.counters, record);
	return 0;
}

/* Evicts ended processes when running ones ran out of memory. */
static void memory_reclaim(struct trace *trace)
{
	const struct account *tables = &trace->tables;
	uint64_t wanted = tables->reserve + tables->limit / FREE_SHARE;

	while (trace->ended_bytes > tables->limit / STATE_KEEP_SHARE &&
	       account_left(tables) < wanted)
		if (state_evict(trace))
			break;
}

int trace_feed(struct trace *trace, const void *record, size_t size)
{
	uint64_t refused = trace->account.refused;
	int err = record_feed(trace, record, size);

	if (trace->account.refused != refused)
		memory_reclaim(trace);
	return err;
}

int trace_new(struct trace **out, const struct trace_hooks *hooks)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	int err;

	if (!trace)
		return -ENOMEM;
	if (hooks)
		trace->hooks = *hooks;
	/*
	 * Early in boot there may be no random numbers. Unseeded tables only slow down under
	 * attack.
	 */
	if (getrandom(&trace->seed, sizeof(trace->seed), GRND_NONBLOCK) != sizeof(trace->seed))
		trace->seed = 0;
	trace->tables.parent = &trace->account;
	state_tgids_begin(trace);
	err = account_charge(&trace->account, sizeof(*trace))
			?: strings_new_in(&trace->strings, &trace->account)
			?: strings_intern(trace->strings, TRACE_UNKNOWN, strlen(TRACE_UNKNOWN),
				&trace->unknown);
	if (err) {
		trace_free(trace);
		return err;
	}
	*out = trace;
	return 0;
}

void trace_budget(struct trace *trace, uint64_t bytes)
{
	trace->account.limit = bytes;
	trace->tables.limit = bytes - bytes / SNAPSHOT_SHARE;
}

void trace_ages(struct trace *trace)
{
	trace->ages = 1;
}

struct account *trace_account(struct trace *trace)
{
	return &trace->account;
}

void trace_free(struct trace *trace)
{
	if (!trace)
		return;
	for (size_t i = 0; i < trace->process_count; i++)
		state_free_process(trace->processes[i]);
	ARRAY_RELEASE(&trace->account, trace, processes, process_capacity);
	state_tgids_free(trace);
	strings_free(trace->strings);
	free(trace);
}
