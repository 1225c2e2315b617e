/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps, and the state that is kept per thread. */
#pragma once

#include "stream.h"
#include "task_state.h"
#include "user_word.h"

#include "abi/label.h"
#include "abi/target.h"

/*
 * Direct-mapped caches of the ids of stacks and code objects that have been sent. After a
 * collision, or if two threads send at the same time, a record is sent again, which user space
 * ignores. An entry never claims a record as sent that was not.
 */
#define SEEN_STACKS (1u << 18)
#define SEEN_CODES  (1u << 15)

#define CODE_BYTES      200u /* of a code object, from its start: up to the bytecode in 3.11+ */
#define CODE_BYTES_MAX  216u /* the same in free-threaded builds */
#define FRAME_BYTES     80u  /* of a frame, from 3.11 on */
#define FRAME_BYTES_MAX 112u /* up to 3.10 */
#define WINDOW_WORDS    11
#define CONTENT_WORDS   16      /* the last words of a text or a line table, which are hashed */
#define WINDOW_BYTES    1024u   /* of contiguous frames */
#define PAGE_BYTES      4096ull /* the smallest pages there are */

/* A cached code object; code_is_valid() says for how long it is valid. */
#define KNOWN_CODES 64
#define MORE_CODES  247 /* with label_holds they fill TASK_STATE_MAX */
struct known_code {
	__u64 code; /* address; 0: none */
	__u64 code_id;
	__u32 mark;            /* mark_fold() of the word at abi_offsets.code_mark */
	__u32 walk;            /* the thread's last walk that met it */
	__u32 reuse_counts;    /* at its address, before it was read */
	__u16 first_traceable; /* in code units; 0xffff: that or more */
	__u16 label_words;     /* of the label's function; 0: it is another one's. See LABEL_FAR */
};

/*
 * Where a frame of the label's function has the variable (struct abi_label_code), in words, with
 * LABEL_PATH if the label is what is reached from it; LABEL_FAR: it has to be looked up.
 */
#define LABEL_FAR  1
#define LABEL_PATH 0x8000

/* A layer's outermost request in progress on a thread; nested requests are part of it. */
struct request {
	__u64 sp; /* stack pointer at its entry; 0: none in progress */
	__u64 bytes;
	__u64 old_address; /* realloc: the block being resized; 0: a plain allocation */
	__u64 result_at;   /* posix_memalign: address of the result; xallocx: the block */
	/* its return address and its caller's frame pointer; only if mapped memory is traced */
	__u64 from, frame;
	__u64 caller; /* without a return probe: its return address; 0: it has one */
	__u32 api;
	__u16 op;
	__u16 nested_equal; /* nested requests at the same stack pointer (tail calls) */
	__u32 tick;         /* kernel tick at its start */
	/* 1: it has a return probe, which has replaced its return address on the stack */
	__u16 by_return;
	__u16 throws; /* 1: it may end by an exception, without a block */
};

/* A new block, as in its record. */
struct block {
	__u64 address, bytes, stack_id;
	__u32 type; /* enum event_type */
	__u32 domain, api;
	__u64 tstate; /* the PyThreadState that its stack was walked from; 0: none, or not walked */
};

/* A walk along the frame pointers. */
struct native_walk {
	__u64 frame; /* the next frame pointer */
	/* the next frame must lie above this: the previous frame, at first the stack pointer */
	__u64 below;
	__u64 caller;         /* return address of the last step */
	__u32 nframe;         /* limit of frames */
	__u32 at_interpreter; /* 1: it has reached the interpreter */
	__u32 cut;            /* EVENT_STACK_CUT: it ended before the stack's base; else 0 */
	__u32 python_frames;  /* of the stack */
	__u32 is_native_only; /* the interpreter's frames are frames like others */
	__u32 is_interrupted; /* caller is no return address: the byte before it was running */
};

/* The name of a task, as in struct event_task. */
struct task_name {
	__u64 number;
	__u32 bytes;
	__u16 how, kind;
};

#define KNOWN_RETURNS 32

struct thread_state {
	/*
	 * A copy of the process's entry in `targets`: a lookup costs as much as the rest of an
	 * event.
	 */
	struct abi_target target;
	__u64 target_version; /* targets_version at the copy; 0: the process was no target */
	struct thread_ids ids;
	__u64 tick, tick_ns; /* see header_fill_block() */

	struct request python, native;
	/* size that was requested of an empty pool, for the refill that follows; 0: not known */
	__u64 refill_bytes;
	/* the thread's last new block: an object that begins in it is not a reuse */
	__u64 last_block;
	__u64 last_bytes;
	__u64 last_free; /* address of a free that may be passed on to another allocator */
	__u64 tstate;    /* the thread's PyThreadState as last found */
	__u64 tstate_id; /* its thread_id at that time: that of the thread that created it */
	/* address of this thread's pointer to it, if it is thread-local; 0: not known */
	__u64 tstate_slot;
	__u32 tstate_space; /* abi_target.space_id in which tstate and tstate_slot were found */
	/* the request in progress makes a pool of this size (log2); 0: it does not make a pool */
	__u32 pool_bits;
	__u64 task_id; /* of the last EVENT_TASK; 0: no task, or none was sent yet */
	struct task_name task;
	/* address of the running task, or of the label's value; 0: none; UNREADABLE: not known */
	__u64 task_address;
	union {
		__u64 task_name; /* address of its name */
		/*
		 * the walk's nearest frame of the label's function; ABI_LABEL_GREENLET: the last
		 * frame of another one; 0: none
		 */
		__u64 label_frame;
		/* of the context, where label_found was looked up last; UNREADABLE: none was */
		__u64 label_tree;
	};
	union {
		__u64 label_found; /* with label_tree */
		/*
		 * of label_frame's code object, as in struct known_code; ABI_LABEL_GREENLET: its
		 * address
		 */
		__u64 label_words;
		/*
		 * ABI_LABEL_TASK before 3.14, where the task was found: hash of the dicts'
		 * versions; 3.13, whose dicts have none: position of the entry, a guess
		 */
		__u64 loop_seen;
	};
	/* last_free comes from a debugging hook: the object allocator may get it, too */
	__u32 last_hooked;
	__u32 reserved;     /* bytes of the ring buffer since the last read-ahead */
	__u32 walk;         /* number of walks, modulo 2^32: see walk_is_since() */
	__u32 known_since;  /* cached code objects are valid if met in this walk or a later one */
	__u32 tick_walk;    /* the last walk before the tick began */
	__u64 sample_bytes; /* the mean that sample_gap was drawn with */
	__u64 sample_gap;   /* bytes up to the next mark */
	struct known_code known[KNOWN_CODES]; /* by address: a direct-mapped cache */
	__u64 next_frame;                     /* of the walk in progress */
	__u64 run_end;                        /* last frame of the run in progress; 0: none */
	__u64 loop_call;                      /* the run's place on the stack: merged_stack.h */
	__u64 cframe;                         /* of the next run's call of the evaluation loop */
	__u64 above;                          /* the previous frame of the walk */
	__u64 lowest;                         /* lowest frame in a walk's first window */
	__u32 windows;                        /* number of windows that the walk has copied */
	/* bytes of line tables that may still be sent with the new stack */
	__u32 lines_left;
	struct block block;   /* being reported */
	struct event_map map; /* being reported */
	/* the first argument of the system call in progress, and the stack pointer then; 0: none */
	__u64 map_address, map_sp;
	__u64 weighted_bytes; /* that a sampled block stands for */
	__u32 walked;         /* the record that waits for its stack: enum walked */
	struct native_walk native_walk;
	/*
	 * The last ABI_OP_CALLER: its stack pointer (0: none), its caller's frame pointer, its
	 * return address.
	 */
	__u64 outer_sp, outer_frame, outer_caller;
	/* where functions with a return probe return to in this process; 0: not known */
	__u64 trampoline;
	__u64 returns[KNOWN_RETURNS]; /* addresses that are known to follow a call */
	__u64 window_begin;           /* address of what window is a copy of */
	__u64 window_frames;          /* frames at offsets below this are in the window */
	__u8 window[WINDOW_BYTES] __attribute__((aligned(8)));
	/* a frame that was copied alone */
	__u8 alone[FRAME_BYTES_MAX] __attribute__((aligned(8)));

	__u64 code[32]; /* the code object being read; 256 bytes */
	__u64 content[CONTENT_WORDS + 1];
	struct {
		struct event_header header;
		__u64 stack_id;
		__u32 nframe;
		__u32 total;
	} stack; /* struct event_stack, followed by its frames: they are sent as one record */
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
 * Processes that are not targets, but whose children and programs are reported: those that targets
 * have forked, such as a shell that will start another Python.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} followed SEC(".maps");

TASK_STATE(threads, struct thread_state)

/*
 * Where an object has the attribute that a step of a label's path leads to. It is valid while that
 * object lives and has the words `check` and `version`, which is that of its dict.
 */
struct label_hold {
	__u64 object;          /* 0: none */
	__u64 value_at;        /* 0: it has no such attribute */
	__u64 check_at, check; /* check_at 0: there is nothing to check; the same of version_at */
	__u64 version_at, version;
};

/* A second cache of code objects per thread, which is searched after thread_state.known. */
struct more_codes {
	struct known_code known[MORE_CODES];
	/*
	 * at the thread's last block. ABI_LABEL_GREENLET: of the greenlet's name; of the code
	 * object of the function that it runs, without more; of the thread's state of greenlet,
	 * with the main one as value_at
	 */
	struct label_hold label_holds[ABI_LABEL_STEPS];
	__u64 label_steps; /* so many of them */
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
 * The number of new blocks that are large enough for a code object, by address. Several addresses
 * share a counter.
 */
#define REUSE_COUNTS (1u << 16)
__u32 reuse_counts[REUSE_COUNTS];

static __always_inline __u32 *reuse_count_at(__u64 address)
{
	return &reuse_counts[address >> 4 & (REUSE_COUNTS - 1)];
}

/* 1: the kernel has bpf_loop() (5.17+). If 0, the verifier removes the calls as dead code. */
const volatile __u32 has_loop = 0;

/* 1: native stacks may be walked. If 0, the verifier removes the walk. */
const volatile __u32 has_native = 0;

/*
 * 1: something is told with the blocks of targets. If 0, the verifier removes all of python/task.h
 * and python/label.h as dead code.
 */
const volatile __u32 has_labels = 0;
__u32 label_source; /* enum abi_label_source */

static __always_inline int label_is(__u32 source)
{
	return has_labels && *(volatile __u32 *)&label_source == source;
}

static __always_inline int label_has_frame(void)
{
	return has_labels && *(volatile __u32 *)&label_source >= ABI_LABEL_LOCAL;
}

/*
 * The thread whose new block, requested with the GIL held, was a process's last one, by tgid. 0: it
 * is not known. Two processes that share an entry take it from each other.
 */
#define LAST_ALLOCATORS 1024u
__u32 last_allocators[LAST_ALLOCATORS];

static __always_inline __u32 *last_allocator(__u32 tgid)
{
	return &last_allocators[tgid & (LAST_ALLOCATORS - 1)];
}

/* The running process has a new block that nothing tells of. */
static __always_inline void last_allocator_forget(void)
{
	if (has_labels)
		*(volatile __u32 *)last_allocator(bpf_get_current_pid_tgid() >> 32) = 0;
}

/* Of the kernel, the unit of a mapping's offset. */
const volatile __u64 page_bytes = PAGE_BYTES;

/*
 * Calls step up to limit times, until it returns a value other than 0. With bpf_loop() the verifier
 * checks step once and not in every turn; its work is most of the time that attaching takes. step
 * must be static and not inline.
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

/* 1: the hits of each target's probes are counted now (abi_target.hits). */
__u32 counting;

/* What is told with each process's blocks, and where functions and types have what is read. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct abi_label);
} labels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct abi_label_key);
	__type(value, struct abi_label_code);
} label_codes SEC(".maps");

static __always_inline struct abi_label_code *label_code_find(__u32 codes_of, __u64 code)
{
	struct abi_label_key key = {.code = code, .tgid = codes_of};

	return bpf_map_lookup_elem(&label_codes, &key);
}

/* step: as in struct abi_label_key. */
static __always_inline struct abi_label_code *label_slot_find(__u32 codes_of, __u64 type,
							      __u32 step)
{
	struct abi_label_key key = {.code = type, .tgid = codes_of, .step = step};

	return bpf_map_lookup_elem(&label_codes, &key);
}

/* Incremented after every change of `targets`, by BPF or by user space. */
__u64 targets_version = 1;

static __always_inline struct abi_target *target_current(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&targets, &tgid);
}

/* Counts a hit of one of the running process's probes, if hits are counted. */
static __always_inline void hit_count(void)
{
	struct abi_target *target = *(volatile __u32 *)&counting ? target_current() : NULL;

	if (target)
		target->hits++;
}

static __always_inline void target_delete(__u32 tgid)
{
	bpf_map_delete_elem(&targets, &tgid);
	if (has_labels)
		bpf_map_delete_elem(&labels, &tgid);
	__sync_fetch_and_add(&targets_version, 1);
}

/* Refreshes the running thread's state from `targets`. 0; -1: its process is not a target. */
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
		last_allocator_forget();
		return -1;
	}
	/* A request may have returned when its function had no probe. */
	if (thread->target.window != target->window)
		thread->native.sp = thread->outer_sp = 0;
	if (thread->target.space_id != target->space_id)
		thread->task_id = 0;
	thread->task_address = UNREADABLE;
	if (label_is(ABI_LABEL_CONTEXT))
		thread->label_tree = UNREADABLE;
	thread->target = *target;
	thread->ids = thread_ids();
	thread->target_version = version;
	thread->known_since = thread->walk + 1;
	thread->trampoline = 0;
	if (target->paused == ABI_PAUSED_LARGE)
		thread->python.sp = 0;
	return 0;
}

/*
 * The running thread's state, with a current `target` member; NULL: its process is not a target.
 */
static __always_inline struct thread_state *thread_uncounted(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct thread_state *thread = threads_find(task);

	if (thread && thread->target_version == *(volatile __u64 *)&targets_version)
		return thread;
	return thread_refresh() ? NULL : threads_find(task);
}

/* The same at a probe, whose hit is counted. */
static __always_inline struct thread_state *thread_current(void)
{
	hit_count();
	return thread_uncounted();
}

/*
 * The same, but NULL if this layer is not traced: a file's probes are hit by every process that
 * maps it, and each process may be traced in another way.
 */
static __always_inline struct thread_state *thread_in_layer(enum event_layer layer)
{
	struct thread_state *thread = thread_current();

	if (layer == EVENT_LAYER_NATIVE && thread && thread->target.paused == ABI_PAUSED_NATIVE)
		return NULL;
	return thread && thread->target.layers & 1u << layer ? thread : NULL;
}

/*
 * At the thread's first record or walk in a kernel tick: notes the time, and the last walk before.
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
 * Fills in the header of a block's record. Reading the clock would cost a tenth of an allocation's
 * overhead, and the exact time is not needed: the time is that of the thread's first record in the
 * same kernel tick.
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
 * Reserves a block's record; NULL: the ring buffer is full. The reserved memory was last used a
 * full turn of the ring buffer ago and is in no cache: the end of the trap would wait for a store
 * to it, a tenth of a microsecond. So the next WINDOW_BYTES are read ahead into thread->window,
 * which fetches all their cache lines at once.
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
