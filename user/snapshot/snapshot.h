/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot: what was live at one moment, as tracemalloc.Snapshot holds it (PEP 454), grouped by
 * equal {traceback, bytes, domain, flags} and with what was not seen beside it. Immutable once
 * built.
 *
 * It is of one process or of several of one session: then {process} too tells traces apart, and
 * beside the meta data of the whole there are those of every process (merge.h).
 */
#ifndef TRACER_SNAPSHOT_SNAPSHOT_H
#define TRACER_SNAPSHOT_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "base/strings.h"

struct snapshot_frame {
	uint32_t filename; /* ids in strings */
	uint32_t function;
	uint32_t line;
};

#define SNAPSHOT_TOTAL_UNKNOWN UINT32_MAX /* files of CPython 3.8's tracemalloc do not say it */

struct snapshot_traceback {
	uint32_t first;  /* index of its first (most recent) frame in frames */
	uint32_t nframe; /* at least 1 */
	uint32_t
		/*
		 * total_nframe: frames on the stack, those cut off included; or
		 * SNAPSHOT_TOTAL_UNKNOWN
		 */
		total;
};

/* In snapshot_trace.flags. */
/* bytes is the size class: what was asked for is up to 15 less, and not known */
#define SNAPSHOT_ROUNDED   1u
#define SNAPSHOT_INHERITED 2u /* a forked process has it of its parent */

struct snapshot_trace {
	uint32_t traceback;
	uint32_t domain;
	uint32_t process; /* index in processes; 0 where there is one process only */
	uint32_t flags;
	uint64_t bytes; /* of each block */
	uint64_t
		/*
		 * blocks that are equal in all of this (a file of tracemalloc lists them one by
		 * one)
		 */
		count;
};

/*
 * The mode of a snapshot that Python's own tracemalloc took: nothing is known but its traces and
 * the limit.
 */
#define SNAPSHOT_TRACEMALLOC "tracemalloc"
/* In mode and moment of a whole whose processes differ. */
#define SNAPSHOT_MIXED "mixed"

/* More processes than a session can come to: PIDs end at 2^22, and files are not believed. */
#define SNAPSHOT_PROCESSES_MAX (1u << 18)

/*
 * The heap as it was read last, against the table. live + large is what sys.getallocatedblocks()
 * says; live is new + old. Sizes are those of pymalloc's classes. In growth mode blocks are whole
 * pools, and sizes theirs.
 */
struct snapshot_coverage {
	uint64_t time_ns;                 /* of the reading, CLOCK_MONOTONIC */
	uint64_t live_blocks, live_bytes; /* in pymalloc's pools */
	uint64_t new_blocks, new_bytes;   /* of those, since the trace began */
	uint64_t seen_blocks, seen_bytes; /* of those, in the table */
	uint64_t old_blocks, old_bytes;   /* since before the trace */
	/* passed on to malloc: of those only the number is known */
	uint64_t large_blocks;
	uint64_t large_new;        /* by how much it has grown; 0 when it has not */
	uint64_t large_seen;       /* large blocks in the table */
	uint64_t pools_unreadable; /* their blocks are taken to be as the table has them */
	/*
	 * Of a sample of the new ones: an object's type says how large it is; and the table has
	 * another size.
	 */
	uint64_t typed_blocks, mistyped_blocks;
	uint64_t dead_blocks; /* in the table, and not on the heap any more: taken out */
	/* how long it took to read; how long the target was stopped for it */
	uint64_t elapsed_ns, frozen_ns;
};

/*
 * How the kernel read the heap at the process's end (bpf/heap.h), in pieces of a bounded number of
 * steps; pieces 0: it did not.
 */
struct snapshot_ending {
	uint64_t pieces, steps;
	uint64_t slowest_ns; /* the piece that took the longest */
	uint64_t arenas;     /* read whole */
	uint64_t
		/*
		 * at most so many were not: what died there since the reading before counts as live
		 */
		arenas_unread;
	uint64_t
		/*
		 * enum event_census_end; EVENT_CENSUS_CUT: the steps were used up before all was
		 * read
		 */
		failed;
};

/* What of the figures in struct snapshot_meta is one layer's. */
struct snapshot_table {
	uint64_t peak_bytes, frees_unknown, replaced;
};

/* The process was traced in this way from then on. */
struct snapshot_change {
	uint64_t since_ns; /* after its tracing began */
	uint64_t sample_bytes;
	uint32_t mode; /* enum event_mode */
	/*
	 * As in struct event_mode_change; 0, 0: the first one, and one that is because the heap
	 * cannot be read.
	 */
	uint32_t cost_permille, budget_permille;
};

/* Why the most recent frame of a block is <unknown>. */
enum snapshot_unknown {
	/* its thread had no Python frame: the interpreter's start, a thread of C */
	UNKNOWN_NO_FRAME,
	UNKNOWN_NO_STACK, /* the record of its stack was lost */
	UNKNOWN_NO_ROOM,  /* or there was no memory for its stack */
	/* the frame could not be read, or the record of its code object was lost */
	UNKNOWN_NO_CODE,
	UNKNOWN_NO_NAME, /* the code object's file name could not be read */
	UNKNOWN_NO_FILE, /* a native frame of which only the address is known */
	SNAPSHOT_UNKNOWNS
};

#define SNAPSHOT_CHANGES 16u

struct snapshot_meta {
	uint32_t pid;       /* 0: of several processes */
	uint32_t ns_pid;    /* in its innermost PID namespace; 0: not known */
	uint32_t parent;    /* the process whose live blocks it inherited by fork; 0: none */
	char container[65]; /* "": in none, or not known */
	int has_exited;     /* then wait_status is known, as wait(2) has it */
	uint32_t wait_status;
	uint32_t python_version; /* PY_VERSION_HEX, 0: unknown */
	uint32_t traceback_limit;
	char name[65];
	enum event_layer layer; /* of traces */
	char mode[16];          /* "exact", …; SNAPSHOT_TRACEMALLOC */
	/* "running", "finalizing", "exited", "execed": the state that it shows */
	char moment[32];
	uint64_t taken_realtime_ns;
	uint64_t duration_ns; /* traced for */
	int from_start;       /* 1: nothing is older than the trace */
	uint64_t
		/* 0: not known; in census mode the highest that a reading of the heap has left */
		peak_bytes;
	uint64_t loss[LOSS_COUNT];
	uint64_t frees_unknown, replaced, stacks_unknown, frames_unknown, records_malformed;
	uint64_t frames_unnamed; /* native frames of which only the address is known */
	/* those of which the file was not read to the end, since that takes too long */
	uint64_t frames_slow;
	uint64_t stacks_cut; /* tracebacks whose native frames end early */
	uint64_t
		/*
		 * traces hold a sample, with this mean (snapshot/estimate.h); 0: all blocks. Of
		 * several processes the greatest
		 */
		sample_bytes;
	/* Of traces (not of the layers beside them), those whose most recent frame is <unknown>. */
	struct snapshot_unknowns {
		uint64_t blocks, bytes;
	} unknown[SNAPSHOT_UNKNOWNS];
	uint64_t rounded_blocks; /* whose size is that of the size class, not what was asked for */
	uint64_t
		/*
		 * census: how long before this moment the heap was read; since then dead blocks
		 * count
		 */
		unread_ns;
	uint32_t
		/*
		 * 1 << enum event_layer for each that was followed beside the first
		 * (snapshot.layers)
		 */
		layers;
	struct snapshot_table native; /* of the native layer, where it is not the first */
	/* tracebacks begin at the application's most recent frame (snapshot_select()) */
	int of_app;
	int large_skipped; /* growth mode: large blocks were not traced, one by one */
	int ends_unseen;   /* what an exported allocator gives may be in no line */
	/* objects from free lists may stand where their blocks were allocated first */
	int reuse_unseen;
	uint32_t pool_bytes; /* of each of pymalloc's pools; 0: not known */
	uint64_t rss_bytes,
		/* what it had in memory so long before; 0: not known. Of several: their sum */
		rss_age_ns;
	uint64_t regions_dropped; /* changes of mapped memory that were not kept */
	/*
	 * Not kept, for want of memory (--budget): blocks, what they are of, readings of the heap,
	 * as trace/trace.h has them.
	 */
	uint64_t blocks_dropped, bytes_dropped;
	uint64_t stacks_dropped, codes_dropped, symbols_dropped, readings_dropped;
	/*
	 * How it was traced when, if that has changed: what it began with, and the last ones, of
	 * which mode is the last.
	 */
	struct snapshot_change changes[SNAPSHOT_CHANGES];
	uint32_t change_count;    /* 0: it was traced in one way */
	uint32_t changes_dropped; /* between the first and the second */
	int coverage_known;
	struct snapshot_coverage coverage;
	struct snapshot_ending ending;
};

struct snapshot {
	struct snapshot_meta meta;
	struct strings *strings; /* owned */
	struct snapshot_frame *frames;
	size_t frame_count;
	struct snapshot_traceback *tracebacks;
	size_t traceback_count;
	struct snapshot_trace *traces; /* in the order of their processes */
	size_t trace_count;
	/*
	 * Layers beside the first, by enum event_layer; of mapped memory, bytes are of each range
	 * that was mapped since the trace began. What is in one lies, for the most part, in blocks
	 * of the next: they are never added up.
	 */
	struct snapshot_layer {
		struct snapshot_trace *traces;
		size_t trace_count;
	} layers[EVENT_LAYERS];
	/*
	 * Where there are several, each one's own: process_count is 0 or at least 2, and meta is
	 * then their sum. A process that calls exec is two, the program before it and the one
	 * after.
	 */
	struct snapshot_meta *processes;
	size_t process_count;
};

/* Of enum event_mode; "unknown". Static. */
const char *snapshot_mode_name(uint32_t mode);
/* "python", "native", "mmap"; and back, -1: none of them. */
const char *event_layer_name(enum event_layer layer);
int event_layer_find(const char *name);

/*
 * How many processes it is of, at least 1, and the index-th one's meta data: that of the whole, if
 * there is one only.
 */
size_t snapshot_process_count(const struct snapshot *snapshot);
const struct snapshot_meta *snapshot_process(const struct snapshot *snapshot, size_t index);
/* The mean of the sample that a trace is of; 0: all blocks. */
uint64_t snapshot_sample_bytes(const struct snapshot *snapshot, const struct snapshot_trace *trace);
/*
 * The blocks of the index-th process as a snapshot of its own, for whatever takes one; borrows all
 * but itself. *first: 0 for process 0, and then left for the next one's call.
 */
struct snapshot snapshot_of_process(const struct snapshot *snapshot, size_t index, size_t *first);

/* Zero-initialise. */
struct snapshot_cursor {
	size_t layer, trace;
};
/*
 * What each process holds, in its own first layer, where that of one is not that of another
 * (Python's beside a program in C). Borrowed; NULL: that was all.
 */
const struct snapshot_trace *snapshot_own_next(const struct snapshot *snapshot,
					       struct snapshot_cursor *cursor);

/* Has one of its processes been forked of another one under trace? */
int snapshot_has_children(const struct snapshot *snapshot);
/*
 * Does the heap, which tells what has died, show an earlier moment than the snapshot's: of a
 * process that ended by itself was it not read at its end, of one that runs not lately?
 * meta.unread_ns says how long before, and coverage_known whether it ever was.
 */
int snapshot_is_unread(const struct snapshot_meta *meta);
/* Are pools counted and not blocks? */
int snapshot_is_growth(const struct snapshot *snapshot);
/* Was the layer followed, as the first or beside it? */
int snapshot_has_layer(const struct snapshot *snapshot, enum event_layer layer);
/*
 * The snapshot with that layer as its first and only one, for whatever takes one; borrows all but
 * itself from the snapshot.
 */
struct snapshot snapshot_of_layer(const struct snapshot *snapshot, enum event_layer layer);

void snapshot_free(struct snapshot *snapshot);           /* NULL is legal */
size_t snapshot_memory(const struct snapshot *snapshot); /* bytes held, once it fits */
/*
 * Gives back what was allocated for it to grow: for one that is kept. Its containers are charged to
 * no account any more.
 */
void snapshot_fit(struct snapshot *snapshot);
/* A deep copy. 0 or -ENOMEM. */
int snapshot_copy(const struct snapshot *snapshot, struct snapshot **out);
/*
 * Events lost for any reason that makes figures wrong: the sum of the counters but
 * LOSS_ALLOC_BYTES, and but those that cost a traceback only (LOSS_NO_THREAD, LOSS_FRAME_FAULT).
 */
uint64_t loss_events(const uint64_t loss[LOSS_COUNT]);
uint64_t snapshot_lost_events(const struct snapshot *snapshot);

#endif
