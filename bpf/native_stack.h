/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The stack of a block of the native layer. */
#ifndef TRACER_BPF_NATIVE_STACK_H
#define TRACER_BPF_NATIVE_STACK_H

#include "merged_stack.h"

#define OWNER_SKIP_NONE 255

/* Are Python's and native frames merged? They are since shims exist. */
static __always_inline int is_merged(const struct abi_target *target)
{
	return target->runtime && target->offsets.frame_owner != ABI_NONE &&
	       target->offsets.owner_skip != OWNER_SKIP_NONE;
}

/*
 * The id of the running thread's stack, native and Python, from the return address
 * thread->native_walk.caller on. The caller of this function has also set .frame and .below to the
 * frame pointer and the stack pointer after that return.
 */
__noinline __u64 native_stack_id(struct thread_state *thread)
{
	struct native_walk *walk;
	__u64 next = 0, id;
	__u32 more = 0;
	int is_new, is_full, by_table;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk->nframe =
		thread->target.nframe > EVENT_MAX_FRAMES ? EVENT_MAX_FRAMES : thread->target.nframe;
	walk->cut = 0;
	walk->at_interpreter = in_interpreter(&thread->target, walk->caller);
	stack_begin(thread);
	native_frame_append(thread, walk->caller);
	by_table = has_loop && *(volatile __u32 *)&has_tables;
	if (walk->nframe > 1 &&
	    (!walk->at_interpreter || (by_table && is_merged(&thread->target)))) {
		by_table = by_table && !unwind_frames(thread);
		if (!by_table && !walk->at_interpreter)
			loop_run(EVENT_MAX_FRAMES / FRAMES_PER_TURN, native_frames_step, &thread);
	}
	is_full = !walk->at_interpreter && thread->stack.nframe >= walk->nframe;
	if (thread->target.runtime)
		next = by_table && walk->at_interpreter && is_merged(&thread->target)
			       ? merged_frames(thread)
			       : python_frames_any(thread);
	id = stack_end(thread, &is_new);
	if (!is_new)
		return id;
	if (is_full)
		more = by_table ? unwind_frames_count(thread) : native_frames_count(thread);
	stack_emit(thread, next, more | walk->cut);
	return id;
}

#endif
