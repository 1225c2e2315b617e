/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of a native stack: by unwind tables (unwind/unwind.h), or on a kernel before 5.17 by its
 * frame pointers.
 *
 * It starts with a return address (the caller), and the stack and frame pointers after that return.
 * Where Python runs, the native frames end at the interpreter's own, and the thread's Python frames
 * follow, from 3.12 on with the native frames between them (merged_stack.h). A thread that has no
 * Python frame is walked to its outermost frame.
 *
 * By frame pointers it follows the caller's if the caller keeps one, else that of the nearest outer
 * frame which does. Code without frame pointers uses the register for anything. So a frame is valid
 * only if it lies above the previous one, at most STACK_BYTES_MAX above it, and if its return
 * address follows a call instruction.
 */
#pragma once

#include "python/stack.h"
#include "unwind/unwind.h"

/* Does a call end at this address? */
static __always_inline int follows_call(struct thread_state *thread, __u64 address)
{
	__u64 *known = &thread->returns[(address ^ address >> 6) & (KNOWN_RETURNS - 1)];

	if (!address)
		return 0;
	if (*known == address)
		return 1;
	if (!is_call_before(address))
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
	    !follows_call(thread, CODE_ADDRESS(pair[1])))
		return -1;
	walk->below = walk->frame + RETURN_BYTES; /* where the return address is, if it is pushed */
	walk->frame = pair[0];
	walk->caller = CODE_ADDRESS(pair[1]);
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
	       THREAD_POINTER(task) - walk->below < THREAD_BASE_BYTES;
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

/* Is this an interpreter's frame, which the thread's Python frames take the place of? */
static __always_inline int in_interpreter(const struct thread_state *thread, __u64 address)
{
	const struct abi_target *target = &thread->target;

	return !thread->native_walk.is_native_only &&
	       address - target->interpreter_start <
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
	if (in_interpreter(frames->thread, walk->caller))
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
			 * If even the caller has no valid frame pointer, neither its value nor the
			 * distance to the stack's base says anything.
			 */
			if (thread->stack.nframe == 1 || !walk_is_complete(walk))
				walk->cut = EVENT_STACK_CUT;
			return 1;
		}
		walk->at_interpreter = in_interpreter(thread, walk->caller);
		if (walk->at_interpreter)
			return 1;
		native_frame_append(thread, walk->caller);
	}
	return 0;
}

struct unwind_frames {
	struct thread_state *thread;
	struct unwind_state *unwind;
};

static __noinline long unwind_frames_step(__u32 turn UNUSED, void *context)
{
	struct unwind_frames *frames = context;
	struct thread_state *thread = frames->thread;
	struct native_walk *walk = &thread->native_walk;
	struct unwind_state *unwind = frames->unwind;

	if (thread->stack.nframe >= walk->nframe || unwind_step(unwind) || !unwind_is_frame(unwind))
		return 1;
	walk->at_interpreter = in_interpreter(thread, unwind->pc);
	if (walk->at_interpreter)
		return 1;
	native_frame_append(thread, unwind->pc);
	return 0;
}

static __noinline long unwind_count_step(__u32 turn UNUSED, void *context)
{
	struct unwind_frames *frames = context;
	struct unwind_state *unwind = frames->unwind;

	if (unwind_step(unwind) || !unwind_is_frame(unwind) ||
	    in_interpreter(frames->thread, unwind->pc))
		return 1;
	unwind->beyond++;
	return 0;
}

static __always_inline __u32 unwind_why(const struct unwind_state *unwind)
{
	return unwind->end == UNWIND_WHOLE ? 0 : EVENT_STACK_WHY(unwind->end);
}

/* Begins a walk at walk->caller. 1; 0: it ends at once. */
static __noinline int unwind_start(struct thread_state *thread, struct unwind_state *unwind)
{
	unwind_begin(unwind, thread, thread->native_walk.caller,
		     thread->native_walk.below + RETURN_BYTES, thread->native_walk.frame);
	unwind->is_interrupted = thread->native_walk.is_interrupted;
	return unwind_is_frame(unwind);
}

/* Appends the frames beyond the caller's, by tables. 0; -1: there is no memory for it. */
__noinline int unwind_frames(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_frames frames = {.thread = thread, .unwind = unwinds_get(task)};
	struct native_walk *walk;

	if (!has_loop || !thread || !frames.unwind)
		return -1;
	walk = &thread->native_walk;
	if (unwind_start(thread, frames.unwind) && !walk->at_interpreter)
		bpf_loop(EVENT_MAX_FRAMES, unwind_frames_step, &frames, 0);
	if (walk->at_interpreter || thread->stack.nframe >= walk->nframe)
		return 0;
	walk->cut = unwind_why(frames.unwind);
	/* The same frames may be a whole stack's, once a table is loaded. */
	if (walk->cut)
		thread->stack.stack_id = hash_word(thread->stack.stack_id, walk->cut);
	return 0;
}

/*
 * As native_frames_count(), from where unwind_frames() has reached the limit. With a limit of one
 * frame there was no walk.
 */
__noinline __u32 unwind_frames_count(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_frames frames = {.thread = thread, .unwind = unwinds_get(task)};

	if (!has_loop || !thread || !frames.unwind)
		return 0;
	frames.unwind->beyond = 0;
	if (thread->native_walk.nframe == 1 && !unwind_start(thread, frames.unwind))
		return unwind_why(frames.unwind);
	bpf_loop(TOTAL_LIMIT, unwind_count_step, &frames, 0);
	return frames.unwind->beyond | unwind_why(frames.unwind);
}
