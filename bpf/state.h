/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps, and what is kept per thread. */
#ifndef TRACER_BPF_STATE_H
#define TRACER_BPF_STATE_H

#include "stream.h"
#include "task_state.h"

#include "abi/target.h"

/*
 * Which stacks and code objects have been sent: direct-mapped caches of ids. A collision or a
 * second sender makes a record go out again, which the reader takes as harmless; nothing is ever
 * thought sent that was not.
 */
#define SEEN_STACKS (1u << 18)
#define SEEN_CODES  (1u << 15)

#define CODE_BYTES      200u /* of a code object, from its start: up to the bytecode in 3.11+ */
#define FRAME_BYTES     80u  /* of a frame, from 3.11 on */
#define FRAME_BYTES_MAX 112u /* up to 3.10 */
#define WINDOW_WORDS    11
#define CONTENT_WORDS   16    /* of a text or a line table, its last ones */
#define WINDOW_BYTES    1024u /* of frames that lie side by side */
#define PAGE_BYTES      4096ull

/* What was read of a code object; code_find() knows how long it holds. */
#define KNOWN_CODES 64
#define MORE_CODES  252 /* that fit into TASK_STATE_MAX */
struct known_code {
	__u64 code; /* address; 0: none */
	__u64 code_id;
	__u32 mark;   /* mark_fold() of the word at abi_offsets.code_mark */
	__u32 walk;   /* the thread's walk that has met it last */
	__u32 births; /* at that address, before it was read */
	__s32 first_traceable;
};

/* The outermost allocator request of a layer in progress on a thread; nested ones belong to it. */
struct request {
	__u64 sp; /* stack pointer at its entry; 0: none in progress */
	__u64 bytes;
	__u64 old_address; /* realloc: the block being resized; 0: a plain allocation */
	__u64 result_at;   /* posix_memalign: where it puts the block; xallocx: where that stays */
	__u64 from,
		/*
		 * its return address, its caller's frame pointer; only where mapped memory is
		 * followed
		 */
		frame;
	__u64 caller; /* where it has no return probe: its return address; 0: it has one */
	__u32 api;
	__u16 op;
	__u16 nested_equal; /* nested requests at the same stack pointer (tail calls) */
	__u32 tick;         /* of the kernel's, when it began */
	/* 1: it has a return probe, and the kernel's address where its own was */
	__u16 by_return;
	__u16 throws; /* 1: it may end by an exception, and has given no block then */
};

/* A block that comes to life, as its record will have it. */
struct block {
	__u64 address, bytes, stack_id;
	__u32 type; /* enum event_type */
	__u32 domain, api;
};

/* A walk up the frame pointers. */
struct native_walk {
	__u64 frame; /* the frame pointer that comes next */
	/* the next frame lies above this: the one before it, first the stack pointer */
	__u64 below;
	__u64 caller; /* return address of the last step */
	__u32 nframe; /* no more frames than that */
	__u32 whole;  /* 1: it has come to the interpreter */
	__u32 cut;    /* EVENT_STACK_CUT: it has come to an end that is none; 0 */
};

#define KNOWN_RETURNS 64

struct thread_state {
	/*
	 * What targets has of the thread's process, and who it is. A copy: looking it up costs as
	 * much as the rest.
	 */
	struct abi_target target;
	__u64 target_version; /* of targets, when that was copied; 0: it was none of them */
	struct thread_ids ids;
	__u64 tick, tick_ns; /* see header_fill_block() */

	struct request python, native;
	/* asked of an empty pool, by the request that calls for a new one; 0: not known */
	__u64 refill_bytes;
	/* the request in progress makes a pool of that size (log2); 0: another one */
	__u64 pool_bits;
	/* what this thread was given last: an object that begins in there is no reuse */
	__u64 last_block;
	__u64 last_bytes;
	__u64 last_free; /* address of a free that may be passed on to another allocator */
	__u64 tstate;    /* the thread's PyThreadState as last found */
	__u64 tstate_id; /* the thread_id that it had then: that of the thread that made it */
	/* address of this thread's pointer to it, where that is thread-local; 0: not known */
	__u64 tstate_slot;
	__u32 tstate_space; /* struct abi_target.space that all this was found in */
	/* last_free comes from a debugging hook: the object allocator may get it, too */
	__u32 last_hooked;
	__u32 reserved;     /* bytes of the ring buffer since it was read ahead */
	__u32 walk;         /* counts the walks, and begins anew after 2^32: see walk_is_since() */
	__u32 known_since;  /* the walk from which on code objects that were read are still known */
	__u32 tick_walk;    /* the walk that was the last one when the tick began */
	__u64 sample_bytes; /* the mean that sample_gap was drawn with */
	__u64 sample_gap;   /* bytes up to the next mark */
	struct known_code known[KNOWN_CODES]; /* by address: a direct-mapped cache */
	__u64 next_frame;                     /* of the walk in progress */
	__u64 above;                          /* the frame that it came from */
	__u64 lowest;                         /* of the frames in a walk's first window */
	__u32 windows;                        /* that it has copied */
	/* bytes of line tables that may still be sent with the stack that is new */
	__u32 lines_left;
	struct block block;   /* that is being reported */
	struct event_map map; /* memory that is mapped, the same */
	struct native_walk native_walk;
	/*
	 * Of the last ABI_OP_CALLER: its stack pointer (0: none), its caller's frame pointer, its
	 * return address.
	 */
	__u64 outer_sp, outer_frame, outer_caller;
	/* where functions with a return probe return to, in this process; 0: not known (yet) */
	__u64 trampoline;
	__u64 returns[KNOWN_RETURNS]; /* addresses that are known to follow a call */
	__u64 window_begin;           /* address of what window is a copy of */
	__u64 window_frames;          /* so many bytes of it have frames that begin in them */
	__u8 window[WINDOW_BYTES] __attribute__((aligned(8)));
	/* a frame that was copied without others */
	__u8 alone[FRAME_BYTES_MAX] __attribute__((aligned(8)));

	__u64 code[32]; /* the code object being read; 256 bytes */
	__u64 content[CONTENT_WORDS + 1];
	struct {
		struct event_header header;
		__u64 stack_id;
		__u32 nframe;
		__u32 total;
	} stack; /* struct event_stack, whose frames follow: they go out as one record */
	struct event_frame frames[EVENT_MAX_FRAMES];
	__u64 addresses[EVENT_MAX_FRAMES]; /* of the frames' code objects */
};

_Static_assert(sizeof(((struct thread_state *)0)->stack) == sizeof(struct event_stack),
	       "one record");
_Static_assert(__builtin_offsetof(struct thread_state, frames) ==
		       __builtin_offsetof(struct thread_state, stack) + sizeof(struct event_stack),
	       "one record");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct abi_target);
} targets SEC(".maps");

/*
 * Processes that are not targets, and whose children and programs are wanted all the same: those
 * that targets have forked, as a shell that will start another Python.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} followed SEC(".maps");

TASK_STATE(threads, struct thread_state)

/*
 * What a thread has read of code objects, beyond those in thread_state.known: asked when one is not
 * among these.
 */
struct more_codes {
	struct known_code known[MORE_CODES];
};

TASK_STATE(codes, struct more_codes)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_STACKS);
	__type(key, __u32);
	__type(value, __u64);
} seen_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_CODES);
	__type(key, __u32);
	__type(value, __u64);
} seen_codes SEC(".maps");

/*
 * How many blocks that are large enough for a code object have come to life at an address. Several
 * share a counter.
 */
#define BIRTHS (1u << 16)
__u32 births[BIRTHS];

static __always_inline __u32 *births_at(__u64 address)
{
	return &births[address >> 4 & (BIRTHS - 1)];
}

/* bpf_loop() is there (5.17+). Where it is not, the verifier takes the dead code out. */
const volatile __u32 has_loop = 0;

/*
 * Calls step up to limit times, until it returns another value than 0. The verifier looks at step
 * once, and not once a turn, where it can: what it has to look at is most of what attaching takes.
 * step is static and not inline.
 */
static __always_inline void loop_run(const __u32 limit, long (*step)(__u32 turn, void *context),
				     void *context)
{
	__u32 i;

	if (has_loop) {
		bpf_loop(limit, step, context, 0);
		return;
	}
	for (i = 0; i < limit; i++)
		if (step(i, context))
			return;
}

/* Are the hits of each target's probes counted now? */
__u32 counting;

/* Goes up after every change of targets, by whomever. */
__u64 targets_version = 1;

static __always_inline struct abi_target *target_current(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&targets, &tgid);
}

/* A probe of the running process was hit. */
static __always_inline void hit_count(void)
{
	struct abi_target *target = *(volatile __u32 *)&counting ? target_current() : NULL;

	if (target)
		target->hits++;
}

static __always_inline void target_delete(__u32 tgid)
{
	bpf_map_delete_elem(&targets, &tgid);
	__sync_fetch_and_add(&targets_version, 1);
}

/* The running thread's state, made anew from targets. 0; -1: it is none of a target's. */
__noinline int thread_refresh(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u64 version = *(volatile __u64 *)&targets_version;
	struct abi_target *target = target_current();
	struct thread_state *thread;

	thread = target ? threads_get(task) : threads_find(task);
	if (!target) {
		if (thread)
			thread->target_version = 0;
		return -1;
	}
	if (!thread) {
		loss_add(LOSS_THREAD_STATE, 1);
		return -1;
	}
	thread->target = *target;
	thread->ids = thread_ids();
	thread->target_version = version;
	thread->known_since = thread->walk + 1;
	thread->trampoline = 0;
	return 0;
}

/*
 * The running thread's state if its process is a target; its target member is filled in. NULL: it
 * is none.
 */
static __always_inline struct thread_state *thread_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct thread_state *thread = threads_find(task);

	hit_count();
	if (thread && thread->target_version == *(volatile __u64 *)&targets_version)
		return thread;
	return thread_refresh() ? NULL : threads_find(task);
}

/*
 * The same where that layer is traced: the probes in a file are met by every process, and each may
 * be traced in another way.
 */
static __always_inline struct thread_state *thread_in_layer(enum event_layer layer)
{
	struct thread_state *thread = thread_current();

	return thread && thread->target.layers & 1u << layer ? thread : NULL;
}

/*
 * Notes when the thread's first record or walk in this tick of the kernel's was, and which walk was
 * the last one before.
 */
static __always_inline void tick_note(struct thread_state *thread)
{
	__u64 tick = bpf_jiffies64();

	if (thread->tick == tick)
		return;
	thread->tick = tick;
	thread->tick_ns = bpf_ktime_get_ns();
	thread->tick_walk = thread->walk;
}

/*
 * The head of a record of a block. Reading the clock costs a tenth of all that we do about an
 * allocation, and nobody asks when it was: the time is that of the thread's first record in the
 * same tick of the kernel's.
 */
static __always_inline void header_fill_block(struct thread_state *thread,
					      struct event_header *header, __u32 type, __u32 size)
{
	tick_note(thread);
	header->type = type;
	header->size = size;
	header->time_ns = thread->tick_ns;
	header->tgid = thread->ids.tgid;
	header->tid = thread->ids.tid;
}

/*
 * Room for a record of a block; NULL: there is none. Its memory was used last a whole turn of the
 * ring buffer ago and is in no cache: a store to it would be waited for when the trap ends, which
 * is a tenth of a microsecond. So what comes next is read in time, as much as window holds: all its
 * lines are waited for at once.
 */
static __always_inline void *block_reserve(struct thread_state *thread, const __u32 size)
{
	void *record = bpf_ringbuf_reserve(&events, size, 0);

	if (!record)
		return NULL;
	thread->reserved += size + BPF_RINGBUF_HDR_SZ;
	if (thread->reserved >= WINDOW_BYTES) {
		thread->reserved = 0;
		thread->window_frames = 0;
		bpf_probe_read_kernel(thread->window, WINDOW_BYTES, record + WINDOW_BYTES);
	}
	return record;
}

#endif
