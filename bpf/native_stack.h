/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The stack of a block of the native layer. */
#pragma once

#include "merged_stack.h"

/* Are Python's and native frames merged? Where calls of the evaluation loop are told. */
static __always_inline int is_merged(const struct abi_target *target)
{
	return target->runtime &&
	       (target->offsets.entry_from || target->offsets.cframe_previous != ABI_NONE ||
		target->loop_code[0].bytes);
}

/* Appends the native frames up to the interpreter's. 1: by tables; 0: by frame pointers. */
static __always_inline int native_part(struct thread_state *thread)
{
	struct native_walk *walk = &thread->native_walk;
	int by_table = has_loop && *(volatile __u32 *)&has_tables;

	if (walk->nframe <= 1 ||
	    (walk->at_interpreter && !(by_table && is_merged(&thread->target))))
		return by_table;
	by_table = by_table && !unwind_frames(thread);
	if (!by_table && !walk->at_interpreter)
		loop_run(EVENT_MAX_FRAMES / FRAMES_PER_TURN, native_frames_step, &thread);
	return by_table;
}

/*
 * Appends the Python frames, and the native ones between them. Returns the first Python frame
 * beyond the limit; 0: there is none.
 */
static __always_inline __u64 python_part(struct thread_state *thread, int by_table)
{
	struct native_walk *walk = &thread->native_walk;
	__u32 nframe = thread->stack.nframe;
	__u64 next;

	if (!thread->target.runtime)
		return 0;
	if (by_table && walk->at_interpreter && is_merged(&thread->target))
		return merged_frames(thread);
	next = python_frames_any(thread);
	walk->python_frames = thread->stack.nframe - nframe;
	return next;
}

/*
 * Walks again, for a thread without a Python frame: while the interpreter starts and ends, and
 * before C code has called Python. The interpreter's frames are then frames like others.
 */
__noinline int native_only(struct thread_state *thread)
{
	struct native_walk *walk;

	if (!has_loop || !thread)
		return 0;
	walk = &thread->native_walk;
	walk->at_interpreter = 0;
	stack_begin(thread);
	native_frame_append(thread, walk->caller);
	unwind_frames(thread);
	return 0;
}

static __always_inline void walk_reset(struct thread_state *thread)
{
	struct native_walk *walk = &thread->native_walk;

	walk->nframe =
		thread->target.nframe > EVENT_MAX_FRAMES ? EVENT_MAX_FRAMES : thread->target.nframe;
	walk->cut = 0;
	walk->python_frames = 0;
	walk->is_native_only = 0;
	walk->at_interpreter = in_interpreter(thread, walk->caller);
	stack_begin(thread);
	native_frame_append(thread, walk->caller);
}

/*
 * The id of the running thread's stack, native and Python, from the return address
 * thread->native_walk.caller on. The caller of this function has also set .frame and .below to the
 * frame pointer and the stack pointer after that return.
 */
__noinline __u64 native_stack_id(struct thread_state *thread)
{
	struct native_walk *walk;
	int is_new, is_full, by_table;
	__u64 next, id;
	__u32 more = 0;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk_reset(thread);
	by_table = native_part(thread);
	is_full = !walk->at_interpreter && thread->stack.nframe >= walk->nframe;
	next = python_part(thread, by_table);
	if (!walk->python_frames && !next) {
		walk->is_native_only = 1;
		if (walk->at_interpreter && by_table)
			native_only(thread);
		else if (walk->at_interpreter)
			walk->cut = EVENT_STACK_CUT;
		is_full = thread->stack.nframe >= walk->nframe;
	}
	id = stack_end(thread, &is_new);
	if (!is_new)
		return id;
	if (is_full)
		more = by_table ? unwind_frames_count(thread) : native_frames_count(thread);
	stack_emit(thread, next, more | walk->cut);
	return id;
}
