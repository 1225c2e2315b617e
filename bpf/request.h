/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests in progress. A request that an allocator makes of another one is nested in it and is not
 * reported: PyObject_Malloc of more than 512 bytes calls the raw allocator, a realloc allocates,
 * copies and frees. The stack pointer at a request's entry says which requests are nested in it.
 */
#pragma once

#include "returns.h"
#include "state.h"
#include "user_word.h"

/*
 * Tail-called helpers of one request share its stack pointer. More requests than this at one stack
 * pointer mean that the return was lost.
 */
#define MAX_NESTED_EQUAL 4

/* No allocator calls another one deeper in the stack than this. */
#define NESTED_BYTES_MAX (64u << 10)
/*
 * In kernel ticks: 2 to 20 seconds. No request takes as long. If one does, the requests that it
 * makes are counted themselves.
 */
#define REQUEST_TICKS_MAX 2048u

enum request_state { REQUEST_GOES_ON, REQUEST_LEFT, REQUEST_THREW };

/* Where functions with a return probe return to; 0: not known. */
static __always_inline __u64 trampoline_find(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct xol_area *area = NULL;

	if (thread->trampoline || !bpf_core_field_exists(area->vaddr) ||
	    !bpf_core_field_exists(task->mm->uprobes_state))
		return thread->trampoline;
	area = BPF_CORE_READ(task, mm, uprobes_state.xol_area);
	if (area)
		thread->trampoline = BPF_CORE_READ(area, vaddr);
	return thread->trampoline;
}

/*
 * Is `request` still in progress when another request begins at stack pointer sp? A request whose
 * return was skipped (by a longjmp or a switch of stacks) is recognised by one of these: the new
 * request is above it or far below it in the stack; it is too old; its return address has been
 * overwritten by later calls.
 */
__noinline int request_state(struct thread_state *thread, struct request *request, __u64 sp)
{
	__u64 address;

	if (!thread || !request)
		return REQUEST_LEFT;
	address = request->by_return ? trampoline_find(thread) : request->caller;
	if (RETURN_IS_PUSHED && address && user_u64(request->sp) != address)
		return request->throws ? REQUEST_THREW : REQUEST_LEFT;
	if (sp > request->sp || request->sp - sp > NESTED_BYTES_MAX ||
	    (__u32)bpf_jiffies64() - request->tick > REQUEST_TICKS_MAX)
		return REQUEST_LEFT;
	return REQUEST_GOES_ON;
}

/*
 * Is a request at this stack pointer nested in the one in progress? If that one was left without a
 * return, it is dropped and counted.
 */
static __always_inline int request_is_nested(struct thread_state *thread, struct request *request,
					     __u64 sp)
{
	int state;

	if (!request->sp)
		return 0;
	state = request_state(thread, request, sp);
	if (state == REQUEST_GOES_ON &&
	    (sp < request->sp || request->nested_equal++ < MAX_NESTED_EQUAL))
		return 1;
	request->sp = 0;
	if (state != REQUEST_THREW) {
		loss_add(LOSS_RETURN, 1);
		last_allocator_forget();
	}
	return 0;
}

/*
 * May the return of the running thread's request not be probed? Then it is counted as not seen,
 * which may be another one's that is nested in it, too.
 */
static __always_inline int request_is_barred(void)
{
	if (!task_bars_returns((void *)bpf_get_current_task_btf()))
		return 0;
	loss_add(LOSS_RETURN, 1);
	last_allocator_forget();
	return 1;
}

/* by_return: it has a return probe; caller: without one, its return address, 0: not known. */
static __always_inline void request_start(struct request *request, __u64 sp, int by_return,
					  __u64 caller)
{
	request->nested_equal = 0;
	request->by_return = by_return;
	request->caller = caller;
	request->throws = 0;
	request->tick = (__u32)bpf_jiffies64();
	request->sp = sp;
}
