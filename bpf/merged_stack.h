/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Native and Python frames in the order of their calls, where C code called Python that called C.
 *
 * From 3.12 on each call of the evaluation loop has an entry frame, the C-stack shim, in its own
 * native frame. The Python frames up to the shim are those that this call executes; what they call
 * lies below the shim on the stack, and what called the loop lies above it. So a native frame goes
 * before a run of Python frames if its stack pointer is not above the run's shim. The interpreter's
 * own frames are left out.
 */
#ifndef TRACER_BPF_MERGED_STACK_H
#define TRACER_BPF_MERGED_STACK_H

#include "native_frames.h"

#define FRAMES_BELOW_MAX 512 /* native frames inspected of one run */
/* Calls of the evaluation loop; frames of further ones are not merged. */
#define RUNS_MAX 64

struct shim_search {
	struct thread_state *thread;
	__u64 frame; /* the next one */
	__u64 shim;
};

static __noinline long shim_search_step(__u32 turn UNUSED, void *context)
{
	struct shim_search *search = context;
	struct thread_state *thread = search->thread;
	const struct abi_offsets *offsets = &thread->target.offsets;
	__u8 *frame = search->frame ? frame_read(thread, search->frame) : NULL;

	if (!frame)
		return 1;
	thread->above = search->frame;
	if (FRAME_U8(frame, offsets->frame_owner) >= offsets->owner_skip) {
		search->shim = search->frame;
		return 1;
	}
	search->frame = FRAME_U64(frame, offsets->frame_previous);
	return 0;
}

/*
 * The shim of the evaluation loop's call that executes the frame; 0: none was found. The frames up
 * to it are then in the window, if it holds so many.
 */
__noinline __u64 shim_find(struct thread_state *thread, __u64 frame)
{
	struct shim_search search = {.thread = thread, .frame = frame};

	if (!thread)
		return 0;
	loop_run(WALK_LIMIT, shim_search_step, &search);
	thread->above = frame; /* the walk has still to begin */
	return search.shim;
}

static __noinline long frames_below_step(__u32 turn UNUSED, void *context)
{
	struct unwind_frames *frames = context;
	struct thread_state *thread = frames->thread;
	struct unwind_state *unwind = frames->unwind;

	if (thread->stack.nframe >= thread->native_walk.nframe)
		return 1;
	if (unwind_step(unwind) || !unwind_is_frame(unwind)) {
		thread->native_walk.cut = unwind_why(unwind);
		thread->native_walk.at_interpreter = 0;
		return 1;
	}
	if (unwind->sp > thread->shim) /* the loop's caller, which is the interpreter's */
		return 1;
	if (!in_interpreter(thread, unwind->pc))
		native_frame_append(thread, unwind->pc);
	return 0;
}

/* Appends the native frames that lie below thread->shim, but for the interpreter's. */
__noinline int frames_below_append(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_frames frames = {.thread = thread, .unwind = unwinds_get(task)};

	if (!has_loop || !thread || !frames.unwind)
		return 0;
	/* Another stack, or a structure of the heap. */
	if (frames.unwind->sp > thread->shim || thread->shim >= frames.unwind->top)
		return 0;
	bpf_loop(FRAMES_BELOW_MAX, frames_below_step, &frames, 0);
	return 0;
}

/*
 * Appends Python frames from `frame` on up to thread->shim (0: all), up to the limit. Returns the
 * frame after the last one; 0: there is none.
 */
__noinline __u64 python_run_append(struct thread_state *thread, __u64 frame)
{
	struct native_walk *walk;
	__u32 nframe, i;
	__u64 appended;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	nframe = thread->stack.nframe;
	for (i = 0; i < WALK_LIMIT && frame && thread->stack.nframe < walk->nframe; i++) {
		appended = frame;
		if (frame_append(thread, frame)) {
			loss_add(LOSS_FRAME_FAULT, 1);
			frame = 0;
			break;
		}
		frame = thread->next_frame;
		if (appended == thread->shim)
			break;
	}
	walk->python_frames += thread->stack.nframe - nframe;
	return frame;
}

/* Begins the walk of the running thread's Python frames. Returns the first; 0: there is none. */
__noinline __u64 python_first_frame(struct thread_state *thread)
{
	__u64 frame;

	if (!thread || python_frames_begin(thread, 0, &frame))
		return 0;
	return frame;
}

/*
 * Appends the frames beyond the interpreter's, at which the native walk stands. Returns the first
 * Python frame beyond the limit; 0: there is none.
 */
__noinline __u64 merged_frames(struct thread_state *thread)
{
	struct native_walk *walk;
	__u64 frame;
	int i;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	frame = python_first_frame(thread);
	for (i = 0; i < RUNS_MAX && frame && walk->at_interpreter; i++) {
		thread->shim = shim_find(thread, frame);
		if (!thread->shim)
			break;
		frames_below_append(thread);
		frame = python_run_append(thread, frame);
		if (thread->stack.nframe >= walk->nframe)
			return frame;
	}
	thread->shim = 0;
	frame = frame ? python_run_append(thread, frame) : 0;
	/* The same frames may be a whole stack's, once a table is loaded. */
	if (walk->cut)
		thread->stack.stack_id = hash_word(thread->stack.stack_id, walk->cut);
	return frame;
}

#endif
