/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a traced process besides its tables: its metadata, totals and counters. */
#pragma once

#include <stdint.h>

#include "snapshot/snapshot.h"
#include "trace/blocks/blocks.h"

/* One (file, line) of a traceback. function is the qualified name (before 3.11 the name). */
struct trace_frame {
	uint32_t filename; /* id in trace_strings(); "<unknown>" if it could not be read */
	uint32_t function;
	uint32_t line;    /* 0: unknown */
	uint16_t native;  /* as in struct snapshot_frame; the binary is the process's */
	uint16_t inlined; /* native code, inlined into the next frame */
};

struct trace_counters {
	uint64_t events, reuses;
	uint64_t stacks_unknown; /* allocations whose stack record is missing */
	/* of the last snapshot: frames without file name or line table */
	uint64_t frames_unknown;
	uint64_t frames_unnamed; /* native frames without a name */
	uint64_t frames_slow;    /* native frames whose file is too slow to read */
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
	char service[EVENT_SERVICE_TEXT], version[EVENT_SERVICE_TEXT];
	char boot[EVENT_BOOT_TEXT]; /* as in struct event_target */
	uint64_t start_ticks;
	/* no memory to copy the parent's tables (trace_budget()) */
	int not_inherited;
	uint32_t python_version; /* PY_VERSION_HEX */
	uint32_t nframe;         /* traceback limit */
	uint32_t mode;           /* enum event_mode: what Python's table holds */
	uint32_t layers;         /* 1 << enum event_layer for each traced layer */
	uint32_t pool_bytes;     /* size of a pymalloc pool; 0: unknown */
	/* sampling mean (snapshot/estimate.h); 0: every block is in the table */
	uint64_t sample_bytes;
	/* EVENT_SELF_SAMPLED, and when, since start_ns */
	int self_sampled;
	uint64_t self_sampled_ns;
	int large_skipped;            /* large blocks are not traced individually */
	int large_windowed;           /* EVENT_MODE_LARGE_WINDOWS */
	int reuse_unseen;             /* EVENT_MODE_NO_REUSE */
	int ends_unseen;              /* EVENT_MODE_NO_ENDS */
	int tasks;                    /* EVENT_MODE_TASKS */
	int labels_hashed;            /* EVENT_MODE_LABELS_HASHED */
	int threads;                  /* EVENT_MODE_THREADS */
	char label[EVENT_LABEL_TEXT]; /* as in struct event_target */
	int is_mimalloc;              /* EVENT_MODE_MIMALLOC */
	/*
	 * It has used pymalloc's pools, as blocks or heap walks show. If not (PYTHONMALLOC=malloc),
	 * malloc serves all blocks, and each free is seen in census mode, too
	 */
	int pooled;
	int from_start;
	int off; /* its probes are removed */
	/* See struct snapshot_meta; room for SNAPSHOT_CHANGES. NULL: its mode has never changed. */
	struct snapshot_change *changes;
	size_t changes_capacity;
	uint32_t change_count, changes_dropped;
	char name[65];
	uint64_t start_ns, end_ns; /* monotonic; end_ns: time of the last record */
	uint64_t start_realtime_ns;
	uint64_t age_ns;                     /* of the process at start_ns; 0: not known */
	uint64_t rss_bytes, rss_ns;          /* resident set and when it was read; 0: never */
	uint64_t cpu_ns, wait_ns, probes_ns; /* as in struct event_cost, */
	uint64_t cost_ns;                    /* at that time; 0: never */
	uint32_t budget_permille;            /* as in struct event_target */
	uint64_t walked_cpu_ns;              /* cpu_ns as of the last heap walk, or before */
	uint32_t emptied;                    /* how many times its tables were emptied */
	enum trace_end end;
	uint32_t exit_code; /* wait status; valid for TRACE_EXITED */
	int oom_killed;     /* the same */
	struct snapshot_collections collections;
	struct trace_table tables[EVENT_LAYER_TABLES];
	uint64_t large_blocks;   /* in the table, with struct block.large */
	uint64_t rounded_blocks; /* in the table, with struct block.rounded */
	struct trace_counters counters;
	/* from the last heap walk; time_ns 0: none yet */
	struct snapshot_coverage coverage;
	struct snapshot_ending ending;
};

/*
 * The layer that reports show first: Python's if traced, otherwise the native one, otherwise mapped
 * memory.
 */
enum event_layer trace_first_layer(const struct trace_process *process);
