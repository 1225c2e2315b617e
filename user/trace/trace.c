/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and the way of a record to its handler. A record is checked here for its size, in the
 * handler for what it says; one that is malformed is counted and changes nothing.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "abi/sample.h"
#include "base/array.h"
#include "base/error.h"
#include "python/offsets.h"
#include "trace/state.h"

#define PROCESS_SHARE  4u /* a process has at most so many times what the others leave */
#define SNAPSHOT_SHARE 4u /* of the budget: what is left for snapshots while they are made */
/* Of what processes have together: */
#define FREE_SHARE    8u    /* what those that have ended make free at once */
#define FLOOR_SHARE   1024u /* what a process may have before it is asked for its share, */
#define RESERVE_SHARE 4u    /* and, at most, what is kept for those that have no more than that */

void state_account(struct process_state *process, struct account *account)
{
	process->account = process->regions.account = account;
	process->census.old.account = process->census.died.account = account;
	process->stack_ids.account = process->frame_ids.account = process->code_ids.account =
		account;
	process->symbol_ids.account = process->tids.account = process->pools.account = account;
}

void state_tables_free(struct process_state *process)
{
	struct account *account = process->account;

	for (size_t i = 0; i < process->code_count; i++) {
		free(process->codes[i].lines);
		free(process->codes[i].marks);
		account_uncharge(account, process->codes[i].lines_room);
		account_uncharge(account, process->codes[i].mark_count * sizeof(struct lines_mark));
	}
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
		blocks_free(process->blocks[i]);
	regions_free(&process->regions);
	id_map_free(&process->stack_ids);
	id_map_free(&process->frame_ids);
	id_map_free(&process->code_ids);
	id_map_free(&process->symbol_ids);
	id_map_free(&process->tids);
	id_map_free(&process->pools);
	array_release(account, &process->stacks, &process->stack_room, sizeof(*process->stacks));
	array_release(account, &process->stack_frames, &process->stack_frame_room,
		      sizeof(*process->stack_frames));
	array_release(account, &process->frames, &process->frame_room, sizeof(*process->frames));
	array_release(account, &process->codes, &process->code_room, sizeof(*process->codes));
	array_release(account, &process->symbols, &process->symbol_room, sizeof(*process->symbols));
	array_release(account, &process->symbol_frames, &process->symbol_frame_room,
		      sizeof(*process->symbol_frames));
	array_release(account, &process->threads, &process->thread_room, sizeof(*process->threads));
	state_census_free(&process->census);
	strings_free(process->strings);
}

/* Its account, and itself as the first thing that is charged to that. */
static int process_begun(struct trace *trace, struct process_state **out)
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

/* With the empty traceback and the unknown code object, both index 0. */
static int process_new(struct trace *trace, struct process_state **out)
{
	struct process_state *process;
	uint32_t unknown;
	int err = process_begun(trace, &process);

	if (err)
		return err;
	process->stack_ids.seed = process->frame_ids.seed = trace->seed;
	process->code_ids.seed = process->symbol_ids.seed = process->tids.seed =
		process->pools.seed = trace->seed;
	err = state_tables_new(process->blocks, process->account);
	if (!err)
		err = strings_new_in(&process->strings, process->account);
	if (!err)
		err = strings_intern(process->strings, TRACE_UNKNOWN, strlen(TRACE_UNKNOWN),
				     &unknown);
	if (!err)
		err = array_reserve_in(process->account, &process->stacks, &process->stack_room, 0,
				       STACK_NO_ROOM + 1, sizeof(*process->stacks));
	if (!err)
		err = array_reserve_in(process->account, &process->codes, &process->code_room, 0, 1,
				       sizeof(*process->codes));
	if (err) {
		state_free_process(process);
		return err;
	}
	while (process->stack_count <= STACK_NO_ROOM)
		process->stacks[process->stack_count++] =
			(struct stack_entry){.total = 1, .known = 1};
	process->codes[process->code_count++] = (struct code_entry){
		.filename = trace->unknown, .function = trace->unknown, .version = 1};
	*out = process;
	return 0;
}

static struct process_state *process_of(struct trace *trace, uint32_t tgid);

/* 0: a version that is not known. */
static uint32_t pool_bytes(uint32_t python_version)
{
	const struct python_offsets *offsets = offsets_for(python_version >> 16, 0);

	return offsets ? offsets->heap.pool_bytes : 0;
}

uint32_t state_layers(uint32_t mode)
{
	uint32_t layers = 0;

	if (mode & EVENT_MODE_NATIVE)
		layers |= 1u << EVENT_LAYER_NATIVE;
	if (mode & EVENT_MODE_MAPPED)
		layers |= 1u << EVENT_LAYER_MMAP;
	/*
	 * Before there were others it went without saying; mapped memory was then followed in
	 * growth mode only.
	 */
	if (mode & EVENT_MODE_PYTHON || !layers ||
	    (!(mode & EVENT_MODE_NATIVE) && (mode & EVENT_MODE_MASK) == EVENT_MODE_GROWTH))
		layers |= 1u << EVENT_LAYER_PYTHON;
	return layers;
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
		.large_skipped = (event->mode & EVENT_MODE_MASK) == EVENT_MODE_GROWTH &&
				 !(event->mode & EVENT_MODE_LARGE),
		.reuse_unseen = !!(event->mode & EVENT_MODE_NO_REUSE),
		.ends_unseen = !!(event->mode & EVENT_MODE_NO_ENDS),
		.pool_bytes = pool_bytes(event->python_version),
		.sample_bytes = event->sample_bytes,
		.from_start = event->from_start != 0,
		.start_ns = event->header.time_ns,
		.end_ns = event->header.time_ns,
		.start_realtime_ns = event->realtime_ns,
	};
	process->info.counters.events = 1;
	memcpy(process->info.name, event->name, sizeof(event->name));
	memcpy(process->info.container, event->container, sizeof(event->container));
}

/* The more processes there are, the more is kept for the small ones among them. */
static void reserve_set(struct trace *trace)
{
	struct account *tables = &trace->tables;
	uint64_t most = tables->limit / RESERVE_SHARE;
	uint64_t floors = trace->process_count * (tables->limit / FLOOR_SHARE);

	tables->reserve = floors < most ? floors : most;
}

/* A process of that tgid may still be thought to run: its end was not seen. */
static int process_add(struct trace *trace, const struct event_target *event)
{
	struct process_state *process, *parent, *before = process_of(trace, event->header.tgid);
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
	err = state_place(trace, &index);
	if (!err)
		err = process_new(trace, &process);
	if (err)
		return err;
	info_set(process, event);
	parent = event->parent ? process_of(trace, event->parent) : NULL;
	if (parent && !parent->table_kept)
		err = state_inherit(process, parent);
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

/* Those that have ended make room for it. */
static int process_begin(struct trace *trace, const struct event_target *event)
{
	int err;

	do
		err = process_add(trace, event);
	while (account_is_full(err) && !state_make_room(trace));
	if (!account_is_full(err))
		return err;
	trace->dropped.processes++;
	state_tgid_drop(trace, event->header.tgid);
	return error_set(err, "there is no memory left to trace it (--budget)");
}

/* Size of a record's fixed part; 0 for a type that is not known. *variable: more may follow. */
static size_t record_bytes(uint32_t type, int *variable)
{
	*variable = type == EVENT_STACK || type == EVENT_CODE || type == EVENT_CODE_LINES ||
		    type == EVENT_CENSUS_POOL || type == EVENT_CENSUS_SIZES ||
		    type == EVENT_CENSUS || type == EVENT_CENSUS_DONE || type == EVENT_PROCESS ||
		    type == EVENT_SYMBOL || type == EVENT_EXIT || type == EVENT_EXEC ||
		    type == EVENT_FORK || type == EVENT_FINALIZE;
	switch (type) {
	case EVENT_ALLOC:
	case EVENT_REALLOC_DONE:
	case EVENT_REUSE:
		return sizeof(struct event_alloc);
	case EVENT_FREE:
	case EVENT_REALLOC:
	case EVENT_REALLOC_FAIL:
		return sizeof(struct event_free);
	case EVENT_STACK:
		return sizeof(struct event_stack);
	case EVENT_SYMBOL:
		return sizeof(struct event_symbol);
	case EVENT_CODE:
		return sizeof(struct event_code);
	case EVENT_CODE_LINES:
		return sizeof(struct event_code_lines);
	case EVENT_EXIT:
	case EVENT_EXEC:
	case EVENT_FORK:
	case EVENT_FINALIZE:
		return EVENT_PROCESS_MIN; /* older captures lack the rest */
	case EVENT_PROCESS:
		return EVENT_TARGET_MIN; /* older captures lack the rest */
	case EVENT_LOSS:
		return sizeof(struct event_loss);
	case EVENT_CLEAR:
	case EVENT_RESET_PEAK:
	case EVENT_DISCARD:
	case EVENT_CENSUS_THREAD:
		return sizeof(struct event_mark);
	case EVENT_MAP:
	case EVENT_UNMAP:
	case EVENT_REMAP:
	case EVENT_PROTECT:
		return sizeof(struct event_map);
	case EVENT_CENSUS:
	case EVENT_CENSUS_DONE:
		return EVENT_CENSUS_MIN; /* the same */
	case EVENT_CENSUS_ARENA:
		return sizeof(struct event_census_arena);
	case EVENT_RSS:
		return sizeof(struct event_rss);
	case EVENT_MODE_CHANGE:
		return sizeof(struct event_mode_change);
	case EVENT_CENSUS_POOL:
		return sizeof(struct event_census_pool);
	case EVENT_CENSUS_SIZES:
		return sizeof(struct event_census_sizes);
	default:
		return 0;
	}
}

static int record_valid(const void *record, size_t size)
{
	const struct event_header *header = record;
	int variable;

	if (size < sizeof(*header) || header->size != size || size % 8)
		return 0;
	size_t fixed = record_bytes(header->type, &variable);
	return fixed && (variable ? size >= fixed : size == fixed);
}

static int process_feed(struct trace *trace, struct process_state *process, const void *record)
{
	const struct event_header *header = record;

	switch (header->type) {
	case EVENT_ALLOC:
		return state_alloc(process, record);
	case EVENT_FREE:
		return state_free(process, record);
	case EVENT_REALLOC:
		return state_realloc(process, record);
	case EVENT_REALLOC_DONE:
		return state_realloc_done(process, record);
	case EVENT_REALLOC_FAIL:
		return state_realloc_fail(process, record);
	case EVENT_REUSE:
		return state_reuse(process, record);
	case EVENT_STACK:
		return state_stack(trace, process, record);
	case EVENT_SYMBOL:
		return state_symbol(process, record);
	case EVENT_CODE:
		return state_code(trace, process, record);
	case EVENT_CODE_LINES:
		return state_code_lines(trace, process, record);
	case EVENT_FINALIZE:
		return state_finalize(trace, process);
	case EVENT_EXIT:
		process->info.exit_code = ((const struct event_process *)record)->code;
		return state_end(trace, process, TRACE_EXITED);
	case EVENT_EXEC:
		return state_end(trace, process, TRACE_EXECED);
	case EVENT_DISCARD:
		return state_discard(trace, process);
	case EVENT_CLEAR:
		return state_clear(process);
	case EVENT_RESET_PEAK:
		for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
			process->info.tables[i].peak_bytes = process->info.tables[i].live_bytes;
		return 0;
	case EVENT_RSS:
		process->info.rss_bytes = ((const struct event_rss *)record)->bytes;
		process->info.rss_ns = ((const struct event_rss *)record)->header.time_ns;
		return 0;
	case EVENT_MODE_CHANGE:
		return state_mode_change(process, record);
	case EVENT_CENSUS:
		return state_census(process, record);
	case EVENT_CENSUS_THREAD:
		return state_census_thread(process, record);
	case EVENT_CENSUS_POOL:
		return state_census_pool(process, record);
	case EVENT_CENSUS_ARENA:
		return state_census_arena(process, record);
	case EVENT_CENSUS_SIZES:
		return state_census_sizes(process, record);
	case EVENT_CENSUS_DONE:
		return state_census_done(process, record);
	case EVENT_MAP:
	case EVENT_UNMAP:
	case EVENT_REMAP:
	case EVENT_PROTECT:
		return state_map(process, record);
	/*
	 * EVENT_FORK: the child is another process; it is under trace when an EVENT_PROCESS says so
	 */
	default:
		return 0;
	}
}

/* The last process of that tgid, NULL when there was none. */
static struct process_state *process_of(struct trace *trace, uint32_t tgid)
{
	if (trace->last && trace->last->info.tgid == tgid)
		return trace->last;
	size_t index;
	if (trace_process_find(trace, tgid, &index))
		return NULL;
	trace->last = trace->processes[index];
	return trace->last;
}

/* There was no memory for what a record tells, or no right to more of it. */
static void dropped_count(struct trace_counters *counters, const void *record)
{
	const struct event_header *header = record;

	switch (header->type) {
	case EVENT_ALLOC:
	case EVENT_REALLOC_DONE:
		counters->blocks_dropped++;
		counters->bytes_dropped += ((const struct event_alloc *)record)->bytes;
		break;
	case EVENT_STACK:
		counters->stacks_dropped++;
		break;
	case EVENT_SYMBOL:
		counters->symbols_dropped++;
		break;
	case EVENT_CODE:
	case EVENT_CODE_LINES:
		counters->codes_dropped++;
		break;
	case EVENT_MAP:
	case EVENT_UNMAP:
	case EVENT_REMAP:
	case EVENT_PROTECT:
		counters->regions_dropped++;
		break;
	}
}

static void told_count(struct trace_told *told, uint32_t type)
{
	told->blocks += type == EVENT_ALLOC || type == EVENT_REALLOC_DONE || type == EVENT_REUSE;
	told->maps += type == EVENT_MAP || type == EVENT_REMAP;
}

static int record_feed(struct trace *trace, const void *record, size_t size)
{
	const struct event_header *header = record;
	struct process_state *process =
		size < sizeof(*header) ? NULL : process_of(trace, header->tgid);
	int valid = record_valid(record, size), err;

	if (valid && header->type == EVENT_LOSS) {
		trace->loss = *(const struct event_loss *)record;
		return 0;
	}
	if (valid && header->type == EVENT_PROCESS) {
		struct event_target target = {0};

		memcpy(&target, record, size < sizeof(target) ? size : sizeof(target));
		err = process_begin(trace, &target);
		trace->orphans += err == -EBADMSG;
		return err;
	}
	if (valid)
		told_count(&trace->told, header->type);
	if (!process && valid && header->type == EVENT_DISCARD) {
		state_tgid_drop(trace, header->tgid);
		return 0;
	}
	/* What was under way when it was dropped has a last word. */
	if (!process && valid && state_tgid_is_dropped(trace, header->tgid))
		return 0;
	if (!process) {
		trace->orphans++;
		return -EBADMSG;
	}
	int ends = valid && (header->type == EVENT_EXIT || header->type == EVENT_EXEC ||
			     header->type == EVENT_DISCARD);
	/* What is kept of its shutting down may be all that there is room for. */
	if (process->info.end >= TRACE_EXITED || (process->table_kept && !ends))
		return 0;
	process->info.counters.events++;
	if (valid && header->time_ns > process->info.end_ns)
		process->info.end_ns = header->time_ns;
	/* At its end a process may be dropped. */
	if (ends)
		return process_feed(trace, process, record);
	err = valid ? process_feed(trace, process, record) : -EBADMSG;
	process->info.counters.records_malformed += err == -EBADMSG;
	if (!account_is_full(err))
		return err;
	dropped_count(&process->info.counters, record);
	return 0;
}

/* Where there is no room for those that run, those that have ended make some. */
static void room_make(struct trace *trace)
{
	const struct account *tables = &trace->tables;
	uint64_t wanted = tables->reserve + tables->limit / FREE_SHARE;

	while (trace->ended_bytes > tables->limit / STATE_KEEP_SHARE &&
	       account_left(tables) < wanted)
		if (state_make_room(trace))
			break;
}

int trace_feed(struct trace *trace, const void *record, size_t size)
{
	uint64_t refused = trace->account.refused;
	int err = record_feed(trace, record, size);

	if (trace->account.refused != refused)
		room_make(trace);
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
	/* Too early in boot for random numbers: unseeded tables are only slower when attacked. */
	if (getrandom(&trace->seed, sizeof(trace->seed), GRND_NONBLOCK) != sizeof(trace->seed))
		trace->seed = 0;
	trace->tables.parent = &trace->account;
	state_tgids_begin(trace);
	err = account_charge(&trace->account, sizeof(*trace));
	if (!err)
		err = strings_new_in(&trace->strings, &trace->account);
	if (!err)
		err = strings_intern(trace->strings, TRACE_UNKNOWN, strlen(TRACE_UNKNOWN),
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
	array_release(&trace->account, &trace->processes, &trace->process_room,
		      sizeof(*trace->processes));
	state_tgids_free(trace);
	strings_free(trace->strings);
	free(trace);
}
