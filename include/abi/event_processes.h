/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records of processes: how they are traced, their forks, execs and exits, and lost records. */
#pragma once

#include "abi/event_types.h"

/* Sent for a process that the session does not know. The session decides whether to trace it. */
struct event_appear {
	struct event_header header;
	__u32 parent;   /* tgid */
	__u32 layers;   /* 1 << enum event_layer for each traced from the first instruction on */
	__u32 ns_pid;   /* its tgid in its innermost PID namespace */
	__u32 space_id; /* abi_target.space_id of a program that is traced already; else 0 */
	char name[16];  /* its comm, NUL-terminated */
};

struct event_process {
	struct event_header header;
	__u32 other; /* EVENT_FORK: the child's tgid */
	__u32 code;  /* EVENT_EXIT: wait status | EVENT_EXIT_OOM; EVENT_FORK: EVENT_FORK_* */
	/* Older captures lack the fields from here on: their record is shorter. */
	__u32 space_id; /* EVENT_FORK: the child's abi_target.space_id, if it is traced; else 0 */
	__u32 pad;
};
#define EVENT_PROCESS_MIN 32u /* bytes of the shortest struct event_process */

/*
 * EVENT_FORK: the child has an address space of its own and is under trace from its first
 * instruction. Without this flag, the child shares its parent's address space until it calls exec
 * (vfork), or forks are not followed.
 */
#define EVENT_FORK_TRACED 1u
/* The kernel's OOM killer had chosen the process. */
#define EVENT_EXIT_OOM 0x10000u

enum event_mode {
	EVENT_MODE_EXACT = 1,  /* allocations and frees */
	EVENT_MODE_CENSUS = 2, /* allocations; a heap walk finds which of pymalloc's blocks live */
	EVENT_MODE_GROWTH = 3, /* where the heap grows */
	/* nothing, the probes are removed; only in struct event_mode_change */
	EVENT_MODE_OFF = 4,
	/* census in windows of time; between them pools' blocks are not traced (EVENT_WINDOW) */
	EVENT_MODE_WINDOWS = 5,
};

/* The field `mode` of a process: enum event_mode, and flags. */
#define EVENT_MODE_MASK   0xffu
#define EVENT_MODE_MAPPED 0x100u /* its mapped memory is traced (EVENT_MAP and its kin) */
/* growth, windows: blocks above EVENT_SMALL_BYTES are traced, each */
#define EVENT_MODE_LARGE  0x200u
#define EVENT_MODE_NATIVE 0x400u /* malloc and its kin are traced (EVENT_API_NATIVE) */
/*
 * Python's allocators are traced, in this mode. Implied where neither EVENT_MODE_NATIVE nor
 * EVENT_MODE_MAPPED is set.
 */
#define EVENT_MODE_PYTHON 0x800u
/*
 * Some sites where objects begin to live have no probe: a block that is taken from a free list
 * may stay charged to its old stack.
 */
#define EVENT_MODE_NO_REUSE 0x1000u
/* An exported allocator has code that leads to no probed site. */
#define EVENT_MODE_NO_ENDS 0x2000u
/*
 * With EVENT_MODE_LARGE, windows: Python's blocks that malloc serves are traced in windows only,
 * like those of pools.
 */
#define EVENT_MODE_LARGE_WINDOWS 0x10000u

/* EVENT_TASK tells which asyncio task has allocated a block. */
#define EVENT_MODE_TASKS 0x20000u
/* With EVENT_MODE_TASKS: it does not in this process, whose CPython does not tell. */
#define EVENT_MODE_TASKS_UNREPORTED 0x40000u
/* Its pools are pieces of mimalloc's pages: a build without the GIL. */
#define EVENT_MODE_MIMALLOC 0x80000u
#define EVENT_MODE_PAGES    0x100000u /* its page faults are traced, and nothing else */
/* With EVENT_MODE_TASKS: names and values are EVENT_TASK_HASHED. */
#define EVENT_MODE_LABELS_HASHED 0x800000u
/* Windows: its blocks are estimated by thread, too. With EVENT_MODE_TASKS by task, in its place. */
#define EVENT_MODE_THREADS 0x200000u

#define EVENT_SERVICE_TEXT 128
#define EVENT_BOOT_TEXT    40

#define EVENT_LABEL_TEXT 136u
struct event_target {
	struct event_header header; /* tgid: the process; time_ns: when its tracing began */
	__u32 python_version;       /* PY_VERSION_HEX: 0x030b02f0 is 3.11.2 final; 0: no Python */
	__u32 nframe;               /* traceback limit */
	__u64 realtime_ns;          /* CLOCK_REALTIME at time_ns */
	__u32 from_start; /* 1: traced from its first instruction: no block predates the trace */
	__u32 mode;       /* enum event_mode | EVENT_MODE_* */
	char name[64];    /* the program's name, NUL-padded; UTF-8 not guaranteed */
	/* Older captures lack the fields from here on: their record is shorter. */
	__u32 parent; /* tgid of the process whose live blocks it inherited by fork; 0: none */
	__u32 ns_pid; /* in its innermost PID namespace; 0: not known */
	char container[64];    /* its name, or 12 digits of its id; "": in none */
	__u64 sample_bytes;    /* a sample of its blocks is traced (abi/sample.h); 0: all of them */
	__u64 age_ns;          /* since the process began, when its tracing did; 0: not known */
	__u32 budget_permille; /* share of its CPU time that the probes may take; 0: no limit */
	__u32 pad;
	char service[EVENT_SERVICE_TEXT]; /* its name; "": not known; NUL-terminated */
	char version[EVENT_SERVICE_TEXT]; /* of the service */
	/* With the tgid they tell which process it is, of all of all machines. */
	char boot[EVENT_BOOT_TEXT]; /* the machine's boot ID; "": not known; NUL-terminated */
	__u64 start_ticks;          /* when it began, in clock ticks since the boot; 0: not known */
	/* EVENT_MODE_TASKS: "context NAME", "local FUNCTION:NAME"; "": the asyncio task */
	char label[EVENT_LABEL_TEXT];
};

#define EVENT_TARGET_MIN 112u /* bytes of the shortest struct event_target */

/*
 * The table is emptied on a change to or from growth mode, since pools are not blocks. It is also
 * emptied on a change from census to exact with cost and budget 0: the heap proved unreadable, and
 * which blocks were freed is unknown. A greater sample_bytes thins the table out: each block stays
 * with the probability that it would be in the new sample, given that it is in the old one.
 */
struct event_mode_change {
	struct event_header header;
	__u32 mode; /* enum event_mode | EVENT_MODE_* */
	/* share of the process's CPU time that the probes took before; 0: within the budget */
	__u32 cost_permille;
	__u32 budget_permille; /* the share that they may take */
	__u32 pad;
	__u64 sample_bytes; /* as in struct event_target */
};

struct event_rss {
	struct event_header header;
	__u64 bytes; /* resident, as /proc/PID/statm has it */
};

/* Since the process came under trace. */
#define EVENT_COST_UNKNOWN (~0ull)
struct event_cost {
	struct event_header header;
	__u64 cpu_ns;    /* its CPU time */
	__u64 wait_ns;   /* its threads were ready to run besides; 0: not known */
	__u64 probes_ns; /* what of that its probes took, an estimate; or EVENT_COST_UNKNOWN */
};

/* What the cyclic collectors of its interpreters have done since these began. */
struct event_collections {
	struct event_header header;
	__u64 full;      /* collections of the oldest generation */
	__u64 all;       /* of any */
	__u64 collected; /* objects that they have freed */
};

/* The name of the thread in the header, as /proc/PID/task/TID/comm has it, NUL-terminated. */
#define EVENT_THREAD_NAME 16
struct event_thread {
	struct event_header header;
	char name[EVENT_THREAD_NAME];
};

enum event_task_name {
	EVENT_TASK_NONE = 0,     /* the thread runs no task */
	EVENT_TASK_UNKNOWN = 1,  /* its name could not be read */
	EVENT_TASK_NUMBERED = 2, /* it was given no name: it is "Task-" and its number */
	EVENT_TASK_NAMED = 3,
	/* values of variables (abi/label.h) */
	EVENT_TASK_INT = 4,   /* number is signed */
	EVENT_TASK_BOOL = 5,  /* number: 0, 1; 2: None; 3: Ellipsis */
	EVENT_TASK_RAW = 6,   /* a bytes object */
	EVENT_TASK_OTHER = 7, /* of a type that is not read; number: the type's address */
	/* an int of 128 bits: number and the start of name are its halves, bytes 1: negative */
	EVENT_TASK_WIDE = 8,
	EVENT_TASK_UUID = 9,    /* the same of a uuid.UUID */
	EVENT_TASK_HASHED = 10, /* number stands for a value (--labels-hash) */
};

/*
 * The name of the asyncio task that the thread in the header runs from here on, or the value of the
 * variable with which it makes blocks.
 */
#define EVENT_TASK_BYTES 128u
struct event_task {
	struct event_header header;
	__u64 number;
	__u32 bytes; /* of the whole name; more than EVENT_TASK_BYTES: name is the beginning */
	__u16 how;   /* enum event_task_name */
	/* of the text in name, as in struct event_code; of an int: its hex digits; 0: decimal */
	__u16 kind;
	__u8 name[EVENT_TASK_BYTES]; /* only as much as there is of it: see EVENT_TASK_MIN */
};

#define EVENT_TASK_MIN   40u /* bytes of a record that has no name */
#define EVENT_TASK_SHORT 40u /* of most names, as of a UUID's text */

/* Names of the loss counters; one __u64 each in struct event_loss and in the BPF map `loss`. */
enum event_loss_kind {
	LOSS_ALLOC = 0,        /* allocations dropped: ring buffer full */
	LOSS_ALLOC_BYTES = 1,  /* their bytes */
	LOSS_FREE = 2,         /* frees dropped: ring buffer full */
	LOSS_REALLOC = 3,      /* any of the three realloc records dropped: ring buffer full */
	LOSS_STACK = 4,        /* stacks dropped: ring buffer full (sent again at next sight) */
	LOSS_CODE = 5,         /* code dropped: ring buffer full (sent again at next sight) */
	LOSS_PROCESS = 6,      /* exit/exec/fork/finalize records dropped: ring buffer full */
	LOSS_THREAD_STATE = 7, /* requests not traced: no memory for the thread's state */
	LOSS_NO_THREAD = 8,    /* empty tracebacks: the thread's Python state was not found */
	LOSS_FRAME_FAULT = 9,  /* stack walks cut short: a frame's page was not resident */
	LOSS_RETURN = 10,      /* requests whose return was not seen */
	LOSS_REUSE = 11,       /* reuses of dead objects dropped: ring buffer full */
	LOSS_MAP = 12,         /* any of the four mapped-memory records dropped: ring buffer full */
	/*
	 * processes that share a target's memory and are no threads of it: none of their requests
	 * is seen
	 */
	LOSS_SHARER = 13,
	LOSS_MAP_ENTRY = 14, /* entries of perf maps dropped: ring buffer full, or no memory */
	LOSS_MAP_CALL = 15,  /* other perf-map records dropped: ring buffer full, or unreadable */
	LOSS_COUNT = 16,     /* size of the array, spare entries included */
};

struct event_loss {
	struct event_header header;
	__u64 counts[LOSS_COUNT];
};

_Static_assert(sizeof(struct event_appear) == 56, "appear");
_Static_assert(__builtin_offsetof(struct event_process, space_id) == EVENT_PROCESS_MIN,
	       "process.space");
_Static_assert(sizeof(struct event_process) == 40, "process");
_Static_assert(__builtin_offsetof(struct event_target, parent) == EVENT_TARGET_MIN,
	       "target.parent");
_Static_assert(sizeof(struct event_target) == 648, "target");
_Static_assert(sizeof(struct event_mode_change) == 48, "mode_change");
_Static_assert(sizeof(struct event_rss) == 32, "rss");
_Static_assert(sizeof(struct event_cost) == 48, "cost");
_Static_assert(sizeof(struct event_collections) == 48, "collections");
_Static_assert(sizeof(struct event_thread) == 40, "thread");
_Static_assert(sizeof(struct event_task) == EVENT_TASK_MIN + EVENT_TASK_BYTES, "task");
_Static_assert(sizeof(struct event_loss) == 24 + 8 * LOSS_COUNT, "loss");
