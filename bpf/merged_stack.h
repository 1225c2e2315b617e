/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Native and Python frames in the order of their calls, where C code called Python that called C.
 *
 * A run is what one call of the evaluation loop executes: one frame up to 3.10, the frames up to
 * the first entry frame from 3.11 on. What a run calls lies below the native frame of its call of
 * the loop, what called the loop lies above it. That native frame is known by
 *
 * - a variable in it: the C-stack shim, which is the entry frame itself (3.12+), or the _PyCFrame,
 *   of which there is a list (3.10, 3.11);
 * - its code (3.8, 3.9).
 *
 * The native frames up to it go before the run. The interpreter's own frames are left out.
 */
#pragma once

#include "native_frames.h"

#define FRAMES_BELOW_MAX 512 /* native frames inspected of one run */
/* Calls of the evaluation loop; frames of further ones are not merged. */
#define RUNS_MAX EVENT_MAX_FRAMES

#define CALL_BY_CODE 1 /* thread->loop_call: the next frame in the loop's code */

struct run_search {
	struct thread_state *thread;
	__u64 frame; /* the next one */
	__u64 end;
};

static __noinline long run_search_step(__u32 turn UNUSED, void *context)
{
	struct run_search *search = context;
	struct thread_state *thread = search->thread;
	const struct abi_offsets *offsets = &thread->target.offsets;
	__u8 *frame = search->frame ? frame_read(thread, search->frame) : NULL;

	if (!frame)
		return 1;
	thread->above = search->frame;
	if (FRAME_U8(frame, offsets->frame_entry) >= offsets->entry_from) {
		search->end = search->frame;
		return 1;
	}
	search->frame = FRAME_U64(frame, offsets->frame_previous);
	return 0;
}

/*
 * The last frame of the run that begins with this one; 0: none was found. The frames up to it are
 * then in the window, if it holds so many.
 */
__noinline __u64 run_end_find(struct thread_state *thread, __u64 frame)
{
	struct run_search search = {.thread = thread};

	if (!thread)
		return 0;
	if (!thread->target.offsets.entry_from)
		return frame;
	/*
	 * By way of memory: otherwise the verifier of 6.19 knows that a register holds it, too, and
	 * fails as it follows that one back into the step ("callback unexpected regs").
	 */
	thread->above = frame;
	search.frame = *(volatile __u64 *)&thread->above;
	loop_run(WALK_LIMIT, run_search_step, &search);
	thread->above = frame; /* the walk has still to begin */
	return search.end;
}

/* The thread's first _PyCFrame, where there are such. */
static __always_inline void loop_calls_begin(struct thread_state *thread)
{
	const struct abi_offsets *offsets = &thread->target.offsets;

	thread->cframe = 0;
	if (offsets->cframe_previous != ABI_NONE)
		thread->cframe = user_u64(thread->tstate + offsets->tstate_cframe);
}

/* Sets thread->loop_call, for the run that ends with thread->run_end; 0: not known. */
static __always_inline void loop_call_find(struct thread_state *thread)
{
	const struct abi_offsets *offsets = &thread->target.offsets;

	if (offsets->cframe_previous != ABI_NONE) {
		thread->loop_call = thread->cframe;
		if (thread->cframe)
			thread->cframe = user_u64(thread->cframe + offsets->cframe_previous);
	} else {
		thread->loop_call = offsets->entry_from ? thread->run_end : CALL_BY_CODE;
	}
}

static __always_inline int in_loop_code(const struct thread_state *thread, __u64 address)
{
	const struct abi_code *code = thread->target.loop_code;

	/* A call may be the last instruction. */
	return address - 1 - code[0].start < code[0].bytes ||
	       address - 1 - code[1].start < code[1].bytes;
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
	if (thread->loop_call == CALL_BY_CODE) {
		if (in_loop_code(thread, unwind->pc))
			return 1;
	} else if (unwind->sp > thread->loop_call) { /* the loop's caller, the interpreter's */
		return 1;
	}
	if (!in_interpreter(thread, unwind->pc))
		native_frame_append(thread, unwind->pc);
	return 0;
}

/*
 * The loop's code was not met up to the stack's end: which of the frames the run has called is not
 * known.
 */
static __always_inline void frames_drop(struct thread_state *thread, __u32 nframe, __u64 id)
{
	thread->stack.nframe = nframe;
	thread->stack.stack_id = id;
	thread->native_walk.cut = 0;
	thread->native_walk.at_interpreter = 0;
}

/* Appends the native frames up to thread->loop_call, but for the interpreter's. */
__noinline int frames_below_append(struct thread_state *thread, int is_first)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_frames frames = {.thread = thread, .unwind = unwinds_get(task)};
	__u32 nframe;
	__u64 id;

	if (!has_loop || !thread || !frames.unwind)
		return 0;
	/* Another stack, or a structure of the heap. */
	if (thread->loop_call != CALL_BY_CODE &&
	    (frames.unwind->sp > thread->loop_call || thread->loop_call >= frames.unwind->top))
		return 0;
	if (thread->loop_call == CALL_BY_CODE && is_first &&
	    in_loop_code(thread, frames.unwind->pc))
		return 0;
	nframe = thread->stack.nframe;
	id = thread->stack.stack_id;
	bpf_loop(FRAMES_BELOW_MAX, frames_below_step, &frames, 0);
	if (thread->loop_call == CALL_BY_CODE && !in_loop_code(thread, frames.unwind->pc) &&
	    thread->stack.nframe < thread->native_walk.nframe)
		frames_drop(thread, nframe, id);
	return 0;
}

/*
 * Appends the run of Python frames from thread->next_frame on, and the native frames below it. The
 * last run takes all frames: where native ones cannot be told, and beyond RUNS_MAX. 0; 1: there is
 * no other run, or the limit is reached.
 */
__noinline int run_append(struct thread_state *thread, __u32 run)
{
	struct native_walk *walk;
	__u32 nframe;

	if (!thread || !thread->next_frame)
		return 1;
	walk = &thread->native_walk;
	thread->run_end = run < RUNS_MAX && walk->at_interpreter
				  ? run_end_find(thread, thread->next_frame)
				  : 0;
	if (thread->run_end) {
		loop_call_find(thread);
		frames_below_append(thread, !run);
	}
	nframe = thread->stack.nframe;
	if (frames_append(thread, walk->nframe))
		thread->next_frame = 0;
	walk->python_frames += thread->stack.nframe - nframe;
	return !thread->run_end || thread->stack.nframe >= walk->nframe;
}

/* Begins the walk of the running thread's Python frames. */
__noinline int python_walk_begin(struct thread_state *thread)
{
	if (!thread)
		return 0;
	if (python_frames_begin(thread, 0))
		thread->next_frame = 0;
	loop_calls_begin(thread);
	return 0;
}

/*
 * Appends the frames beyond the interpreter's, at which the native walk stands. Returns the first
 * Python frame beyond the limit; 0: there is none.
 */
static __always_inline __u64 merged_frames(struct thread_state *thread)
{
	struct native_walk *walk = &thread->native_walk;
	__u32 i;

	python_walk_begin(thread);
	for (i = 0; i <= RUNS_MAX; i++)
		if (run_append(thread, i))
			break;
	/* The same frames may be a whole stack's, once a table is loaded. */
	if (walk->cut)
		thread->stack.stack_id = hash_word(thread->stack.stack_id, walk->cut);
	return thread->next_frame;
}
