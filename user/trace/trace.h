/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that a stream of events builds: for each process its code objects, stacks, tracebacks
 * and live blocks. Pure: it takes records (from the ring buffer or a capture file, both hostile
 * input) and knows no kernel. It says what it could not do in counters, never silently.
 */
#ifndef TRACER_TRACE_TRACE_H
#define TRACER_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "base/account.h"
#include "base/strings.h"
#include "snapshot/snapshot.h"
#include "trace/blocks.h"

/* One (file, line) of a traceback. function is the qualified name (before 3.11 the name). */
struct trace_frame {
	uint32_t filename; /* id in trace_strings(); "<unknown>" when it could not be read */
	uint32_t function;
	uint32_t line; /* 0: unknown */
};

/*
 * The frames behind a stack id, most recent first. Indices 0 and 1 are the empty one and that of
 * all for which there was no memory: {"<unknown>", 0}. Two indices can show the same frames
 * (snapshots merge them).
 */
struct trace_traceback {
	const struct trace_frame *frames; /* borrowed from the trace */
	uint32_t nframe;
	uint32_t total; /* frames on the stack, when it was first seen */
};

struct trace_counters {
	uint64_t events, reuses;
	uint64_t stacks_unknown; /* allocations whose stack record has not come */
	uint64_t
		/* of the last snapshot's tracebacks: frames without file name or line table */
		frames_unknown;
	uint64_t frames_unnamed; /* and native frames without a name */
	uint64_t frames_slow;    /* and those whose file takes too long to read */
	uint64_t stacks_cut;     /* and those whose native frames end early */
	/* Not kept, for want of memory (trace_budget()): blocks, in no line. */
	uint64_t blocks_dropped, bytes_dropped;
	uint64_t stacks_dropped;   /* blocks and stacks, which show as "<unknown>" */
	uint64_t codes_dropped;    /* records of code objects: no name, or no line */
	uint64_t symbols_dropped;  /* names of native frames */
	uint64_t readings_dropped; /* readings of the heap that had to be given up */
	/* changes of mapped memory; also: more than REGIONS_MAX regions */
	uint64_t regions_dropped;
	uint64_t records_malformed; /* records skipped */
};

/* What is live in one layer, and what has been. */
struct trace_table {
	/*
	 * While a realloc is under way its block counts as gone. live_bytes never exceeds 2^59 - 1.
	 * In Python's layer, in census and growth mode, dead blocks count until a reading of the
	 * heap says so; peak_bytes is the highest that one has left. In growth mode pools stand for
	 * the blocks in them. Of a sample, bytes are what its blocks stand for; live_blocks, and
	 * the counters below, are those of the sample.
	 */
	uint64_t live_bytes, live_blocks, peak_bytes;
	uint64_t allocs, frees, reallocs;
	/* of blocks that the table does not know: older than the trace, or unseen */
	uint64_t frees_unknown;
	/* an allocation at an address that was live: its free was not seen */
	uint64_t replaced;
};

enum trace_end { TRACE_RUNNING = 0, TRACE_FINALIZING, TRACE_EXITED, TRACE_EXECED };

struct trace_process {
	uint32_t tgid, ns_pid, parent; /* as struct event_target has them; 0: not known */
	char container[65];
	/* there was no memory for a copy of its parent's tables (trace_budget()) */
	int not_inherited;
	uint32_t python_version; /* PY_VERSION_HEX */
	uint32_t nframe;         /* traceback limit */
	uint32_t mode;           /* enum event_mode: what the table of Python's layer holds */
	uint32_t layers;         /* 1 << enum event_layer for each that is traced */
	uint32_t pool_bytes;     /* of a pool of pymalloc's; 0: not known */
	/* the table holds a sample (snapshot/estimate.h); 0: every block */
	uint64_t sample_bytes;
	int large_skipped; /* large blocks are not traced, one by one */
	int reuse_unseen;  /* EVENT_MODE_NO_REUSE */
	int ends_unseen;   /* EVENT_MODE_NO_ENDS */
	int from_start;
	int off;                                          /* its probes are out */
	struct snapshot_change changes[SNAPSHOT_CHANGES]; /* see struct snapshot_meta */
	uint32_t change_count, changes_dropped;
	char name[65];
	uint64_t start_ns, end_ns; /* monotonic; end_ns: of the last record */
	uint64_t start_realtime_ns;
	uint64_t rss_bytes, rss_ns; /* what it had in memory, when that was read last; 0: never */
	enum trace_end end;
	uint32_t exit_code; /* wait status, with TRACE_EXITED */
	struct trace_table tables[EVENT_LAYER_TABLES];
	uint64_t large_blocks;   /* those that are struct block.large */
	uint64_t rounded_blocks; /* and struct block.rounded */
	struct trace_counters counters;
	/* by the last reading of the heap; time_ns 0: there was none */
	struct snapshot_coverage coverage;
	struct snapshot_ending ending;
};

/*
 * A process that has ended keeps its last table, as a snapshot. Of more than TRACE_ENDED_MAX, the
 * one whose live blocks are the fewest bytes is not kept: then trace_process_at() gives NULL, and
 * another process may get its index.
 */
#define TRACE_ENDED_MAX 4096u

/*
 * Records that told of a block or of mapped memory that came to be, of whatever process, also of
 * those that are not kept.
 */
struct trace_told {
	uint64_t blocks, maps;
};

/* Processes whose tables are not kept, and what was in them. */
struct trace_dropped {
	uint64_t processes, blocks, bytes;
};

struct trace;

/*
 * What to do about code that BPF could not copy: called while the record that lacks it is decoded;
 * may feed further records by trace_feed(). NULL: leave it unknown.
 */
struct trace_hooks {
	void (*code_missing)(void *context, uint32_t tgid, uint64_t code_id, uint64_t address,
			     uint32_t missing);
	void *context;
};

int trace_new(struct trace **out, const struct trace_hooks *hooks);
void trace_free(struct trace *trace);
/*
 * How much memory all that the trace keeps may have, 0: as much as it takes. A quarter is for
 * snapshots while they are made, a process may have four times what the others leave, and what
 * small ones need is kept for them. Who comes first is kept: once a process has what it may have, a
 * new block is kept only in the place of one that has died, or shows as "<unknown>" if there is
 * room for it and not for its stack; the counters tell what was not kept. Processes that have ended
 * make room for those that run, down to a quarter of it, the small ones last (struct
 * trace_dropped).
 */
void trace_budget(struct trace *trace, uint64_t bytes);
/* What else is kept for the session may be charged to it. Borrowed. */
struct account *trace_account(struct trace *trace);

/*
 * Applies one record, which is 8-byte aligned; size is what the transport says it holds. 0;
 * -EBADMSG when it is malformed (counted, the trace stays consistent, feeding may go on); -EDQUOT,
 * -ENOMEM: there is no memory for the process that begins, nothing is kept of it. For want of
 * memory nothing else fails: what a record tells is then not kept, and counted. At EVENT_FINALIZE
 * the state of the blocks is kept aside as the "final" one; EVENT_EXIT and EVENT_EXEC end the
 * process: later records of its tgid are ignored until another EVENT_PROCESS. One that names a
 * parent begins with a copy of that one's live blocks, and one that was forked and calls exec is
 * not kept: what it held was its parent's. EVENT_CLEAR empties its table, the one kept aside too,
 * and begins anew what is counted of the table (peak, unknown frees, coverage); so does
 * EVENT_MODE_CHANGE where the table is of another kind.
 */
int trace_feed(struct trace *trace, const void *record, size_t size);

/* Indices go up to this; some may be free. */
size_t trace_process_count(const struct trace *trace);
/* NULL: there is none (any more) of that index. */
const struct trace_process *trace_process_at(const struct trace *trace, size_t index);
/* The index of the last process of that tgid. 0, -ENOENT. */
int trace_process_find(const struct trace *trace, uint32_t tgid, size_t *index);
struct trace_dropped trace_dropped(const struct trace *trace);
struct trace_told trace_told(const struct trace *trace);
const struct event_loss *trace_loss(const struct trace *trace); /* zeros when none came */
uint64_t
/* malformed records that belong to no process under trace */
trace_orphans(const struct trace *trace);
size_t trace_memory(const struct trace *trace); /* bytes held */

/*
 * The layer that stands first: Python's if that is traced, else the native one if that is, else
 * mapped memory.
 */
enum event_layer trace_first_layer(const struct trace_process *process);
/*
 * What lives in a layer now. Of a sample, live_blocks is how many it stands for; of mapped memory,
 * which has no table, there is nothing else than that and live_bytes.
 */
struct trace_table trace_live(const struct trace *trace, size_t process, enum event_layer layer);
/* Live blocks of a process in a layer, as they are now; NULL: the layer has no table. Borrowed. */
const struct blocks *trace_blocks(const struct trace *trace, size_t process,
				  enum event_layer layer);
/*
 * The block that an address lies in; NULL: none is known. Between two readings of the heap the
 * table has dead blocks, too, of the time when a pool was one of another size: of several that may
 * be meant it is the one that fits the pool. Borrowed.
 */
const struct block *trace_block_containing(const struct trace *trace, size_t process,
					   enum event_layer layer, uint64_t address);
/*
 * The next address of a native frame that has no name yet; *cursor starts at 0, and a later walk
 * may start where an earlier one has ended. 1, 0: there is none.
 */
int trace_unnamed_next(const struct trace *trace, size_t process, size_t *cursor,
		       uint64_t *address);
/* Those of a process's frames. Borrowed until it is freed, with the trace or in state_discard(). */
const struct strings *trace_strings(const struct trace *trace, size_t process);
/* Is its heap being read? A reading that there is no memory for is given up. */
int trace_is_reading(const struct trace *trace, size_t process);
/*
 * Resolved traceback; frames whose code came later than the stack are resolved now. Borrowed until
 * the next call or feed.
 */
struct trace_traceback trace_traceback_at(struct trace *trace, size_t process, uint32_t traceback);

/* What a snapshot taken now would say of itself. 0; -ENOENT. */
int trace_meta(const struct trace *trace, size_t process, struct snapshot_meta *meta);
/*
 * An immutable snapshot (snapshot/snapshot.h) of a process: as it was at EVENT_FINALIZE when
 * want_final is set and there was one, else as it is. Caller frees with snapshot_free(). 0;
 * -ENOENT; -ENOMEM.
 */
int trace_snapshot(struct trace *trace, size_t process, int want_final, struct snapshot **out);
/*
 * The same of all processes in one (snapshot/merge.h). 0; -ENOENT there is none; -EFBIG,
 * -EOVERFLOW; -ENOMEM.
 */
int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out);

#endif
