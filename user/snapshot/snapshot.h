/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot: what was live at one moment, like tracemalloc.Snapshot (PEP 454), grouped by equal
 * {traceback, bytes, domain, flags, age}, together with what was not seen. Immutable once built.
 *
 * It covers one process, or several processes of one session. Then {process} also distinguishes
 * traces, and each process has meta data besides that of the whole (merge.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "snapshot/estimate/calibrate.h"
#include "snapshot/stack_ends.h"
#include "util/strings.h"

struct snapshot_frame {
	uint32_t filename; /* ids in strings */
	uint32_t function;
	uint32_t line; /* 0: unknown */
	/* of C, C++ or Rust: SNAPSHOT_NATIVE, and the index + 1 of its binary; 0: of Python */
	uint16_t native;
	uint16_t inlined; /* native code, inlined into the next frame */
};

#define SNAPSHOT_NATIVE       1u /* of an unknown binary, or of none: [vdso], generated code */
#define SNAPSHOT_BINARIES_MAX (UINT16_MAX - SNAPSHOT_NATIVE) /* frames of others: SNAPSHOT_NATIVE */

/*
 * A segment of an executable or shared library that native frames are in. Addresses are the file's
 * own (vaddr), not those of a process: they are the same wherever the file is loaded.
 */
struct snapshot_binary {
	uint32_t path, build_id; /* ids in strings; the build ID in hex, "" if it has none */
	uint64_t start, limit;   /* the segment in whole pages; start is below limit */
	uint64_t offset;         /* of start in the file */
};

#define SNAPSHOT_TOTAL_UNKNOWN UINT32_MAX /* CPython 3.8's tracemalloc files do not have it */

struct snapshot_traceback {
	uint32_t first;  /* index of its first (most recent) frame in frames */
	uint32_t nframe; /* at least 1 */
	/*
	 * total_nframe: depth of the stack, including truncated frames; or SNAPSHOT_TOTAL_UNKNOWN
	 */
	uint32_t total;
};

/* Bits of snapshot_trace.flags. */
/* bytes is the size class; the requested size is unknown, up to 15 bytes less */
#define SNAPSHOT_ROUNDED   1u
#define SNAPSHOT_INHERITED 2u /* inherited from the parent by fork */
/* with EXTRA_FREED: enum snapshot_lifetime, in bits of its own */
#define SNAPSHOT_LIFETIME_SHIFT 4u

struct snapshot_trace {
	uint32_t traceback;
	uint32_t domain;
	uint32_t process; /* index in processes; 0 if there is only one process */
	uint32_t flags : 8;
	/* count is estimated from windows: 1 + its index in estimates; otherwise 0 */
	uint32_t estimate : 24;
	union {
		uint32_t thread; /* with EXTRA_THREAD: its number */
		/* of all other layers, with meta.ages: in ms (snapshot/ages.h); else 0 */
		uint32_t age;
	};
	/* the same: the asyncio task that it ran, its name in strings; 0: none, or not known */
	uint32_t task;
	uint64_t bytes; /* of each block */
	/* number of equal blocks (tracemalloc's files list them individually) */
	uint64_t count;
	/*
	 * The bytes that these blocks stand for, as their process says, which has sampled them
	 * itself: at least bytes * count. 0: it has not.
	 */
	uint64_t weight;
};
#define SNAPSHOT_ESTIMATES_MAX ((1u << 24) - 1)

/* The name of a thread; numbers are those of the initial PID namespace. */
struct snapshot_thread {
	uint32_t tid;
	char name[EVENT_THREAD_NAME]; /* not empty, NUL-terminated */
};

/*
 * The deviations of an estimated count (snapshot/estimate/calibrate.h), finite. They are kept to an
 * eighth of a block: equal ones are stored once.
 */
#define ESTIMATE_STEPS 8
struct snapshot_estimate {
	float deviations[CALIBRATE_DEVIATIONS];
};

/*
 * The mode of a snapshot taken by Python's own tracemalloc: only its traces and the traceback limit
 * are known.
 */
#define SNAPSHOT_TRACEMALLOC "tracemalloc"
/* Mode or moment of several processes that differ. */
#define SNAPSHOT_MIXED "mixed"

/* More processes than a session can have (PIDs end at 2^22); limits untrusted files. */
#define SNAPSHOT_PROCESSES_MAX (1u << 18)

/*
 * The last heap walk compared with the table. live + large equals sys.getallocatedblocks(); live
 * equals new + old. Sizes are those of pymalloc's size classes. In growth mode blocks are whole
 * pools, and sizes those of pools.
 */
struct snapshot_coverage {
	uint64_t time_ns;                 /* of the walk, CLOCK_MONOTONIC */
	uint64_t live_blocks, live_bytes; /* in pymalloc's pools */
	uint64_t new_blocks, new_bytes;   /* of the live ones: allocated since the trace began */
	uint64_t seen_blocks, seen_bytes; /* of the new ones: in the table */
	uint64_t old_blocks, old_bytes;   /* of the live ones: older than the trace */
	/* passed on to malloc: only their number is known */
	uint64_t large_blocks;
	uint64_t large_new;  /* increase since the trace began; 0 if there is none */
	uint64_t large_seen; /* large blocks in the table */
	/*
	 * A sample of the new blocks: typed: the object's type gives a size; mistyped: the table
	 * has another size.
	 */
	uint64_t typed_blocks, mistyped_blocks;
	uint64_t pools_unreadable; /* their blocks are kept as they are in the table */
	uint64_t dead_blocks; /* removed from the table, because they are no longer on the heap */
	/* duration of the walk; how long the process was stopped for it */
	uint64_t elapsed_ns, frozen_ns;
};

/*
 * The kernel's own heap walk when the process ends (bpf/python/heap.h), in pieces of a bounded
 * number of steps; pieces 0: there was none.
 */
struct snapshot_ending {
	uint64_t pieces, steps;
	uint64_t slowest_ns; /* duration of the slowest piece */
	uint64_t arenas;     /* read completely */
	/*
	 * upper bound of the arenas that were not read: blocks that died there since the walk
	 * before count as live
	 */
	uint64_t arenas_unread;
	/*
	 * enum event_census_end; EVENT_CENSUS_CUT: the step limit was reached before the end of the
	 * heap
	 */
	uint64_t failed;
};

/* Figures of struct snapshot_meta that exist per layer. */
struct snapshot_table {
	uint64_t peak_bytes, frees_unknown, replaced;
};

/*
 * Of EVENT_LAYER_PAGES: resident bytes, by the last walk of pagemap and the faults since. The lines
 * have those that are not of before; file, huge, again are parts of them.
 */
struct snapshot_pages {
	uint64_t resident;
	uint64_t before, before_first; /* resident when the trace began: now still; then */
	uint64_t unfaulted;            /* became so without a fault; 0 in a sample: not known */
	uint64_t file;                 /* of files, and shared memory */
	uint64_t huge;                 /* brought as huge pages */
	/* known as resident when their last fault was handled: copied on write after a fork, or
	 * released and touched again between two walks */
	uint64_t again;
	uint64_t unread; /* in maps that are too large to be read */
};

/* A change of the tracing mode. */
/* How blocks above EVENT_SMALL_BYTES are traced in windows mode. */
enum snapshot_large {
	SNAPSHOT_LARGE_ALWAYS, /* all the time; in other modes, too */
	SNAPSHOT_LARGE_WINDOWS,
	SNAPSHOT_LARGE_NONE,
	SNAPSHOT_LARGE_NATIVE /* windows of the native layer: blocks of all sizes */
};

struct snapshot_change {
	uint64_t since_ns; /* since its tracing began */
	uint64_t sample_bytes;
	uint32_t mode; /* enum event_mode */
	/*
	 * As in struct event_mode_change. Both are 0 for the first mode, and for a change because
	 * the heap cannot be read.
	 */
	uint32_t cost_permille, budget_permille;
	uint32_t large; /* enum snapshot_large */
};

/*
 * Windows of probes, of the first layer (snapshot/estimate/calibrate.h). count 0: probes were on
 * all the time. Several processes: the sums, and the largest count.
 */
struct snapshot_windows {
	uint64_t count;
	uint64_t on_ns, span_ns;              /* of the time traced: in windows; all of it */
	uint64_t new_blocks, seen_blocks;     /* new and alive: all; those seen in windows */
	uint64_t unseen_blocks, unseen_bytes; /* new and alive, of a kind that none has shown */
	uint64_t old_unseen_blocks, old_unseen_bytes; /* the same of older blocks */
	uint64_t large; /* 1: they are windows of large blocks, too, whose figures are estimates */
	/* in lines, by who took their pools when no window was open */
	uint64_t pool_blocks, pool_bytes;
	/* malloc's blocks of more than EVENT_SMALL_BYTES, anybody's; 0: its heap was not walked */
	uint64_t malloc_blocks;
	/*
	 * What was allocated, alive or not (snapshot/estimate/allocated.h): the estimate and its
	 * 95 % interval; high 0: not known. All 0: nothing is known, or of several processes.
	 */
	uint64_t allocated_bytes, allocated_low, allocated_high;
	uint64_t allocated_by_work; /* 1: else by time, a lower bound */
};

/* Why the most recent frame of a block is <unknown>. */
enum snapshot_unknown {
	/* its thread had no Python frame: interpreter startup, or a C thread */
	UNKNOWN_NO_FRAME,
	UNKNOWN_NO_STACK,  /* the record of its stack was lost */
	UNKNOWN_NO_MEMORY, /* there was no memory for its stack */
	/* the frame could not be read, or the record of its code object was lost */
	UNKNOWN_NO_CODE,
	UNKNOWN_NO_NAME,  /* the code object's file name could not be read */
	UNKNOWN_NO_FILE,  /* a native frame whose address is all that is known */
	UNKNOWN_NO_FAULT, /* a page that has become resident without a fault */
	SNAPSHOT_UNKNOWNS
};

#define SNAPSHOT_CHANGES 16u

/* What tables tell of tracebacks besides the blocks that are alive. */
enum snapshot_extras {
	EXTRA_ALLOCATED, /* what was allocated since the trace began, alive or not */
	EXTRA_FREED,     /* the part of it that was freed again, by lifetime */
	EXTRA_PEAK,      /* what was alive when most bytes were */
	EXTRA_THREAD,    /* what is alive, by the thread that has allocated it */
	EXTRAS
};

/* Each a set of 1 << enum event_layer. */
struct snapshot_extra {
	uint32_t known; /* snapshot.layers[SNAPSHOT_EXTRA()] holds all of it, but for: */
	uint32_t gaps;  /* some of it is not known, in one of the processes */
};

/*
 * Lifetimes of freed blocks: before their thread's next allocation, after that but before the one
 * that follows, or so long, in decades. Times are known to 1 to 10 ms.
 */
enum snapshot_lifetime {
	LIFETIME_TEMPORARY,
	LIFETIME_ONE_OTHER,
	LIFETIME_10_MS, /* below */
	LIFETIME_100_MS,
	LIFETIME_1_S,
	LIFETIME_10_S,
	LIFETIME_100_S,
	LIFETIME_1000_S,
	LIFETIME_10000_S,
	LIFETIME_LONGER,
	/* gone at the next heap walk: in census mode the only one, and of these blocks alone */
	LIFETIME_WALK,
	LIFETIMES
};

/* What cyclic collectors have done since their interpreters began: struct event_collections. */
struct snapshot_collections {
	int known;
	uint64_t full, all, collected;
};

struct snapshot_meta {
	uint32_t pid;       /* 0: several processes */
	uint32_t ns_pid;    /* in its innermost PID namespace; 0: unknown */
	uint32_t parent;    /* the process whose live blocks it inherited by fork; 0: none */
	char container[65]; /* "": none, or unknown */
	/* What the process says that it is (proc/process_service.h); "": unknown. */
	char service[EVENT_SERVICE_TEXT], version[EVENT_SERVICE_TEXT];
	/* as in struct event_target; "" or 0: unknown */
	char boot[EVENT_BOOT_TEXT];
	uint64_t start_ticks;
	int has_exited; /* then wait_status, as in wait(2), and oom_killed are valid */
	uint32_t wait_status;
	int oom_killed;          /* the kernel's OOM killer had chosen it */
	uint32_t python_version; /* PY_VERSION_HEX, 0: unknown */
	uint32_t traceback_limit;
	char name[65];
	enum event_layer layer; /* of traces */
	char mode[16];          /* "exact", …; SNAPSHOT_TRACEMALLOC */
	/* "running", "finalizing", "exited", "execed": the process's state */
	char moment[32];
	uint64_t taken_realtime_ns;
	uint64_t duration_ns; /* how long it was traced */
	int from_start;       /* 1: no block is older than the trace */
	/* 0: unknown; in census mode the highest value after a heap walk */
	uint64_t peak_bytes;
	uint64_t loss[LOSS_COUNT];
	uint64_t frees_unknown, replaced, stacks_unknown, frames_unknown, records_malformed;
	uint64_t frames_unnamed; /* native frames whose address is all that is known */
	/* native frames whose file was too slow to read to the end */
	uint64_t frames_slow;
	struct stack_ends stack_ends; /* of tracebacks that begin with native frames */
	/* Sampling mean (snapshot/estimate.h); 0: all blocks. Several processes: the maximum. */
	uint64_t sample_bytes;
	struct snapshot_windows windows;
	/*
	 * The native layer's blocks are those that the process samples itself, since then (in its
	 * tracing; several processes: the latest).
	 */
	int self_sampled;
	uint64_t self_sampled_ns;
	/* Blocks in traces (the first layer only) whose most recent frame is <unknown>. */
	struct snapshot_unknowns {
		uint64_t blocks, bytes;
	} unknown[SNAPSHOT_UNKNOWNS];
	uint64_t rounded_blocks; /* blocks whose size is the size class, not the requested size */
	/* Census mode: time since the last heap walk; blocks that died since then count as live. */
	uint64_t unread_ns;
	/* 1 << enum event_layer for each layer traced besides the first (snapshot.layers) */
	uint32_t layers;
	struct snapshot_table native; /* the native layer's, if it is not the first */
	/* tracebacks start at the application's most recent frame (snapshot_select()) */
	int of_app;
	int large_skipped; /* growth mode: large blocks were not traced individually */
	int ends_unseen;   /* allocations by an exported allocator may be missing */
	/* objects from free lists may be charged to the first allocation of their block */
	int reuse_unseen;
	uint32_t pool_bytes; /* size of a pymalloc pool; 0: unknown */
	/* Resident set, and its age at this moment; 0: unknown. Several processes: the sum. */
	uint64_t rss_bytes, rss_age_ns;
	/*
	 * CPU time since the trace began, how long threads were ready to run besides, and what of
	 * the CPU time the probes took, an estimate; all 0: unknown. Several processes: the sums of
	 * those where it is known.
	 */
	uint64_t cpu_ns, wait_ns, probes_ns;
	uint32_t budget_permille; /* of it that they may take; 0: no limit, or unknown */
	/*
	 * How many times the tables were emptied, by a user or by a change of mode: what was alive
	 * before is older than the trace
	 */
	uint32_t emptied;
	struct snapshot_collections collections; /* several processes: the sum, if all are known */
	struct snapshot_pages pages;
	uint64_t regions_dropped; /* changes of mapped memory that were dropped */
	/* Dropped for lack of memory (--budget), as in struct trace_counters. */
	uint64_t blocks_dropped, bytes_dropped;
	uint64_t stacks_dropped, codes_dropped, symbols_dropped, walks_dropped;
	/*
	 * The tracing modes, if the mode changed: the first one and the most recent ones. mode is
	 * the last one.
	 */
	struct snapshot_change changes[SNAPSHOT_CHANGES];
	uint32_t change_count;    /* 0: the mode did not change */
	uint32_t changes_dropped; /* between the first and the second */
	int coverage_known;
	struct snapshot_coverage coverage;
	struct snapshot_ending ending;
	struct snapshot_extra extra[EXTRAS];
	/* after the begin of its tracing: when a table was at its peak. Several processes: 0 */
	uint64_t peak_after_ns[EVENT_LAYER_TABLES];
	/*
	 * By table: the thread that has allocated all that is alive, so that EXTRA_THREAD does not
	 * list it; 0: there are several, or it is not known.
	 */
	uint32_t sole_thread[EVENT_LAYER_TABLES];
	char sole_thread_name[EVENT_LAYER_TABLES][EVENT_THREAD_NAME]; /* "": not known */
	int tasks; /* EXTRA_THREAD tells tasks, too, in each of the processes */
	/* and they are values: "context NAME", "local FUNCTION:NAME"; "": asyncio's tasks */
	char label[EVENT_LABEL_TEXT];
	int labels_hashed; /* hashes of the names and values by a key that was not kept */
	int at_peak;       /* traces are those of EXTRA_PEAK (snapshot_at_peak()); 2: estimates */
	uint64_t allocated_ns; /* the time over which EXTRA_ALLOCATED and EXTRA_FREED count */
	/* How old blocks are is known, but for mapped memory, to that error (snapshot/ages.h). */
	int ages;
	uint64_t ages_error_ns;
	int of_ages; /* only the blocks of some ages (ages_keep()) */
};

/*
 * Of snapshot.layers: blocks older than the trace, by donor (snapshot/estimate/calibrate.h).
 * They are not a layer that was traced, and meta.layers does not name them.
 */
#define SNAPSHOT_OLDER EVENT_LAYERS
/*
 * And enum snapshot_extras of a table, where meta.beside says that it is known. Only the sums of a
 * traceback and domain are known: its blocks are listed with their mean size, in two traces if that
 * is no whole number. With sampling the counts are estimates already, and are not scaled.
 */
#define SNAPSHOT_EXTRA_FIRST        (EVENT_LAYERS + 1)
#define SNAPSHOT_EXTRA(what, layer) (SNAPSHOT_EXTRA_FIRST + (what)*EVENT_LAYER_TABLES + (layer))
#define SNAPSHOT_LAYERS             SNAPSHOT_EXTRA(EXTRAS, 0)

struct snapshot {
	struct snapshot_meta meta;
	struct strings *strings; /* owned */
	struct snapshot_frame *frames;
	size_t frame_count;
	struct snapshot_binary *binaries;
	size_t binary_count;
	struct snapshot_traceback *tracebacks;
	size_t traceback_count;
	struct snapshot_trace *traces; /* sorted by process */
	size_t trace_count;
	struct snapshot_estimate *estimates; /* of traces of all layers */
	size_t estimate_count;
	struct snapshot_thread *threads; /* those whose names are known */
	size_t thread_count;
	/*
	 * Layers besides the first, by enum event_layer. In mapped memory, bytes is the size of
	 * each range mapped since the trace began. Memory of one layer lies mostly inside blocks of
	 * the next, so layers are never added up.
	 */
	struct snapshot_layer {
		struct snapshot_trace *traces;
		size_t trace_count;
	} layers[SNAPSHOT_LAYERS];
	/*
	 * Meta data of each process if there are several. process_count is 0 or at least 2; meta is
	 * then their sum. A process that calls exec counts as two: the program before and the one
	 * after.
	 */
	struct snapshot_meta *processes;
	size_t process_count;
};

/* The name of an enum event_mode, or "unknown". Static. */
const char *snapshot_mode_name(uint32_t mode);
/* What follows the mode's name: "", " of large blocks, too" or " without large blocks". Static. */
const char *snapshot_large_name(uint32_t large);
/* "python", "native", "mmap" or "pages". The inverse returns -1 for other names. */
const char *event_layer_name(enum event_layer layer);
int event_layer_find(const char *name);

/*
 * The number of processes, at least 1, and the meta data of one of them: that of the snapshot if
 * there is only one.
 */
size_t snapshot_process_count(const struct snapshot *snapshot);
const struct snapshot_meta *snapshot_process(const struct snapshot *snapshot, size_t index);
/* Are there blocks that stand for others? */
static inline bool snapshot_is_sample(const struct snapshot_meta *meta)
{
	return meta->sample_bytes || meta->self_sampled;
}
/* Are its figures estimates, from a sample or from windows? */
static inline bool snapshot_is_estimated(const struct snapshot_meta *meta)
{
	return snapshot_is_sample(meta) || meta->windows.count;
}

/* The sampling mean that applies to a trace without a weight; 0: all blocks. */
uint64_t snapshot_sample_bytes(const struct snapshot *snapshot, const struct snapshot_trace *trace);
/*
 * One process as a snapshot of its own, which borrows everything but the structure itself. *first
 * is 0 for process 0 and is advanced for the next process. A snapshot of one process has that one.
 */
struct snapshot snapshot_of_process(const struct snapshot *snapshot, size_t index, size_t *first);

/* Zero-initialise. */
struct snapshot_cursor {
	size_t layer, trace;
};
/*
 * The next trace of what each process holds in its own first layer, which may differ between
 * processes (a Python process and a C program). Borrowed; NULL: end.
 */
const struct snapshot_trace *snapshot_own_next(const struct snapshot *snapshot,
					       struct snapshot_cursor *cursor);

/* Was one of the processes forked by another traced process? */
bool snapshot_has_children(const struct snapshot *snapshot);
/*
 * Is the heap's state older than the snapshot: for an ended process, was there no walk at its end;
 * for a running one, no recent walk? meta.unread_ns is the difference, and coverage_known says
 * whether there was any walk.
 */
bool snapshot_is_unread(const struct snapshot_meta *meta);
/* The binary of a native frame; NULL: it is not known, or there is none. */
const struct snapshot_binary *snapshot_binary(const struct snapshot *snapshot,
					      const struct snapshot_frame *frame);
/* Is one of its frames native code? */
bool snapshot_has_native_frames(const struct snapshot *snapshot);
/* Are pools counted instead of blocks? */
bool snapshot_is_growth(const struct snapshot *snapshot);
/* Is of its freed blocks only known which did not live to the next heap walk (LIFETIME_WALK)? */
int snapshot_frees_by_walk(const struct snapshot *snapshot);
/* Has struct snapshot.layers this one beside the first, maybe empty? which: its index. */
bool snapshot_has_extra(const struct snapshot_meta *meta, uint32_t which);
/* Is it known, of the first layer and of all processes? */
int snapshot_knows(const struct snapshot *snapshot, enum snapshot_extras what);
/* "temporary", "below 10 ms", … Static. */
const char *snapshot_lifetime_name(enum snapshot_lifetime lifetime);
/* Was the layer traced, first or not? */
bool snapshot_has_layer(const struct snapshot *snapshot, enum event_layer layer);
/*
 * The snapshot with that layer as its first and only one; borrows everything but the structure
 * itself.
 */
struct snapshot snapshot_of_layer(const struct snapshot *snapshot, enum event_layer layer);
/*
 * The first layer at its peak, as a snapshot of its own, which borrows everything but the structure
 * itself. snapshot_knows(EXTRA_PEAK).
 */
struct snapshot snapshot_at_peak(const struct snapshot *snapshot);
/* The same with the blocks older than the trace, by donor. */
struct snapshot snapshot_of_older(const struct snapshot *snapshot);

void snapshot_free(struct snapshot *snapshot);           /* NULL is legal */
size_t snapshot_memory(const struct snapshot *snapshot); /* bytes held, after snapshot_fit() */
/*
 * Frees spare capacity, for snapshots that are kept. Its containers are then no longer charged to
 * an account.
 */
void snapshot_fit(struct snapshot *snapshot);
/* A deep copy. 0 or -ENOMEM. */
int snapshot_copy(const struct snapshot *snapshot, struct snapshot **out);
/*
 * Number of lost events that make figures wrong: the sum of all counters except LOSS_ALLOC_BYTES
 * and those that only cost a traceback (LOSS_NO_THREAD, LOSS_FRAME_FAULT).
 */
uint64_t loss_events(const uint64_t loss[LOSS_COUNT]);
uint64_t snapshot_lost_events(const struct snapshot *snapshot);
