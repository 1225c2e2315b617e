/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What bpf/ needs to know about a target to walk its Python stack: one struct abi_target per
 * process, in the BPF map `targets`, keyed by tgid. Written by user/attach/, filled from
 * user/runtime/cpython/.
 */
#pragma once

#include <linux/types.h>

/*
 * Limit of a thread's state, in bytes: from 6.19 on task storage is allocated by kmalloc_nolock()
 * (mm/slub.c), which is limited to 8 KiB, including the kernel's own header.
 */
#define TASK_STATE_MAX 8120
/* No flag of the kernel's: a request for task storage with it finds and makes none. */
#define TASK_STATE_NONE (1ull << 63)

/* How the current PyThreadState of the running thread is found. */
enum abi_tstate_source {
	ABI_TSTATE_MATCH = 0, /* only by searching the interpreters' thread lists */
	/* *tstate_address: one for the process, valid while the GIL is held (<= 3.11) */
	ABI_TSTATE_SLOT = 1,
	ABI_TSTATE_TLS = 2, /* *(fs base + tstate_address) (3.12+, static TLS block) */
	/* *(dtv[tls_module] + tstate_address), dtv at fs base + 8 (3.12+, glibc) */
	ABI_TSTATE_DTV = 3,
};

/*
 * Offsets in bytes within CPython's structures. A field that a version does not have is 0xffff.
 * Frames: up to 3.10 tstate.frame is a PyFrameObject; from 3.11 on tstate.cframe (3.11, 3.12) or
 * tstate.current_frame (3.13+) leads to a _PyInterpreterFrame.
 */
#define ABI_NONE 0xffffu
struct abi_offsets {
	__u16 runtime_interpreters_head;
	__u16 interp_next;
	__u16 interp_threads_head;
	__u16 tstate_next;
	__u16 tstate_thread_id; /* pthread_self(): the fs base; arm64: below tpidr_el0 */
	/* PyFrameObject* or _PyInterpreterFrame*; ABI_NONE where cframe leads to it */
	__u16 tstate_frame;
	__u16 tstate_cframe;
	__u16 cframe_current_frame;
	/*
	 * A _PyCFrame is a variable of a call of the evaluation loop (3.10, 3.11; ABI_NONE for
	 * others); previous: that of the call before.
	 */
	__u16 cframe_previous;
	__u16 frame_code;     /* f_code, f_executable */
	__u16 frame_previous; /* f_back, previous */
	/* f_lasti (int) up to 3.10; prev_instr, instr_ptr (pointer) from 3.11 on */
	__u16 frame_instr;
	__u16 frame_owner; /* char; ABI_NONE up to 3.10 */
	/* tlbc_index (int): which copy of the bytecode it runs; ABI_NONE if there are no copies */
	__u16 frame_copy;
	/*
	 * A call of the evaluation loop executes the frames up to the first one of which this byte
	 * is >= entry_from: owner of a C-stack shim (3.12+), is_entry (3.11), any frame up to 3.10
	 */
	__u16 frame_entry;
	__u16 code_first_line;
	__u16 code_filename;
	__u16 code_qualname; /* co_name up to 3.10 */
	__u16 code_lines;    /* co_lnotab, co_linetable (pointer to bytes) */
	/* distinguishes it from earlier code objects at its address: co_version, or code_lines */
	__u16 code_mark;
	__u16 code_bytecode; /* co_code_adaptive; ABI_NONE up to 3.10 */
	/*
	 * co_tlbc, to {number of copies, address of each copy's bytecode…} (free-threaded builds,
	 * 3.14+); ABI_NONE: the code object has the only bytecode
	 */
	__u16 code_copies;
	__u16 code_first_traceable; /* int, in code units; ABI_NONE up to 3.10 */
	__u16 object_type;          /* ob_type */
	__u16 bytes_size;           /* ob_size of a bytes object */
	__u16 bytes_data;
	__u16 unicode_length;
	__u16 unicode_state;   /* u32 bit field */
	__u16 unicode_ascii;   /* data of a compact ASCII string */
	__u16 unicode_compact; /* data of another compact string */
	/* of the 3-bit kind in state; compact and ascii are the two bits above it */
	__u8 unicode_kind_shift;
	/* bytes per unit of f_lasti: 1 (3.8, 3.9), 2 (3.10); 0: frame_instr is a pointer */
	__u8 frame_lasti_scale;
	__u8 owner_generator; /* value of owner for a generator's frame (3.11+) */
	/* frames with owner >= this are no Python frames (3.12+); 255: none */
	__u8 owner_skip;
	__u8 entry_from;
	__u8 frame_code_tagged;  /* 1: the low bits of frame_code are a tag (3.14+) */
	__u8 frame_code_checked; /* 1: frame_code may be no code object: check its type (3.13+) */
	/* 1: a code object has a number that is unique in the process (co_version, 3.12+) */
	__u8 code_versioned;
	/*
	 * the thread state's asyncio task (3.14+), or with ABI_LABEL_CONTEXT its context; 0: tasks
	 * are not told
	 */
	__u16 tstate_task;
	__u16 task_name; /* of an asyncio task: a str, or an int N that stands for "Task-N" */
};

/*
 * Where pymalloc's heap is and the layout of its structures, for the heap walk that BPF makes when
 * the interpreter shuts down. Offsets and sizes in bytes.
 */
struct abi_heap {
	/*
	 * Addresses, where they are variables (<= 3.11); from 3.12 on they are in the interpreters'
	 * states.
	 */
	__u64 arenas, maxarenas, raw_blocks;
	__u32 interp_obmalloc; /* 0: variables */
	__u32 obmalloc_is_pointer;
	__u32 mgmt_arenas, mgmt_maxarenas, mgmt_raw_blocks;
	__u32 arena_object_size, arena_address, arena_pool_address;
	__u32 pool_count, pool_freeblock, pool_szidx, pool_nextoffset, pool_header_size;
	__u32 arena_bytes, pool_bytes; /* pool_bytes 0: not to be walked, or walked already */
	__u32 raw_is_total;            /* 3.8: the count of raw blocks includes pymalloc's */
};

#define ABI_OBJECT_CODES 4
#define ABI_RECORD_CALLS 32
#define ABI_LOOP_CODES   2

struct abi_code {
	__u64 start, bytes; /* an address; 0 bytes: none */
};

struct abi_target {
	__u64 runtime;        /* address of _PyRuntime */
	__u64 code_type;      /* address of PyCode_Type; 0: unknown, types are not compared */
	__s64 tstate_address; /* see enum abi_tstate_source */
	__u32 tstate_source;
	__u32 tls_module;
	__u32 nframe;
	/*
	 * Seed of stack and code ids: differs for every {process, exec} of the session. BPF gives
	 * out the upper half (ABI_SPACE_GIVEN).
	 */
	__u32 space_id;
	/*
	 * The object allocator's functions, or the parts of them that call the raw allocator. A raw
	 * request that returns there is a large request that the object allocator has passed on.
	 */
	struct abi_code object_code[ABI_OBJECT_CODES];
	__u64 program_break; /* as last seen; 0: not yet. Written by BPF */
	__u64 sample_bytes;  /* mean distance of marks (abi/sample.h); 0: every block is traced */
	/* 1: some sampled blocks are not in the map `sampled`. Written by BPF */
	__u32 sample_overflow;
	/*
	 * 1 << enum event_layer for each that is traced; ABI_LAYER_SELF_SAMPLED. BPF sets the
	 * latter, too
	 */
	__u32 layers;
	/*
	 * probe hits, approximate: not counted atomically. Written by BPF, if `counting` is set. Of
	 * page faults: nanoseconds, always
	 */
	__u64 hits;
	struct abi_heap heap;
	struct abi_offsets offsets;
	/*
	 * Code of the interpreter's file, whose frames a traceback leaves out: its Python frames
	 * follow there. Addresses; 0, 0: none.
	 */
	__u64 interpreter_start, interpreter_end;
	/*
	 * Code of the evaluation loop and of its cold part: 3.8, 3.9, where nothing else tells its
	 * calls. Addresses; 0 bytes: not known.
	 */
	struct abi_code loop_code[ABI_LOOP_CODES];
	__u64 ended;      /* 1: a thread has begun to report the process's end. Written by BPF */
	__u32 partial;    /* 1: some sites where Python's allocators return a block have no probe */
	__u32 page_share; /* of page faults, in a sample: sample_takes_page() */
	__u32 paused;     /* enum abi_paused */
	__u32 window;     /* number of the native layer's window */
	__u64 long_type, unicode_type; /* addresses of PyLong_Type, PyUnicode_Type; 0: not needed */
	__u64 renames;                 /* enum abi_renames; BPF sets it to UNREPORTED */
	/*
	 * Return addresses, from record_base on, of tracemalloc's requests of the raw allocator for
	 * its own records, which are not reported; 0: none
	 */
	__u64 record_base;
	__u32 record_calls[ABI_RECORD_CALLS];
	/*
	 * Code of libc, which touches memory for others: the stack of a page fault begins with its
	 * caller. 0 bytes: not known.
	 */
	struct abi_code libc_code;
};

/* Where Task.set_name() has its probe, ABI_OP_RENAME. */
enum abi_renames {
	ABI_RENAMES_UNREPORTED = 0,
	ABI_RENAMES_HERE = 1, /* in this process, and not in its children */
	ABI_RENAMES_EVERYWHERE = 2,
};

enum abi_paused {
	ABI_PAUSED_NO = 0,
	/* between windows (EVENT_WINDOW): blocks of pymalloc's pools are not reported */
	ABI_PAUSED_POOLS = 1,
	/* and large blocks have probes in windows only: the return of a request may have none */
	ABI_PAUSED_LARGE = 2,
	/* between windows of the native layer: its blocks are not reported */
	ABI_PAUSED_NATIVE = 3,
};

/*
 * Which untracked processes are reported to the session (EVENT_APPEAR, EVENT_EXIT).
 */
enum abi_watch {
	ABI_WATCH_NONE = 0,
	ABI_WATCH_CHILDREN = 1, /* those that targets fork, and their descendants */
	ABI_WATCH_ALL = 2,
};

/*
 * In abi_target.layers, in place of the native layer's bit: the native layer's blocks are those
 * that the process samples itself (abi/usdt.h). Probes on malloc and its kin do nothing in it.
 */
#define ABI_LAYER_SELF_SAMPLED (1u << 8)

/* Flag in abi_target.space_id: BPF gave it to a forked child or to an exec'd program. */
#define ABI_SPACE_GIVEN 0x80000000u

/*
 * The cookie of a probe: the operation and where its arguments are. bits 0-7 enum abi_op, 8-15 enum
 * event_api, 16-23 register of the first argument, 24-31 of the second, 32-39 of the third (enum
 * abi_register), 40-55 an addend, signed. A MALLOC, CALLOC, REALLOC or FREE with an addend belongs
 * to the debugging hooks: the allocator's block begins that many bytes before the program's.
 *
 * In inlined copies of the allocator (user/probe/pymalloc/sites.h) a request has no function of its
 * own: the probe of a malloc, calloc or realloc without a return is at the call instruction, and
 * END comes after the call.
 */
enum abi_op {
	ABI_OP_MALLOC = 1,   /* (bytes) */
	ABI_OP_CALLOC = 2,   /* (count, bytes) */
	ABI_OP_REALLOC = 3,  /* (address, bytes) */
	ABI_OP_FREE = 4,     /* (address) */
	ABI_OP_TRACK = 5,    /* (domain, address, bytes) */
	ABI_OP_UNTRACK = 6,  /* (domain, address) */
	ABI_OP_FINALIZE = 7, /* () */
	/* (object): an object begins to live, in a new block or in one from a free list */
	ABI_OP_REUSE = 8,
	/*
	 * (pool, base): at a je or jne. If the zero flag is set, a refill follows; else the block
	 * is the pool's first free one. Its size is base + addend bytes, without a base addend
	 * bytes; 0: only its size class is known.
	 */
	ABI_OP_POOL = 9,
	/*
	 * (): a new pool for the request of the thread's last POOL; addend: log2 of a pool's size.
	 */
	ABI_OP_REFILL = 10,
	/*
	 * (block): after a call. EVENT_API_NATIVE: at a ret, where the stack pointer has the value
	 * it had at the request's entry; with another value it is the end of another request.
	 */
	ABI_OP_END = 11,
	/*
	 * (block, bytes): the block stays where it is if the flags say "below", with an addend if
	 * they say "above".
	 */
	ABI_OP_RESIZE = 13,
	ABI_OP_POOL_FREE = 12, /* (pool): its first free block is the one that was freed */
	/*
	 * (pool): it is taken into use. With a return, (): as REFILL, and the pool is reported.
	 * addend: log2 of its size.
	 */
	ABI_OP_NEW_POOL = 14,
	/*
	 * MMAP to BRK are in libc, after the system call instruction: the arguments and the result
	 * are in the system call's registers. The cookie has the frame (abi/frame.h).
	 */
	ABI_OP_MMAP = 15,
	ABI_OP_MUNMAP = 16, /* before the system call, at the function's entry */
	ABI_OP_MREMAP = 17,
	ABI_OP_MPROTECT = 18,
	ABI_OP_BRK = 19,
	/*
	 * malloc and its kin (EVENT_API_NATIVE) have these besides MALLOC, CALLOC, REALLOC and
	 * FREE, with a return probe.
	 */
	ABI_OP_POSIX_MEMALIGN = 20, /* (result, bytes): where it returns 0, *result is the block */
	ABI_OP_REALLOCARRAY = 21,   /* (address, count, bytes) */
	ABI_OP_XALLOCX = 22,        /* (address, bytes): returns the block's size after the call */
	/*
	 * (): a function that requests its block from another function, and may throw instead of
	 * returning. It has no return probe, which would break unwinding. The request is charged to
	 * its caller.
	 */
	ABI_OP_CALLER = 23,
	/*
	 * (pool): it is taken into use, and its first block is for the request of the thread's last
	 * POOL, whose cookie has a third register. The pool's header still has its previous size
	 * class.
	 */
	ABI_OP_FIRST_BLOCK = 24,
	/*
	 * USDT probes (abi/usdt.h): bits 16-31 of the cookie are the index of the arguments.
	 */
	ABI_OP_SAMPLED_ALLOC = 25, /* (address, bytes, weighted bytes) */
	ABI_OP_SAMPLED_FREE = 26,  /* (address) */
	ABI_OP_RENAME = 27,        /* (task, name): Task.set_name() */

	/* Perf maps: bits 8-15 are ABI_MAP_*. */
	ABI_OP_MAP_WRITE = 32,   /* (address, bytes, name) */
	ABI_OP_MAP_COPY = 33,    /* (file name) */
	ABI_OP_MAP_INIT = 34,    /* (), with its return */
	ABI_OP_MAP_FINI = 35,    /* () */
	ABI_OP_MAP_COMPILE = 36, /* () */
	ABI_OP_MAP_PERSIST = 37, /* (enable) */
	/* (): bits 8-63 are the signed distance from the probe to __jit_debug_descriptor */
	ABI_OP_MAP_JIT = 38,
};

/* General purpose registers: those of x86-64, and of arm64, in the order of their encoding. */
enum abi_register {
	ABI_REG_AX = 0,
	ABI_REG_CX,
	ABI_REG_DX,
	ABI_REG_BX,
	ABI_REG_SP,
	ABI_REG_BP,
	ABI_REG_SI,
	ABI_REG_DI,
	ABI_REG_R8,
	ABI_REG_R9,
	ABI_REG_R10,
	ABI_REG_R11,
	ABI_REG_R12,
	ABI_REG_R13,
	ABI_REG_R14,
	ABI_REG_R15,

	ABI_REG_X0 = 0,
	ABI_REG_X1,
	ABI_REG_X2,
	ABI_REG_X3,
	ABI_REG_X4,
	ABI_REG_X5,
	ABI_REG_X6,
	ABI_REG_X7,
	ABI_REG_X8,
	ABI_REG_X9,
	ABI_REG_X10,
	ABI_REG_X11,
	ABI_REG_X12,
	ABI_REG_X13,
	ABI_REG_X14,
	ABI_REG_X15,
	ABI_REG_X16,
	ABI_REG_X17,
	ABI_REG_X18,
	ABI_REG_X19,
	ABI_REG_X20,
	ABI_REG_X21,
	ABI_REG_X22,
	ABI_REG_X23,
	ABI_REG_X24,
	ABI_REG_X25,
	ABI_REG_X26,
	ABI_REG_X27,
	ABI_REG_X28,
	ABI_REG_X29,
	ABI_REG_X30,
	ABI_REG_XSP,

	ABI_REG_COUNT /* none of them */
};

/* How the machine that the tracer is built for passes arguments. */
#if defined(__aarch64__) || defined(__TARGET_ARCH_arm64)
#define ABI_ARGUMENT_1 ABI_REG_X0
#define ABI_ARGUMENT_2 ABI_REG_X1
#define ABI_ARGUMENT_3 ABI_REG_X2
#define ABI_ARGUMENT_4 ABI_REG_X3
#define ABI_ARGUMENT_5 ABI_REG_X4
#define ABI_ARGUMENT_6 ABI_REG_X5
#define ABI_CALL_4     ABI_REG_X3 /* of a system call */
#define ABI_RESULT     ABI_REG_X0
#define ABI_STACK      ABI_REG_XSP
#else
#define ABI_ARGUMENT_1 ABI_REG_DI
#define ABI_ARGUMENT_2 ABI_REG_SI
#define ABI_ARGUMENT_3 ABI_REG_DX
#define ABI_ARGUMENT_4 ABI_REG_CX
#define ABI_ARGUMENT_5 ABI_REG_R8
#define ABI_ARGUMENT_6 ABI_REG_R9
#define ABI_CALL_4     ABI_REG_R10
#define ABI_RESULT     ABI_REG_AX
#define ABI_STACK      ABI_REG_SP
#endif

#define ABI_COOKIE(op, api, r0, r1, r2)                                                            \
	((__u64)(op) | (__u64)(api) << 8 | (__u64)(r0) << 16 | (__u64)(r1) << 24 |                 \
	 (__u64)(r2) << 32)

/*
 * MREMAP, MPROTECT, in addition, where the result of a system call replaces its first argument: at
 * the function's entry.
 */
#define ABI_COOKIE_BEFORE (1ull << 56)

#define ABI_MAP_BYTES_32 1u /* the function takes the size as an unsigned int */

#define ABI_COOKIE_ADDEND(addend) ((__u64)(__u16)(addend) << 40)

/*
 * The addend of a function of malloc's kin that has no return probe, but not because it may throw.
 */
#define ABI_NATIVE_RETURNS 1u

_Static_assert(sizeof(struct abi_offsets) == 72, "offsets");
_Static_assert(__builtin_offsetof(struct abi_target, tstate_source) == 24, "target.tstate_source");
_Static_assert(__builtin_offsetof(struct abi_target, offsets) == 224, "target.offsets");
_Static_assert(__builtin_offsetof(struct abi_target, interpreter_start) == 296,
	       "target.interpreter_start");
_Static_assert(sizeof(struct abi_target) == 544, "target");
