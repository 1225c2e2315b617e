/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of a native stack by its frame pointers.
 *
 * It starts with a return address (the caller) and a frame pointer: that of the caller's frame if
 * the caller keeps one, else that of the nearest outer frame which does. Code without frame
 * pointers uses the register for anything. So a frame is valid only if it lies above the previous
 * one, at most STACK_BYTES_MAX above it, and if its return address follows a call instruction.
 * Where Python runs, the native frames end at the interpreter's own, and the thread's Python frames
 * follow.
 */
#ifndef TRACER_BPF_NATIVE_STACK_H
#define TRACER_BPF_NATIVE_STACK_H

#include "python/stack.h"

#define STACK_BYTES_MAX (8ull << 20) /* between two frames */
#define MAIN_BASE_BYTES 1024         /* libc's own frames below main's */
/* a thread's stack begins below its thread-local variables, which end at the fs base */
#define THREAD_BASE_BYTES 8192

/* Does a call end at this address? E8 rel32, or FF /2 in its forms of 2, 3, 4, 6 and 7 bytes. */
static __always_inline int follows_call(struct thread_state *thread, __u64 address)
{
	__u64 *known = &thread->returns[(address ^ address >> 6) & (KNOWN_RETURNS - 1)];
	__u8 code[8];

	if (!address)
		return 0;
	if (*known == address)
		return 1;
	if (bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))))
		return 0;
	if (code[3] != 0xe8 && !(code[6] == 0xff && (code[7] & 0x38) == 0x10) &&
	    !(code[5] == 0xff && (code[6] & 0x38) == 0x10) &&
	    !(code[4] == 0xff && (code[5] & 0x38) == 0x10) &&
	    !(code[2] == 0xff && (code[3] & 0x38) == 0x10) &&
	    !(code[1] == 0xff && (code[2] & 0x38) == 0x10))
		return 0;
	*known = address;
	return 1;
}

/*
 * Goes to the next frame: sets walk->caller and moves walk->frame and walk->below up. 0; -1: there
 * is no valid next frame.
 */
__noinline int native_step(struct thread_state *thread)
{
	__u64 pair[2]; /* the next frame pointer, the return address */
	struct native_walk *walk;

	if (!thread)
		return -1;
	walk = &thread->native_walk;
	if (walk->frame & 7 || walk->frame <= walk->below ||
	    walk->frame - walk->below > STACK_BYTES_MAX ||
	    bpf_probe_read_user(pair, sizeof(pair), (void *)walk->frame) ||
	    !follows_call(thread, pair[1]))
		return -1;
	walk->below = walk->frame;
	walk->frame = pair[0];
	walk->caller = pair[1];
	return 0;
}

/*
 * Has a walk that found no next frame reached the end of the stack? The ABI says that the outermost
 * frame pointer is 0. libc's functions that call main or a thread's first function need not follow
 * it, so the stack's base ends the walk, too.
 */
static __always_inline int walk_is_complete(const struct native_walk *walk)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return !walk->frame ||
	       BPF_CORE_READ(task, mm, start_stack) - walk->below < MAIN_BASE_BYTES ||
	       task->thread.fsbase - walk->below < THREAD_BASE_BYTES;
}

static __always_inline void native_frame_append(struct thread_state *thread, __u64 address)
{
	__u32 slot = thread->stack.nframe & (EVENT_MAX_FRAMES - 1);

	thread->frames[slot].code_id = address;
	thread->frames[slot].lasti = 0;
	thread->frames[slot].kind = EVENT_FRAME_NATIVE;
	thread->stack.stack_id = hash_word(thread->stack.stack_id, address);
	thread->stack.nframe++;
}

static __always_inline int in_interpreter(const struct abi_target *target, __u64 address)
{
	return address - target->interpreter_start <
	       target->interpreter_end - target->interpreter_start;
}

struct native_frames_count {
	struct thread_state *thread;
	__u32 count;
	__u32 cut; /* EVENT_STACK_CUT or 0 */
};

static __noinline long native_frames_count_step(__u32 turn UNUSED, void *context)
{
	struct native_frames_count *frames = context;
	struct native_walk *walk = &frames->thread->native_walk;

	if (native_step(frames->thread)) {
		frames->cut = walk_is_complete(walk) ? 0 : EVENT_STACK_CUT;
		return 1;
	}
	if (in_interpreter(&frames->thread->target, walk->caller))
		return 1;
	frames->count++;
	return 0;
}

/*
 * The number of frames beyond the limit, for event_stack.total | EVENT_STACK_CUT. Counted only for
 * a new stack.
 */
__noinline __u32 native_frames_count(struct thread_state *thread)
{
	struct native_frames_count frames = {.thread = thread};

	if (!thread)
		return 0;
	loop_run(TOTAL_LIMIT, native_frames_count_step, &frames);
	return frames.count | frames.cut;
}

#define FRAMES_PER_TURN 8 /* the verifier checks this many, not all that a walk can have */

static __noinline long native_frames_step(__u32 turn UNUSED, void *context)
{
	struct thread_state *thread = *(struct thread_state **)context;
	struct native_walk *walk = &thread->native_walk;
	int i;

	for (i = 0; i < FRAMES_PER_TURN; i++) {
		if (thread->stack.nframe >= walk->nframe)
			return 1;
		/*
		 * The return probe of Python's request in progress has replaced its return address,
		 * which is in the interpreter.
		 */
		if (thread->python.sp && walk->frame + 8 == thread->python.sp)
			return 1;
		if (native_step(thread)) {
			/*
			 * If even the caller has no valid frame pointer, the distance to the
			 * stack's base is meaningless.
			 */
			if (walk->frame && (thread->stack.nframe == 1 || !walk_is_complete(walk)))
				walk->cut = EVENT_STACK_CUT;
			return 1;
		}
		walk->at_interpreter = in_interpreter(&thread->target, walk->caller);
		if (walk->at_interpreter)
			return 1;
		native_frame_append(thread, walk->caller);
	}
	return 0;
}

/*
 * The id of the running thread's stack, native and Python, from the return address `caller` on. The
 * caller of this function has set thread->native_walk.frame and .below to the frame pointer and the
 * stack pointer after that return.
 */
__noinline __u64 native_stack_id(struct thread_state *thread, __u64 caller)
{
	struct native_walk *walk;
	__u64 next = 0, id;
	__u32 more = 0;
	int is_new, is_full;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk->nframe =
		thread->target.nframe > EVENT_MAX_FRAMES ? EVENT_MAX_FRAMES : thread->target.nframe;
	walk->cut = 0;
	walk->at_interpreter = in_interpreter(&thread->target, caller);
	stack_begin(thread);
	native_frame_append(thread, caller);
	if (!walk->at_interpreter)
		loop_run(EVENT_MAX_FRAMES / FRAMES_PER_TURN, native_frames_step, &thread);
	is_full = !walk->at_interpreter && thread->stack.nframe >= walk->nframe;
	if (thread->target.runtime)
		next = python_frames_any(thread);
	id = stack_end(thread, &is_new);
	if (!is_new)
		return id;
	if (is_full)
		more = native_frames_count(thread);
	stack_emit(thread, next, more | walk->cut);
	return id;
}

#endif
