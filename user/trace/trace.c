/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatches records to their handlers. The size of a record is checked here, its content in the
 * handler. A malformed record is counted and changes nothing.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "trace/process/process_tables.h"
#include "trace/state.h"
#include "util/array.h"

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
	R(THREAD, OF(thread), 0, events, state_thread_name(process, record))                       \
	R(TASK, OF(task), 0, events, state_task(process, record))                                  \
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
	process->info.exit_code = event->code;
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
