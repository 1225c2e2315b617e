/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The event stream: what bpf/ writes into the ring buffer, what a capture file holds and what
 * user/trace/ decodes. One definition for both sides; numbers are only ever appended.
 *
 * Every record starts with struct event_header, is 8-byte aligned, and `size` counts the whole
 * record, header included. Records of one process arrive in an order that respects causality: a
 * block is reported before its owner can use it and released before its address can be handed out
 * again (see ARCHITECTURE.md, "The life of one allocation").
 *
 * Records numbered from EVENT_USER_FIRST are made by the tracer itself, not by BPF; they stand in a
 * capture so that it can be replayed alone.
 *
 * Addresses are of the target's address space; sizes are bytes; times CLOCK_MONOTONIC nanoseconds;
 * tgid and tid are those of the initial PID namespace. The time of an allocation's or a free's
 * record is that of its thread's first such record in the same tick of the kernel's (1 to 10 ms).
 */
#ifndef TRACER_ABI_EVENTS_H
#define TRACER_ABI_EVENTS_H

#include <linux/types.h>

/* the longest traceback that can be asked for */
#define EVENT_MAX_FRAMES 128u
/* bytes kept of a file name or of a qualified name */
#define EVENT_MAX_TEXT 1024u
/* bytes of a line table in one EVENT_CODE_LINES record */
#define EVENT_MAX_LINES     4096u
#define EVENT_MAX_LINES_ALL (64u * EVENT_MAX_LINES) /* longest line table that BPF copies */

enum event_type {
	EVENT_ALLOC = 1,        /* struct event_alloc: a block came to life */
	EVENT_FREE = 2,         /* struct event_free: a block is about to die */
	EVENT_REALLOC = 3,      /* struct event_free: a realloc begins: the address may be reused */
	EVENT_REALLOC_DONE = 4, /* struct event_alloc: replaces the thread's last EVENT_REALLOC */
	EVENT_REALLOC_FAIL = 5, /* struct event_free: the thread's last EVENT_REALLOC lives on */
	/* struct event_stack: the frames behind a stack id, sent at first sight */
	EVENT_STACK = 6,
	EVENT_CODE = 7,       /* struct event_code: a code object, sent at first sight */
	EVENT_CODE_LINES = 8, /* struct event_code_lines: a piece of a code object's line table */
	EVENT_EXIT = 9,       /* struct event_process: the last thread of the process ended */
	EVENT_EXEC = 10,      /* struct event_process: the address space was replaced */
	/* struct event_process: the process forked; `other` is the child's tgid */
	EVENT_FORK = 11,
	EVENT_FINALIZE = 12, /* struct event_process: the interpreter begins to shut down */
	/*
	 * struct event_alloc: a dead object from a free list lives again; address is the object's,
	 * somewhere in its block, whose owner is now this stack; bytes is 0
	 */
	EVENT_REUSE = 13,
	EVENT_CENSUS = 14,      /* struct event_census: a reading of pymalloc's heap begins */
	EVENT_CENSUS_POOL = 15, /* struct event_census_pool: what it found in one pool */
	EVENT_CENSUS_DONE = 16, /* struct event_census: it is complete (or was given up) */
	EVENT_MAP = 17,         /* struct event_map: anonymous memory was mapped (mmap, brk) */
	EVENT_UNMAP =
		/*
		 * struct event_map: a range is about to be unmapped, or was mapped over by a file
		 */
	18,
	EVENT_REMAP = 19,   /* struct event_map: an mremap: what was at the old address */
	EVENT_PROTECT = 20, /* struct event_map: the protection of a range changed */
	/* struct event_mark: what the thread did last, it may not have done yet */
	EVENT_CENSUS_THREAD = 21,
	EVENT_APPEAR =
		/*
		 * struct event_appear: a process that may be wanted: it was forked, or has called
		 * exec
		 */
	22,
	/* struct event_census_arena: a reading has told of all pools in there */
	EVENT_CENSUS_ARENA = 23,

	/*
	 * Of perf maps, in a stream of their own (bpf/perfmap.bpf.c) together with EXIT, EXEC and
	 * FORK.
	 */
	/* struct event_map_text: code and its name are about to be put into the map */
	EVENT_MAP_WRITE = 32,
	/* struct event_map_text: all of the named file is about to be; no address */
	EVENT_MAP_COPY = 33,
	/* struct event_map_call: another function of the interface was called */
	EVENT_MAP_CALL = 34,
	EVENT_MAP_JIT = 35, /* struct event_map_jit: GDB's JIT interface was called */

	EVENT_USER_FIRST = 256,
	/* struct event_target: a process comes under trace; its first record */
	EVENT_PROCESS = 256,
	EVENT_LOSS = 257, /* struct event_loss: cumulative counters, of the whole session */
	/* struct event_mark: the process's table was emptied (tracemalloc.clear_traces) */
	EVENT_CLEAR = 259,
	/* struct event_mark: its peak began anew (tracemalloc.reset_peak) */
	EVENT_RESET_PEAK = 260,
	EVENT_SYMBOL = 261, /* struct event_symbol: what a native frame's address is called */
	EVENT_MODE_CHANGE =
		/* struct event_mode_change: from here on the process is traced in another way */
	262,
	EVENT_DISCARD =
		/*
		 * struct event_mark: the process turned out to be another kind: its table is
		 * dropped
		 */
	263,
	EVENT_RSS = 264, /* struct event_rss: what the process has in memory */
	/* struct event_census_sizes: what objects in a pool say of their sizes */
	EVENT_CENSUS_SIZES = 265,
};

/* Which of the allocator's faces a block came through. */
enum event_api {
	EVENT_API_RAW = 0, /* PyMem_Raw*: the caller may hold no GIL */
	EVENT_API_MEM = 1, /* PyMem_* */
	EVENT_API_OBJ = 2, /* PyObject_*; also PyMem_* where both share one implementation */
	/* PyTraceMalloc_Track/Untrack: an extension module reports for itself */
	EVENT_API_TRACK = 3,
	/* as EVENT_API_OBJ, of a request that pymalloc has passed on to malloc */
	EVENT_API_LARGE = 4,
	EVENT_API_POOL =
		/*
		 * growth mode: a pool of pymalloc's, in use again or new; the address is that of
		 * its first block, as in struct event_census_pool, bytes are the pool's
		 */
	5,
	EVENT_API_NATIVE =
		/* malloc and its kin: a layer below Python's allocators, in a table of its own */
	6,
};

/*
 * Layers that are traced side by side and never added up: what is in one lies, for the most part,
 * in blocks of the next.
 */
enum event_layer {
	EVENT_LAYER_PYTHON = 0, /* Python's allocators: every api but EVENT_API_NATIVE */
	EVENT_LAYER_NATIVE = 1, /* malloc and its kin */
	EVENT_LAYER_MMAP = 2,   /* regions (EVENT_MAP and its kin) */
	EVENT_LAYERS
};
#define EVENT_LAYER_TABLES 2 /* those that are tables of blocks */

/* In the field api of an allocation or a free, beside the face. */
#define EVENT_API_MASK 0xffu
/* the block lies EVENT_HOOKS_BEFORE bytes within the one of the allocator */
#define EVENT_API_HOOKED  0x200u
#define EVENT_API_ROUNDED 0x100u /* bytes is the size class: what was asked for is not known */

/*
 * With CPython's debugging hooks (_PyMem_Debug*) a block has so many bytes before it, and in all so
 * many more, than the program asked for. The records are of what the program asked for and was
 * given.
 */
#define EVENT_HOOKS_BEFORE 16u
#define EVENT_HOOKS_BYTES  24u

struct event_header {
	__u32 type;
	__u32 size;
	__u64 time_ns;
	__u32 tgid;
	__u32 tid;
};

struct event_alloc {
	struct event_header header;
	__u64 address;
	__u64 bytes; /* as requested, not as rounded by the allocator */
	/* names an EVENT_STACK record, possibly of earlier; 0: no Python frame on this thread */
	__u64 stack_id;
	__u32 domain; /* tracemalloc's: 0 for Python's own allocators */
	__u32 api;    /* enum event_api | EVENT_API_ROUNDED | EVENT_API_HOOKED */
};

/* A range of whole pages. stack_id as in struct event_alloc, 0 with EVENT_UNMAP. */
struct event_map {
	struct event_header header;
	__u64 address;
	__u64 bytes;
	__u64 stack_id;
	__u64 old_address, old_bytes; /* EVENT_REMAP */
	__u64 protection;             /* PROT_*; 0: it is only reserved. EVENT_MAP, EVENT_PROTECT */
};

struct event_free {
	struct event_header header;
	__u64 address;
	__u32 domain;
	__u32 api;
};

enum event_frame_kind {
	EVENT_FRAME_PYTHON = 0,
	EVENT_FRAME_NATIVE =
		1, /* code_id is an address: behind the call, so one less is in the calling line */
};

struct event_frame {
	__u64 code_id; /* names an EVENT_CODE record; 0: the frame could not be read */
	/* the current instruction, in bytes from the start of the bytecode; -1: not started */
	__s32 lasti;
	__u32 kind; /* enum event_frame_kind */
};

/*
 * The native frames of a stack come first, the most recent one first; then those of Python, which
 * called into them. The interpreter's own C functions stand between the two: they are left out but
 * for the innermost caller.
 */
/* in total: native frames end early, a frame pointer led nowhere */
#define EVENT_STACK_CUT 0x80000000u

struct event_stack {
	struct event_header header;
	__u64 stack_id;
	__u32 nframe; /* frames that follow, most recent first */
	/*
	 * frames on the stack when this record was made, those beyond nframe included |
	 * EVENT_STACK_CUT
	 */
	__u32 total;
	struct event_frame frames[];
};

/* What the file says of it took too long to be waited for. A later record may tell more. */
#define EVENT_SYMBOL_SLOW 1u

/*
 * Made by the session, from the files that the process has mapped. Of several frames at one address
 * the innermost, which was inlined into the next, comes first. Each is a struct event_symbol_frame
 * with its texts behind it, padded to 8 bytes.
 */
struct event_symbol {
	struct event_header header;
	__u64 address;
	__u32 count; /* of struct event_symbol_frame; 0: it has no name */
	__u32 flags; /* EVENT_SYMBOL_SLOW */
	__u8 data[];
};

struct event_symbol_frame {
	__u32 line;                           /* 0: not known */
	__u16 function_bytes, filename_bytes; /* UTF-8, no NUL; at most EVENT_MAX_TEXT each */
	__u8 data[];
};

/*
 * Sent of processes that the session does not know, for it to decide whether they are to be traced.
 */
struct event_appear {
	struct event_header header;
	__u32 parent; /* tgid */
	/*
	 * 1 << enum event_layer for each that is traced from its first instruction on; 0: none is
	 */
	__u32 layers;
	__u32 ns_pid;  /* its tgid in its innermost PID namespace */
	__u32 space;   /* struct abi_target.space of a program that is traced; else 0 */
	char name[16]; /* its comm, NUL-terminated */
};

/* Parts of a code object that BPF could not copy (page not resident, or too long). */
#define EVENT_MISS_FILENAME 1u
#define EVENT_MISS_QUALNAME 2u
#define EVENT_MISS_LINES    4u
#define EVENT_MISS_ALL      7u

/*
 * Text is copied as CPython stores it: `kind` bytes a character (1: Latin-1, 2: UCS-2, 4: UCS-4),
 * native order. data holds filename_bytes bytes of the file name, then qualname_bytes of the
 * qualified name (before 3.11, the plain name).
 */
struct event_code {
	struct event_header header;
	/* hash of the address and of the parts of the code object that do not change */
	__u64 code_id;
	__u64 address; /* of the PyCodeObject */
	__u32 first_line;
	__u32 missing;     /* EVENT_MISS_* */
	__u32 lines_bytes; /* of the whole line table */
	__u16 filename_kind;
	__u16 qualname_kind;
	__u32 filename_bytes;
	__u32 qualname_bytes;
	__u8 data[];
};

struct event_code_lines {
	struct event_header header;
	__u64 code_id;
	__u32 offset; /* of the first byte of data in the line table */
	__u32 bytes;
	__u8 data[];
};

struct event_process {
	struct event_header header;
	__u32 other; /* EVENT_FORK: the child's tgid */
	__u32 code;  /* EVENT_EXIT: wait status; EVENT_FORK: EVENT_FORK_* */
	/* What follows older captures lack: the record is shorter there. */
	__u32 space; /* EVENT_FORK: struct abi_target.space of the child, if it is traced; else 0 */
	__u32 pad;
};
#define EVENT_PROCESS_MIN 32u /* bytes of the shortest struct event_process */

/*
 * EVENT_FORK: the child has an address space of its own and is under trace from its first
 * instruction. Without it it shares its parent's until it calls exec (vfork), or forks are not
 * followed.
 */
#define EVENT_FORK_TRACED 1u

enum event_mode {
	EVENT_MODE_EXACT = 1, /* allocations and frees */
	/* allocations; which of pymalloc's blocks live, a reading of its heap tells */
	EVENT_MODE_CENSUS = 2,
	EVENT_MODE_GROWTH = 3, /* where the heap grows */
	EVENT_MODE_OFF = 4,    /* nothing: its probes are out; only in struct event_mode_change */
};

/* In the field mode of a process, beside the mode. */
#define EVENT_MODE_MASK   0xffu
#define EVENT_MODE_MAPPED 0x100u /* what it maps is followed (EVENT_MAP and its kin) */
/* growth: blocks of more than EVENT_SMALL_BYTES are traced, one by one */
#define EVENT_MODE_LARGE  0x200u
#define EVENT_MODE_NATIVE 0x400u /* malloc and its kin are traced (EVENT_API_NATIVE) */
/*
 * the mode is that of Python's allocators; without EVENT_MODE_NATIVE and EVENT_MODE_MAPPED it
 * always is
 */
#define EVENT_MODE_PYTHON 0x800u
/*
 * Not every place is probed at which an object begins to live: a block that is taken from a free
 * list stays where it was.
 */
#define EVENT_MODE_NO_REUSE 0x1000u
/* The code of an exported allocator leads to no place that is probed. */
#define EVENT_MODE_NO_ENDS 0x2000u

struct event_target {
	struct event_header header; /* tgid: the process; time_ns: when its tracing began */
	/* PY_VERSION_HEX: 0x030b02f0 is 3.11.2 final; 0: it runs no Python */
	__u32 python_version;
	__u32 nframe;      /* traceback limit */
	__u64 realtime_ns; /* CLOCK_REALTIME at time_ns */
	/* 1: traced from its first instruction, nothing is older than the trace */
	__u32 from_start;
	__u32 mode;    /* enum event_mode | EVENT_MODE_* */
	char name[64]; /* the program's name, NUL-padded; UTF-8 not guaranteed */
	/* What follows older captures lack: the record is shorter there. */
	/* tgid of the process whose live blocks it has inherited by fork; 0: none */
	__u32 parent;
	__u32 ns_pid;       /* in its innermost PID namespace; 0: not known */
	char container[64]; /* its name, or 12 digits of its id; "": in none */
	__u64 sample_bytes; /* a sample of its blocks is traced (abi/sample.h); 0: all of them */
};

/*
 * To or from growth mode the table begins anew, since pools are not blocks; and from census to
 * exact where cost and budget are 0: the heap turned out not to be read, and nobody knows which of
 * the blocks have died. With a greater sample_bytes what is in the table is thinned out: each block
 * stays with the chance that it had been in that sample if it was in this.
 */
struct event_mode_change {
	struct event_header header;
	__u32 mode; /* enum event_mode | EVENT_MODE_* */
	/* of the process's CPU time the probes took before; 0: they took less than allowed */
	__u32 cost_permille;
	__u32 budget_permille; /* they may take that */
	__u32 pad;
	__u64 sample_bytes; /* as in struct event_target */
};

#define EVENT_TARGET_MIN 112u /* bytes of the shortest struct event_target */

#define EVENT_MAX_MAP_NAME 4096u /* bytes kept of a name in a perf map */

/* the name was not resident; it is at name_address, if it is there still */
#define EVENT_MAP_MISSED 1u
#define EVENT_MAP_CUT    2u /* the name is longer */
#define EVENT_MAP_MAPPED 4u /* there is memory at address */

struct event_map_text {
	struct event_header header;
	__u64 address;
	__u64 bytes; /* of code */
	__u64 name_address;
	__u32 name_bytes;
	__u32 flags; /* EVENT_MAP_* */
	__u8 name[]; /* no NUL */
};

struct event_map_call {
	struct event_header header;
	__u32 function; /* enum abi_op: ABI_OP_MAP_INIT, _FINI, _COMPILE, _PERSIST */
	__s32 value;    /* INIT: what it returned; PERSIST: its argument */
};

/* <gdb>/gdb/jit.h: struct jit_descriptor and its relevant entry, as they were at the call. */
struct event_map_jit {
	struct event_header header;
	__u32 action; /* 1: the image was registered; 2: it is about to be unregistered */
	__u32 pad;
	__u64 entry;
	__u64 image;
	__u64 image_bytes;
};

/* Names of the drop counters; one __u64 each in struct event_loss and in the BPF map `loss`. */
enum event_loss_kind {
	LOSS_ALLOC = 0,       /* allocations dropped: ring buffer full */
	LOSS_ALLOC_BYTES = 1, /* their bytes */
	LOSS_FREE = 2,        /* frees dropped: ring buffer full */
	LOSS_REALLOC = 3,     /* any of the three realloc records dropped: ring buffer full */
	/* stack records dropped: ring buffer full (sent again at next sight) */
	LOSS_STACK = 4,
	/* code records dropped: ring buffer full (sent again at next sight) */
	LOSS_CODE = 5,
	LOSS_PROCESS = 6,      /* exit/exec/fork/finalize records dropped: ring buffer full */
	LOSS_THREAD_STATE = 7, /* requests not traced: no memory for the thread's state */
	/* tracebacks empty because no Python thread state was found for the thread */
	LOSS_NO_THREAD = 8,
	LOSS_FRAME_FAULT = 9, /* stack walks cut short: a frame's page was not resident */
	LOSS_RETURN = 10,     /* requests whose return never came */
	LOSS_REUSE = 11,      /* reuses of dead objects dropped: ring buffer full */
	/* any of the four records of mapped memory dropped: ring buffer full */
	LOSS_MAP = 12,
	LOSS_MAP_ENTRY = 14, /* entries of perf maps dropped: ring buffer full, or no memory */
	/* other records of perf maps dropped: ring buffer full, or unreadable */
	LOSS_MAP_CALL = 15,
	LOSS_COUNT = 16, /* room to grow */
};

struct event_loss {
	struct event_header header;
	__u64 counts[LOSS_COUNT];
};

/* Requests of 0 or of more than EVENT_SMALL_BYTES bytes pymalloc passes on to malloc. */
#define EVENT_SMALL_BYTES 512u
/*
 * Its size classes, and addresses of blocks, are multiples of that; a pool's first block lies
 * behind so many bytes.
 */
#define EVENT_BLOCK_STEP        16u
#define EVENT_POOL_HEADER_BYTES 48u

/*
 * A census: EVENT_CENSUS, an EVENT_CENSUS_THREAD for every thread that may be between a record and
 * the deed of which it tells, an EVENT_CENSUS_POOL for every pool in use, EVENT_CENSUS_DONE. The
 * heap changes while it is read: what the events between these records say is newer than what a
 * pool says.
 */
struct event_census {
	struct event_header header;
	/* tells the records of one reading from those of another that begins meanwhile */
	__u64 id;
	__u32 baseline; /* 1: the first one: what no event told of is older than the trace */
	__u32 failed;   /* EVENT_CENSUS_DONE: enum event_census_end */
	/* The rest counts in EVENT_CENSUS_DONE. */
	/* those that pymalloc passed on to malloc; only their number is known */
	__u64 large_blocks;
	__u64 pools_unreadable;
	__u64 elapsed_ns;
	__u64 frozen_ns; /* for how long the target was stopped; 0: it was not */
	/*
	 * What follows older captures lack: the record is shorter there. 0 of readings from
	 * outside.
	 */
	__u64 steps;      /* of BPF's budget for a piece (bpf/heap.h), in all pieces */
	__u64 slowest_ns; /* the piece that took the longest */
	__u32 pieces;
	__u32 arenas; /* read whole */
	/* EVENT_CENSUS_CUT: at most so many more there are, of interpreters that it came to */
	__u32 arenas_unread;
	__u32 pad;
};

#define EVENT_CENSUS_MIN 72u /* bytes of the shortest struct event_census */

/*
 * In the id of a reading made by BPF, as the interpreter shuts down: none from outside comes
 * between.
 */
#define EVENT_CENSUS_INSIDE 1ull

enum event_census_end {
	EVENT_CENSUS_COMPLETE = 0,
	EVENT_CENSUS_GIVEN_UP = 1, /* it says nothing */
	EVENT_CENSUS_PARTIAL =
		/*
		 * there are pools that it did not find: what it does not show may live all the same
		 */
	2,
	EVENT_CENSUS_CUT =
		/*
		 * BPF's steps were used up: what it does not show is dead in the arenas that it
		 * names alone
		 */
	3,
};

#define EVENT_POOL_BLOCKS 1024u /* in a pool at most: 16 KiB of 16-byte blocks */

struct event_census_pool {
	struct event_header header;
	__u64 id;
	__u64 address; /* of its first block */
	/*
	 * of each; 0: the pool could not be read, its blocks are in the 16-byte steps that follow
	 */
	__u32 block_bytes;
	__u32 count;  /* blocks, live or not; at most EVENT_POOL_BLOCKS */
	__u64 live[]; /* a bit for each, in (count + 63) / 64 words */
};

/*
 * Behind the EVENT_CENSUS_POOL of some pools: the sizes that the types of the objects in it say
 * their blocks were asked for with, rounded up to 8 bytes.
 */
struct event_census_sizes {
	struct event_header header;
	__u64 id;
	__u64 address; /* as of the pool */
	__u32 block_bytes;
	__u32 count; /* at most EVENT_POOL_BLOCKS */
	__u16 bytes
		/*
		 * of each block, 0: it has no object, or one that does not say; (count + 3) / 4 * 4
		 * of them
		 */
		[];
};

struct event_census_arena {
	struct event_header header;
	__u64 id;
	__u64 address, bytes;
};

struct event_rss {
	struct event_header header;
	__u64 bytes; /* resident, as /proc/PID/statm has it */
};

/* Nothing but when, and of whom. */
struct event_mark {
	struct event_header header;
};

_Static_assert(sizeof(struct event_header) == 24, "header");
_Static_assert(__builtin_offsetof(struct event_alloc, stack_id) == 40, "alloc.stack_id");
_Static_assert(sizeof(struct event_alloc) == 56, "alloc");
_Static_assert(sizeof(struct event_free) == 40, "free");
_Static_assert(sizeof(struct event_map) == 72, "map");
_Static_assert(sizeof(struct event_frame) == 16, "frame");
_Static_assert(sizeof(struct event_stack) == 40, "stack");
_Static_assert(__builtin_offsetof(struct event_code, first_line) == 40, "code.first_line");
_Static_assert(__builtin_offsetof(struct event_code, data) == 64, "code.data");
_Static_assert(sizeof(struct event_code_lines) == 40, "code_lines");
_Static_assert(__builtin_offsetof(struct event_process, space) == EVENT_PROCESS_MIN,
	       "process.space");
_Static_assert(sizeof(struct event_process) == 40, "process");
_Static_assert(__builtin_offsetof(struct event_target, parent) == EVENT_TARGET_MIN,
	       "target.parent");
_Static_assert(sizeof(struct event_target) == 192, "target");
_Static_assert(sizeof(struct event_mode_change) == 48, "mode_change");
_Static_assert(sizeof(struct event_symbol) == 40, "symbol");
_Static_assert(sizeof(struct event_symbol_frame) == 8, "symbol_frame");
_Static_assert(sizeof(struct event_appear) == 56, "appear");
_Static_assert(sizeof(struct event_map_text) == 56, "map_text");
_Static_assert(sizeof(struct event_map_call) == 32, "map_call");
_Static_assert(sizeof(struct event_map_jit) == 56, "map_jit");
_Static_assert(sizeof(struct event_loss) == 24 + 8 * LOSS_COUNT, "loss");
_Static_assert(sizeof(struct event_mark) == 24, "mark");
_Static_assert(sizeof(struct event_rss) == 32, "rss");
_Static_assert(__builtin_offsetof(struct event_census, steps) == EVENT_CENSUS_MIN, "census.steps");
_Static_assert(sizeof(struct event_census) == 104, "census");
_Static_assert(sizeof(struct event_census_arena) == 48, "census_arena");
_Static_assert(sizeof(struct event_census_pool) == 48, "census_pool");

#endif
