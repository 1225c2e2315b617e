/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that a stream of events builds: each process's code objects, stacks and live blocks.
 * Pure: its input is records, from the ring buffer or a capture file, and both are untrusted.
 * Whatever it cannot process is counted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "snapshot/estimate/allocated.h"
#include "trace/process/process_info.h"
#include "util/account.h"
#include "util/strings.h"

/*
 * The frames of a stack, most recent first. Indices 0 and 1 are reserved: the empty stack, and the
 * one for all stacks that could not be stored; both show {"<unknown>", 0}. Two indices may show the
 * same frames; snapshots merge them.
 */
struct trace_traceback {
	const struct trace_frame *frames; /* borrowed from the trace */
	uint32_t nframe;
	uint32_t total; /* depth of the stack when it was first seen */
};

/*
 * Ended processes keep their last table as a snapshot. Beyond TRACE_ENDED_MAX of them, the one with
 * the fewest live bytes is dropped: trace_process_at() then returns NULL, and the index may be
 * reused.
 */
#define TRACE_ENDED_MAX 4096u

/* Records of new blocks and new mappings, of all processes, including dropped ones. */
struct trace_observed {
	uint64_t blocks, maps;
};

/* Processes whose tables were dropped, and what they held. */
struct trace_dropped {
	uint64_t processes, blocks, bytes;
};

struct trace;

/*
 * Called while a record of code that BPF could not copy is decoded; may feed more records with
 * trace_feed(). NULL: the code stays unknown.
 */
struct trace_hooks {
	void (*code_missing)(void *context, uint32_t tgid, uint64_t code_id, uint64_t address,
			     uint32_t missing);
	void *context;
};

int trace_new(struct trace **out, const struct trace_hooks *hooks);
void trace_free(struct trace *trace);
/*
 * Limits the memory of the trace to bytes; 0: no limit. A quarter is set aside for building
 * snapshots. Of the rest a process may use four times what the others leave, with a reserve for
 * small processes. Memory is first come, first served: a process at its limit keeps a new block
 * only in the place of one that died, or shows it as "<unknown>" if only its stack does not fit;
 * counters report what was dropped. Ended processes are evicted in favour of running ones, small
 * ones last, down to a quarter of that rest (struct trace_dropped).
 */
void trace_budget(struct trace *trace, uint64_t bytes);
/* From here on snapshots tell how old blocks are (snapshot/ages.h). */
void trace_ages(struct trace *trace);
/* The session may charge other memory to this account. Borrowed. */
struct account *trace_account(struct trace *trace);

/*
 * Applies one record, which is 8-byte aligned; size is the number of bytes that the transport
 * delivered.
 *
 * Returns 0; -EBADMSG: malformed, counted, the trace stays consistent and accepts more records;
 * -EDQUOT, -ENOMEM: no memory for a new process, which is dropped. No other record fails for lack
 * of memory: it is dropped and counted.
 *
 * EVENT_FINALIZE keeps a snapshot of the table as the "final" one. EVENT_EXIT and EVENT_EXEC end
 * the process; later records of its tgid are ignored until another EVENT_PROCESS. An EVENT_PROCESS
 * with a parent starts with a copy of the parent's live blocks. A forked process that calls exec is
 * dropped, because its blocks were its parent's. EVENT_CLEAR empties the table, including the final
 * one, and resets the counters that depend on it (peak, unknown frees, coverage). EVENT_MODE_CHANGE
 * does the same if the new mode needs a different kind of table.
 */
int trace_feed(struct trace *trace, const void *record, size_t size);

/* Upper bound of the indices; some may be unused. */
size_t trace_process_count(const struct trace *trace);
/* NULL: the index is unused. */
const struct trace_process *trace_process_at(const struct trace *trace, size_t index);
/* The index of the most recent process with that tgid. 0, -ENOENT. */
int trace_process_find(const struct trace *trace, uint32_t tgid, size_t *index);
struct trace_dropped trace_dropped(const struct trace *trace);
struct trace_observed trace_observed(const struct trace *trace);
const struct event_loss *trace_loss(const struct trace *trace); /* zeros if none was received */
/* Malformed records that belong to no traced process. */
uint64_t trace_orphans(const struct trace *trace);
size_t trace_memory(const struct trace *trace); /* bytes held */

/*
 * What is live in a layer now. With sampling, live_blocks is an estimate. Mapped memory has no
 * table: only live_blocks and live_bytes are set.
 */
struct trace_table trace_live(const struct trace *trace, size_t process, enum event_layer layer);
/*
 * The number of stacks of a running process, which only grows; 0: it has ended. Indices are those
 * of trace_traceback_at().
 */
size_t trace_stack_count(const struct trace *trace, size_t process);
/* With sampling, estimates; in a trace with windows, what the windows have shown. */
struct trace_sum {
	double size, count;
	double allocated; /* bytes, since the trace began */
};
/*
 * Adds what is live at each stack of a running process, and what it has allocated, to sums, of
 * trace_stack_count() elements. ages: only blocks of these ages now, and not what was allocated;
 * mapped memory has none. NULL: all.
 */
struct ages;
void trace_sums(const struct trace *trace, size_t process, enum event_layer layer,
		const struct ages *ages, struct trace_sum *sums);
/*
 * The same of the stacks of which it may have changed since the sums with that number were told:
 * one call for each. 0, what add() returns; -ENODATA: those are not known, trace_sums() tells all.
 */
int trace_sums_changed(const struct trace *trace, size_t process, enum event_layer layer,
		       uint32_t since,
		       int (*add)(void *context, uint32_t stack, const struct trace_sum *sum),
		       void *context);
/*
 * How long ago a block was allocated. block NULL: since when all blocks are seen that its process
 * allocates, or the part of them that its mode shows.
 */
uint64_t trace_age_ns(const struct trace *trace, size_t process, const struct block *block);
/*
 * What the blocks of one stack and age are; age: as of ages_coarse(), AGE_UNKNOWN. ages: only of
 * these ages; NULL: of all.
 */
struct trace_age_sum {
	uint32_t stack, age;
	double size, count;
};
/*
 * What is live now by stack and age: one call for each. 0, -ENOMEM, what add() returns; -ENODATA:
 * the layer has no ages.
 */
int trace_age_sums(const struct trace *trace, size_t process, enum event_layer layer,
		   const struct ages *ages,
		   int (*add)(void *context, const struct trace_age_sum *sum), void *context);
/* The sums of all running processes were told: returns their number, at least 1. */
uint32_t trace_sums_reported(struct trace *trace);
/*
 * What a thread's blocks of one stack are, in one asyncio task; several of one stack and thread add
 * up. task: a number that the task's name is made of | TRACE_TASK_NUMBERED, or the name's string;
 * 0: no task, or tasks are not told.
 */
#define TRACE_TASK_NUMBERED (1u << 31)
struct trace_thread_sum {
	uint32_t stack, tid, task;
	double size, count;
};
/*
 * The same by stack and thread: one call for each. 0, -ENOMEM, what add() returns; -ENODATA: it is
 * not known which thread has allocated a block of that layer.
 */
int trace_thread_sums(const struct trace *trace, size_t process, enum event_layer layer,
		      int (*add)(void *context, const struct trace_thread_sum *sum), void *context);
/*
 * The next thread whose name is known. *cursor starts at 0. 1; 0: there is none. *name: borrowed
 * until the next record.
 */
int trace_thread_named(const struct trace *trace, size_t process, size_t *cursor, uint32_t *tid,
		       const char **name);
/* Is it known what each stack has allocated? */
bool trace_has_allocated(const struct trace *trace, size_t process, enum event_layer layer);
/* By what the last windows of a process have shown; bytes and blocks a second. */
struct trace_rate {
	struct allocated_range bytes, blocks;
	uint64_t span_ns;  /* it is of so long a time; 0: nothing is known yet */
	double time_share; /* of it in windows */
	bool by_work;      /* as in struct allocated_scale */
};
/* How much a process that is traced in windows allocates, in the layer that they are of. */
void trace_rate(const struct trace *trace, size_t process, struct trace_rate *out);
/* The table of live blocks of a layer; NULL: it has none. Borrowed. */
const struct blocks *trace_blocks(const struct trace *trace, size_t process,
				  enum event_layer layer);
/*
 * The block that contains an address; NULL: none is known. Between heap walks the table still holds
 * dead blocks from a time when a pool had another block size. If several blocks contain the
 * address, the one that fits the pool's current block size is returned. Borrowed.
 */
const struct block *trace_block_containing(const struct trace *trace, size_t process,
					   enum event_layer layer, uint64_t address);
/*
 * The next thread without a name, of those that have allocated. *cursor starts at 0; a later call
 * may continue with it. 1; 0: none.
 */
int trace_thread_nameless(const struct trace *trace, size_t process, size_t *cursor, uint32_t *tid);
/*
 * The next native address without a name. *cursor starts at 0; a later call may continue with it.
 * 1; 0: none.
 */
int trace_unnamed_next(const struct trace *trace, size_t process, size_t *cursor,
		       uint64_t *address);
/*
 * The strings of a process's frames. Borrowed until the process is freed, with the trace or by
 * state_discard().
 */
const struct strings *trace_strings(const struct trace *trace, size_t process);
/* Is a heap walk in progress? It is abandoned if memory runs out. */
bool trace_is_walk(const struct trace *trace, size_t process);
/* The resolved traceback, using all code received so far. Borrowed until the next call or feed. */
struct trace_traceback trace_traceback_at(struct trace *trace, size_t process, uint32_t traceback);

enum trace_sighted {
	SIGHTED_ALL,
	SIGHTED_FRESH, /* in the open window, and no walk has shown them yet */
	SIGHTED_LAST,  /* in the open window; if none is open, in the last one */
};

/*
 * The pools, sorted by address, that hold blocks that were seen in windows. The caller frees
 * *pools. 0; -ENOMEM; *count may be 0.
 */
int trace_sighted_pools(const struct trace *trace, size_t process, enum trace_sighted which,
			uint64_t **pools, size_t *count);
/* The same for the addresses of malloc's blocks that were seen in windows: all, or fresh ones. */
int trace_sighted_large(const struct trace *trace, size_t process, int fresh, uint64_t **addresses,
			size_t *count);
/* An address that malloc() returned in a window. */
struct trace_seen {
	uint64_t address;
	uint64_t made_ns; /* 0: the block was freed in a window, since the last walk */
};
/* The same for the native layer's blocks that were seen in windows, or were freed in one. */
int trace_sighted_native(const struct trace *trace, size_t process, struct trace_seen **out,
			 size_t *count);
/* The meta data of a snapshot taken now. 0; -ENOENT. */
int trace_meta(const struct trace *trace, size_t process, struct snapshot_meta *meta);
/*
 * Takes an immutable snapshot (snapshot/snapshot.h) of a process: the one from EVENT_FINALIZE if
 * want_final is set and it exists, otherwise the current state. Caller frees with snapshot_free().
 * 0; -ENOENT; -ENOMEM.
 */
int trace_snapshot(struct trace *trace, size_t process, int want_final, struct snapshot **out);
/*
 * Takes one snapshot of all processes (snapshot/merge.h), or of those that run. 0; -ENOENT: there
 * are none; -EFBIG, -EOVERFLOW; -ENOMEM.
 */
int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out);
int trace_snapshot_running(struct trace *trace, struct snapshot **out);
