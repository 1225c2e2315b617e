/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatches records to their handlers. The size of a record is checked here, its content in the
 * handler. A malformed record is counted and changes nothing.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "trace/process/process_walks.h"
#include "trace/state.h"
#include "util/array.h"

#define SNAPSHOT_SHARE 4u /* of the budget, set aside for building snapshots */
#define FREE_SHARE     8u /* freed at once by evicting ended processes */

/* May more bytes follow a record's fixed part? */
static int is_variable(uint32_t type)
{
	return type == EVENT_STACK || type == EVENT_CODE || type == EVENT_CODE_LINES ||
	       type == EVENT_CENSUS_POOL || type == EVENT_CENSUS_SIZES ||
	       type == EVENT_CENSUS_KINDS || type == EVENT_CENSUS_LARGE ||
	       type == EVENT_CENSUS_CHUNKS || type == EVENT_CENSUS || type == EVENT_CENSUS_DONE ||
	       type == EVENT_PROCESS || type == EVENT_SYMBOL || type == EVENT_EXIT ||
	       type == EVENT_EXEC || type == EVENT_FORK || type == EVENT_FINALIZE;
}

/* record_bytes() of heap walks and windows. */
static size_t census_bytes(uint32_t type)
{
	switch (type) {
	case EVENT_CENSUS:
	case EVENT_CENSUS_DONE:
		return EVENT_CENSUS_MIN; /* older captures lack the rest */
	case EVENT_CENSUS_ARENA:
		return sizeof(struct event_census_arena);
	case EVENT_CENSUS_POOL:
		return sizeof(struct event_census_pool);
	case EVENT_CENSUS_SIZES:
		return sizeof(struct event_census_sizes);
	case EVENT_CENSUS_KINDS:
		return sizeof(struct event_census_kinds);
	case EVENT_CENSUS_LARGE:
		return sizeof(struct event_census_large);
	case EVENT_CENSUS_CHUNKS:
		return sizeof(struct event_census_chunks);
	case EVENT_WINDOW:
		return sizeof(struct event_window);
	default:
		return 0;
	}
}

/* The size of a record's fixed part; 0: unknown type. */
static size_t record_bytes(uint32_t type)
{
	switch (type) {
	case EVENT_ALLOC:
	case EVENT_REALLOC_DONE:
	case EVENT_REUSE:
		return sizeof(struct event_alloc);
	case EVENT_ALLOC_WEIGHTED:
		return sizeof(struct event_alloc_weighted);
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
	case EVENT_SELF_SAMPLED:
		return sizeof(struct event_mark);
	case EVENT_MAP:
	case EVENT_UNMAP:
	case EVENT_REMAP:
	case EVENT_PROTECT:
		return sizeof(struct event_map);
	case EVENT_RSS:
		return sizeof(struct event_rss);
	case EVENT_COST:
		return sizeof(struct event_cost);
	case EVENT_THREAD:
		return sizeof(struct event_thread);
	case EVENT_TASK:
		return sizeof(struct event_task);
	case EVENT_MODE_CHANGE:
		return sizeof(struct event_mode_change);
	default:
		return census_bytes(type);
	}
}

static int record_valid(const void *record, size_t size)
{
	const struct event_header *header = record;

	if (size < sizeof(*header) || header->size != size || size % 8)
		return 0;
	size_t fixed = record_bytes(header->type);
	return fixed && (is_variable(header->type) ? size >= fixed : size == fixed);
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

/* The records of a heap walk. */
static int census_feed(struct process_state *process, const void *record)
{
	switch (((const struct event_header *)record)->type) {
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
	case EVENT_CENSUS_KINDS:
		return state_census_kinds(process, record);
	case EVENT_CENSUS_LARGE:
		return state_census_large(process, record);
	case EVENT_CENSUS_CHUNKS:
		return state_census_chunks(process, record);
	case EVENT_WINDOW:
		return state_window(process, record);
	default: /* EVENT_FORK: the child is traced only after its own EVENT_PROCESS */
		return 0;
	}
}

/* The names of threads, and of what they run. */
static int thread_feed(struct process_state *process, const void *record)
{
	return ((const struct event_header *)record)->type == EVENT_TASK
		       ? state_task(process, record)
		       : state_thread_name(process, record);
}

static int process_feed(struct trace *trace, struct process_state *process, const void *record)
{
	const struct event_header *header = record;

	if (state_is_ignored(process, record))
		return 0;
	switch (header->type) {
	case EVENT_ALLOC_WEIGHTED:
		return state_alloc_weighted(process, record);
	case EVENT_SELF_SAMPLED:
		return state_self_sampled(process, header->time_ns);
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
		return state_stack(process, record);
	case EVENT_SYMBOL:
		return state_symbol(process, record);
	case EVENT_CODE:
		return code_feed(trace, process, record);
	case EVENT_CODE_LINES:
		return state_code_lines(process, record);
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
		return peaks_reset(process);
	case EVENT_RSS:
		return rss_set(process, record);
	case EVENT_COST:
		return cost_set(process, record);
	case EVENT_THREAD:
	case EVENT_TASK:
		return thread_feed(process, record);
	case EVENT_MODE_CHANGE:
		return state_mode_change(process, record);
	case EVENT_MAP:
	case EVENT_UNMAP:
	case EVENT_REMAP:
	case EVENT_PROTECT:
		return state_map(process, record);
	default:
		return census_feed(process, record);
	}
}

/* Counts a record that was dropped for lack of memory or quota. */
static void dropped_count(struct trace_counters *counters, const void *record)
{
	const struct event_header *header = record;

	switch (header->type) {
	case EVENT_ALLOC:
	case EVENT_REALLOC_DONE:
		counters->blocks_dropped++;
		counters->bytes_dropped += ((const struct event_alloc *)record)->bytes;
		break;
	case EVENT_ALLOC_WEIGHTED:
		counters->blocks_dropped++;
		counters->bytes_dropped +=
			((const struct event_alloc_weighted *)record)->weighted_bytes;
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

static void observed_count(struct trace_observed *observed, uint32_t type)
{
	observed->blocks += type == EVENT_ALLOC || type == EVENT_REALLOC_DONE ||
			    type == EVENT_REUSE || type == EVENT_ALLOC_WEIGHTED;
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
