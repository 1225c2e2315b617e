/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the running thread's PyThreadState and its innermost frame.
 */
#pragma once

#include "state.h"
#include "user_word.h"

#define THREADS_LIMIT 1024 /* thread states inspected for a match */

struct tstate_search {
	struct abi_target *target;
	__u64 fsbase;
	__u64 interp, tstate; /* the next ones */
};

static __noinline long tstate_search_step(__u32 turn UNUSED, void *context)
{
	struct tstate_search *search = context;
	const struct abi_offsets *offsets = &search->target->offsets;
	__u64 tstate = search->tstate;

	if (!tstate) {
		if (!search->interp)
			return 1;
		search->tstate = user_u64(search->interp + offsets->interp_threads_head);
		search->interp = user_u64(search->interp + offsets->interp_next);
		return 0;
	}
	if (IS_THREAD_ID(user_u64(tstate + offsets->tstate_thread_id), search->fsbase))
		return 1;
	search->tstate = user_u64(tstate + offsets->tstate_next);
	return 0;
}

static __always_inline __u64 tstate_thread_id(struct abi_target *target, __u64 tstate)
{
	return tstate ? user_u64(tstate + target->offsets.tstate_thread_id) : 0;
}

/*
 * The thread state whose thread_id is this thread's fs base, from the interpreters' lists; 0: none.
 */
__noinline __u64 tstate_match(struct abi_target *target, __u64 fsbase)
{
	struct tstate_search search = {.target = target, .fsbase = fsbase};

	if (!target)
		return 0;
	search.interp =
		user_u64_called(target->runtime + target->offsets.runtime_interpreters_head);
	loop_run(THREADS_LIMIT, tstate_search_step, &search);
	/* The search may have ended at its limit, in the middle of the lists. */
	return IS_THREAD_ID(user_u64_called(search.tstate + target->offsets.tstate_thread_id),
			    fsbase)
		       ? search.tstate
		       : 0;
}

/*
 * The thread's block of a module's thread-local variables; 0: none yet. A library that was loaded
 * later may be beyond the length of the thread's vector (dtv[-1]), and a block that was not used
 * yet is -1 (glibc, sysdeps/generic/dl-dtv.h).
 */
static __always_inline __u64 tls_block(__u64 fsbase, __u64 module)
{
	__u64 vector = user_u64(fsbase + THREAD_VECTOR_OFFSET), block;

	if (module > user_u64(vector - 16))
		return 0;
	block = user_u64(vector + module * 16);
	return block == ~0ull ? 0 : block;
}

/* The address of the pointer to the current thread state; 0: there is none. */
static __always_inline __u64 tstate_slot(struct thread_state *thread, struct abi_target *target,
					 __u64 fsbase)
{
	__u64 block;

	if (target->tstate_source == ABI_TSTATE_SLOT)
		return target->tstate_address;
	if (target->tstate_source == ABI_TSTATE_TLS)
		return fsbase + target->tstate_address;
	if (target->tstate_source != ABI_TSTATE_DTV)
		return 0;
	/* A thread's block of thread-local variables does not move. */
	if (thread->tstate_slot)
		return thread->tstate_slot;
	block = tls_block(fsbase, target->tls_module);
	return block ? block + target->tstate_address : 0;
}

/* *frame: the innermost frame of a thread state; 0: none. Returns 0; -1: no thread state. */
static __always_inline int frame_first(struct abi_target *target, __u64 tstate, __u64 *frame)
{
	__u64 at = tstate + target->offsets.tstate_frame;

	if (!tstate)
		return -1;
	if (target->offsets.tstate_frame == ABI_NONE) {
		at = user_pointer(tstate + target->offsets.tstate_cframe);
		if (at == UNREADABLE)
			return -1;
		at += target->offsets.cframe_current_frame;
	}
	*frame = user_pointer(at);
	return *frame == UNREADABLE ? -1 : 0;
}

/*
 * *frame: the innermost frame of the running thread, whether it holds the GIL or not. Returns 0;
 * -1: it is not a Python thread.
 *
 * The thread_id of a PyThreadState is that of the thread that created it, which for a
 * sub-interpreter's state (before 3.13) need not be the thread that runs it. So the id is compared
 * only where it is needed: up to 3.11 a single slot holds the state of the thread that holds the
 * GIL, which may be another thread.
 */
static __always_inline int frame_find(struct thread_state *thread, struct abi_target *target,
				      int gil_held, __u64 *frame)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u64 fsbase = THREAD_POINTER(task);
	__u64 tstate = 0, slot;

	if (thread->tstate_space != target->space_id) {
		thread->tstate = 0;
		thread->tstate_slot = 0;
		thread->tstate_space = target->space_id;
	}
	slot = tstate_slot(thread, target, fsbase);
	if (slot)
		tstate = user_u64(slot);
	if ((gil_held || target->tstate_source != ABI_TSTATE_SLOT ||
	     IS_THREAD_ID(tstate_thread_id(target, tstate), fsbase)) &&
	    !frame_first(target, tstate, frame)) {
		if (thread->tstate != tstate) {
			thread->tstate = tstate;
			thread->tstate_id = tstate_thread_id(target, tstate);
			thread->tstate_slot = slot;
		}
		return 0;
	}
	/* Without the GIL: the state that was found last, or a search. */
	tstate = thread->tstate;
	if (!tstate || tstate_thread_id(target, tstate) != thread->tstate_id) {
		tstate = tstate_match(target, fsbase);
		thread->tstate = tstate;
		thread->tstate_id = fsbase;
	}
	return frame_first(target, tstate, frame);
}
