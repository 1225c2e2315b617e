/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that a stream of events builds: each process's code objects, stacks and live blocks.
 * Pure: its input is records, from the ring buffer or a capture file, and both are untrusted.
 * Whatever it cannot process is counted.
 */
#ifndef TRACER_TRACE_TRACE_H
#define TRACER_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "base/account.h"
#include "blocks/blocks.h"
#include "snapshot/snapshot.h"
#include "tables/strings.h"

/* One (file, line) of a traceback. function is the qualified name (before 3.11 the name). */
struct trace_frame {
	uint32_t filename; /* id in trace_strings(); "<unknown>" if it could not be read */
	uint32_t function;
	uint32_t line; /* 0: unknown */
};

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

struct trace_counters {
	uint64_t events, reuses;
	uint64_t stacks_unknown; /* allocations whose stack record is missing */
	/* of the last snapshot: frames without file name or line table */
	uint64_t frames_unknown;
	uint64_t frames_unnamed;      /* native frames without a name */
	uint64_t frames_slow;         /* native frames whose file is too slow to read */
	/* Dropped for lack of memory (trace_budget()): blocks, which appear in no line. */
	uint64_t blocks_dropped, bytes_dropped;
	uint64_t stacks_dropped;  /* stacks, also those of blocks; they show as "<unknown>" */
	uint64_t codes_dropped;   /* records of code objects; their name or line is unknown */
	uint64_t symbols_dropped; /* names of native frames */
	uint64_t walks_dropped;   /* heap walks that were abandoned */
	/* changes of mapped memory, also those beyond REGIONS_MAX regions */
	uint64_t regions_dropped;
	uint64_t records_malformed; /* skipped */
};

/* Live memory and event counts of one layer. */
struct trace_table {
	/*
	 * A block being reallocated counts as freed. live_bytes never exceeds 2^59 - 1. In Python's
	 * layer, in census and growth mode, dead blocks count until a heap walk removes them, and
	 * peak_bytes is the highest value after a walk. In growth mode each entry is a pool. With
	 * sampling, bytes are scaled estimates, but live_blocks and the counters below count
	 * sampled blocks.
	 */
	uint64_t live_bytes, live_blocks, peak_bytes;
	uint64_t allocs, frees, reallocs;
	/* of blocks not in the table: allocated before tracing, or not seen */
	uint64_t frees_unknown;
	/* allocations at an address that was live: the free was not seen */
	uint64_t replaced;
};

enum trace_end { TRACE_RUNNING = 0, TRACE_FINALIZING, TRACE_EXITED, TRACE_EXECED };

struct trace_process {
	uint32_t tgid, ns_pid, parent; /* as in struct event_target; 0: unknown */
	char container[65];
	/* no memory to copy the parent's tables (trace_budget()) */
	int not_inherited;
	uint32_t python_version; /* PY_VERSION_HEX */
	uint32_t nframe;         /* traceback limit */
	uint32_t mode;           /* enum event_mode: what Python's table holds */
	uint32_t layers;         /* 1 << enum event_layer for each traced layer */
	uint32_t pool_bytes;     /* size of a pymalloc pool; 0: unknown */
	/* sampling mean (snapshot/estimate.h); 0: every block is in the table */
	uint64_t sample_bytes;
	int large_skipped; /* large blocks are not traced individually */
	int reuse_unseen;  /* EVENT_MODE_NO_REUSE */
	int ends_unseen;   /* EVENT_MODE_NO_ENDS */
	int from_start;
	int off;                                          /* its probes are removed */
	struct snapshot_change changes[SNAPSHOT_CHANGES]; /* see struct snapshot_meta */
	uint32_t change_count, changes_dropped;
	char name[65];
	uint64_t start_ns, end_ns; /* monotonic; end_ns: time of the last record */
	uint64_t start_realtime_ns;
	uint64_t rss_bytes, rss_ns; /* resident set and when it was read; 0: never */
	enum trace_end end;
	uint32_t exit_code; /* wait status; valid for TRACE_EXITED */
	struct trace_table tables[EVENT_LAYER_TABLES];
	uint64_t large_blocks;   /* in the table, with struct block.large */
	uint64_t rounded_blocks; /* in the table, with struct block.rounded */
	struct trace_counters counters;
	/* from the last heap walk; time_ns 0: none yet */
	struct snapshot_coverage coverage;
	struct snapshot_ending ending;
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
 * The layer that reports show first: Python's if traced, otherwise the native one, otherwise mapped
 * memory.
 */
enum event_layer trace_first_layer(const struct trace_process *process);
/*
 * What is live in a layer now. With sampling, live_blocks is an estimate. Mapped memory has no
 * table: only live_blocks and live_bytes are set.
 */
struct trace_table trace_live(const struct trace *trace, size_t process, enum event_layer layer);
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
int trace_is_walk(const struct trace *trace, size_t process);
/* The resolved traceback, using all code received so far. Borrowed until the next call or feed. */
struct trace_traceback trace_traceback_at(struct trace *trace, size_t process, uint32_t traceback);

/* The meta data of a snapshot taken now. 0; -ENOENT. */
int trace_meta(const struct trace *trace, size_t process, struct snapshot_meta *meta);
/*
 * Takes an immutable snapshot (snapshot/snapshot.h) of a process: the one from EVENT_FINALIZE if
 * want_final is set and it exists, otherwise the current state. Caller frees with snapshot_free().
 * 0; -ENOENT; -ENOMEM.
 */
int trace_snapshot(struct trace *trace, size_t process, int want_final, struct snapshot **out);
/*
 * Takes one snapshot of all processes (snapshot/merge.h). 0; -ENOENT: there are none; -EFBIG,
 * -EOVERFLOW; -ENOMEM.
 */
int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out);

#endif
