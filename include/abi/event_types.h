/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The types of the stream's records, and the header that each of them starts with. */
#pragma once

#include <linux/types.h>

enum event_type {
	EVENT_ALLOC = 1,        /* struct event_alloc: a block was allocated */
	EVENT_FREE = 2,         /* struct event_free: a block is about to be freed */
	EVENT_REALLOC = 3,      /* struct event_free: a realloc begins: the address may be reused */
	EVENT_REALLOC_DONE = 4, /* struct event_alloc: replaces the thread's last EVENT_REALLOC */
	EVENT_REALLOC_FAIL = 5, /* struct event_free: the thread's last EVENT_REALLOC lives on */
	EVENT_STACK = 6, /* struct event_stack: the frames of a stack id, sent when first seen */
	EVENT_CODE = 7,  /* struct event_code: a code object, sent when first seen */
	EVENT_CODE_LINES = 8, /* struct event_code_lines: a piece of a code object's line table */
	EVENT_EXIT = 9,       /* struct event_process: the last thread of the process ended */
	EVENT_EXEC = 10,      /* struct event_process: the address space was replaced */
	EVENT_FORK = 11,      /* struct event_process: `other` is the child's tgid */
	EVENT_FINALIZE = 12,  /* struct event_process: the interpreter begins to shut down */
	/*
	 * struct event_alloc: an object is taken from a free list. `address` is the object's,
	 * anywhere within its block, which is now charged to this stack; `bytes` is 0.
	 */
	EVENT_REUSE = 13,
	EVENT_CENSUS = 14,      /* struct event_census: a walk of pymalloc's heap begins */
	EVENT_CENSUS_POOL = 15, /* struct event_census_pool: what it found in one pool */
	EVENT_CENSUS_DONE = 16, /* struct event_census: it is complete, or was abandoned */
	EVENT_MAP = 17,         /* struct event_map: anonymous memory was mapped (mmap, brk) */
	/* struct event_map: a range is about to be unmapped, or a file was mapped over it */
	EVENT_UNMAP = 18,
	EVENT_REMAP = 19,   /* struct event_map: an mremap has moved or resized a range */
	EVENT_PROTECT = 20, /* struct event_map: the protection of a range changed */
	/* struct event_mark: the thread may not have done yet what its last record says */
	EVENT_CENSUS_THREAD = 21,
	/* struct event_appear: a process that may be wanted was forked or has called exec */
	EVENT_APPEAR = 22,
	/* struct event_census_arena: the walk has reported every pool of this arena */
	EVENT_CENSUS_ARENA = 23,
	/* struct event_alloc_weighted: a block that the process has sampled itself */
	EVENT_ALLOC_WEIGHTED = 24,
	/* struct event_unwind_file: a walk needs this file's table. Not in captures */
	EVENT_UNWIND_FILE = 25,
	EVENT_TASK = 26,  /* struct event_task: the thread's next blocks are of this asyncio task */
	EVENT_FAULT = 27, /* struct event_fault: a page fault was handled */

	/*
	 * Perf maps have a stream of their own (bpf/perfmap.bpf.c), which also carries EXIT, EXEC
	 * and FORK.
	 */
	EVENT_MAP_WRITE = 32, /* struct event_map_text: code is about to be added to the map */
	/* struct event_map_text: the named file is about to be appended; it has no address */
	EVENT_MAP_COPY = 33,
	EVENT_MAP_CALL = 34, /* struct event_map_call: another call of the interface */
	EVENT_MAP_JIT = 35,  /* struct event_map_jit: GDB's JIT interface was called */

	EVENT_USER_FIRST = 256,
	EVENT_PROCESS = 256, /* struct event_target: the first record of a traced process */
	EVENT_LOSS = 257,    /* struct event_loss: cumulative counters of the session */
	/* struct event_mark: the process's table was emptied (tracemalloc.clear_traces) */
	EVENT_CLEAR = 259,
	/* struct event_mark: the process's peak was reset (tracemalloc.reset_peak) */
	EVENT_RESET_PEAK = 260,
	EVENT_SYMBOL = 261,      /* struct event_symbol: the symbol of a native frame's address */
	EVENT_MODE_CHANGE = 262, /* struct event_mode_change: the tracing mode has changed */
	/* struct event_mark: the process is of another kind than assumed: its table is dropped */
	EVENT_DISCARD = 263,
	EVENT_RSS = 264, /* struct event_rss: the resident memory of the process */
	/* struct event_census_sizes: the requested sizes that objects in a pool imply */
	EVENT_CENSUS_SIZES = 265,
	/*
	 * struct event_mark: from here on the native layer's blocks are those that the process
	 * samples itself; its native table is emptied
	 */
	EVENT_SELF_SAMPLED = 266,
	EVENT_WINDOW = 270, /* struct event_window: a window of probes begins or ends */
	/* struct event_census_kinds: what a heap walk finds in the blocks of a pool */
	EVENT_CENSUS_KINDS = 271,
	/* struct event_census_large: what is in large blocks that were seen in windows */
	EVENT_CENSUS_LARGE = 280,
	EVENT_THREAD = 281, /* struct event_thread: the name of a thread */
	/* struct event_census_chunks: the blocks of malloc's that are allocated */
	EVENT_CENSUS_CHUNKS = 282,
	EVENT_COST = 290,  /* struct event_cost: what the process has run, and its probes of that */
	EVENT_PAGES = 291, /* struct event_pages: which pages are resident */
	/* struct event_collections: what the process's cyclic collectors have done */
	EVENT_COLLECTIONS = 292,
};

struct event_header {
	__u32 type;
	__u32 size;
	__u64 time_ns;
	__u32 tgid;
	__u32 tid;
};

/* A record of which only the type, the time and the process or thread matter. */
struct event_mark {
	struct event_header header;
};

_Static_assert(sizeof(struct event_header) == 24, "header");
_Static_assert(sizeof(struct event_mark) == 24, "mark");
