/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * malloc and its kin: a layer below Python's allocators, with requests and a table of its own.
 * Nested requests are handled as those of Python's allocators: operator new calls malloc, calloc
 * may jump to it, and only the outermost one is reported.
 *
 * A request's stack is walked at its return (walk.h), when the caller's registers are restored but
 * for the result.
 */
#pragma once

#include "block.h"
#include "registers.h"
#include "request.h"
#include "walk.h"

#define OUTER_BYTES_MAX 512 /* of stack, between operator new and what it calls */

/*
 * A block is new, unless it is outside the sample: notes it and where its stack begins. 1: the walk
 * is to be begun.
 */
static __always_inline int native_output(struct pt_regs *regs, struct thread_state *thread,
					 __u32 type, __u64 address, __u64 bytes)
{
	__u64 sp = thread->native.sp, caller = REG_PC(regs);

	/*
	 * Otherwise the compiler merges the two loads into one of a computed address, which the
	 * verifier rejects.
	 */
	asm volatile("" : "+r"(caller));
	/* At a ret instruction the return address has not been popped yet. */
	if (RETURN_IS_PUSHED ? REG_SP(regs) == sp : !thread->native.by_return)
		caller = thread->native.caller;
	thread->native_walk.frame = REG_FRAME(regs);
	thread->native_walk.below = sp;
	if (thread->outer_sp - sp < OUTER_BYTES_MAX) {
		thread->native_walk.frame = thread->outer_frame;
		thread->native_walk.below = thread->outer_sp;
		caller = thread->outer_caller;
	}
	thread->native_walk.caller = caller;
	thread->block = (struct block){
		.type = type, .address = address, .bytes = bytes, .api = EVENT_API_NATIVE};
	thread->walked = WALKED_BLOCK;
	return block_is_wanted(thread);
}

/* count * bytes; ~0 on overflow, which no allocator can return. */
static __always_inline __u64 product(__u64 count, __u64 bytes)
{
	__u64 limit = count ? ~0ull / count : 0;

	/* Otherwise the compiler makes a 128-bit multiplication of it, which BPF lacks. */
	asm volatile("" : "+r"(limit));
	return count && bytes > limit ? ~0ull : count * bytes;
}

/*
 * Is it nested in a request in progress? A request without a return probe may have jumped to this
 * function, which has one: then this return is the end of the outer request, and *wanted is 1.
 */
static __always_inline int native_is_nested(struct pt_regs *regs, struct thread_state *thread,
					    int *wanted)
{
	struct request *request = &thread->native;

	if (!request_is_nested(thread, request, REG_SP(regs)))
		return 0;
	*wanted = request->sp == REG_SP(regs) && request->caller;
	if (*wanted) {
		request->caller = 0;
		request->by_return = 1;
	}
	return 1;
}

/* As request_begin(). by_return: it has a return probe. */
static __always_inline int native_begin(struct pt_regs *regs, int by_return)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	struct request *request;
	int wanted = 0;
	__u64 cookie;

	if (!thread)
		return 1;
	if (by_return ? native_is_nested(regs, thread, &wanted)
		      : request_is_nested(thread, &thread->native, REG_SP(regs)))
		return !wanted;
	cookie = bpf_get_attach_cookie(regs);
	request = &thread->native;
	request->old_address = 0;
	request->op = cookie & 0xff;
	if (thread->target.layers & 1u << EVENT_LAYER_MMAP) {
		request->from = REG_CALLER(regs);
		request->frame = REG_FRAME(regs);
	}
	switch (request->op) {
	case ABI_OP_MALLOC:
		request->bytes = argument(regs, cookie, 0);
		break;
	case ABI_OP_CALLOC:
		request->bytes = product(argument(regs, cookie, 0), argument(regs, cookie, 1));
		break;
	case ABI_OP_REALLOC:
	case ABI_OP_XALLOCX:
		request->old_address = argument(regs, cookie, 0);
		request->result_at = request->old_address;
		request->bytes = argument(regs, cookie, 1);
		break;
	case ABI_OP_REALLOCARRAY:
		request->old_address = argument(regs, cookie, 0);
		request->bytes = product(argument(regs, cookie, 1), argument(regs, cookie, 2));
		break;
	case ABI_OP_POSIX_MEMALIGN:
		request->result_at = argument(regs, cookie, 0);
		request->bytes = argument(regs, cookie, 1);
		break;
	default:
		return 1;
	}
	if (by_return && request_is_barred()) {
		if (request->old_address)
			free_output(thread, EVENT_FREE, request->old_address, 0, EVENT_API_NATIVE);
		return 1;
	}
	request_start(request, REG_SP(regs), by_return, by_return ? 0 : REG_CALLER(regs));
	request->throws = !by_return && !(cookie >> 40 & ABI_NATIVE_RETURNS);
	/* The realloc of a block outside the sample is traced as an allocation. */
	if (request->old_address &&
	    !free_output(thread, EVENT_REALLOC, request->old_address, 0, EVENT_API_NATIVE))
		request->old_address = 0;
	return 0;
}

/*
 * The block that the request allocated, given its return value; 0: none, or the old block is
 * unchanged.
 */
static __always_inline __u64 native_block(const struct request *request, __u64 result)
{
	if (request->op == ABI_OP_POSIX_MEMALIGN)
		return (__u32)result ? 0 : user_u64(request->result_at);
	if (request->op == ABI_OP_XALLOCX)
		return result < request->bytes ? 0 : request->result_at;
	return result;
}

/*
 * A request ends: sp is the stack pointer that it had at its entry. 1: the walk is to be begun.
 */
static __always_inline int native_end(struct pt_regs *regs, __u64 sp, __u64 result)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	struct request *request;
	__u64 address;
	int waits = 0;

	if (!thread || !thread->native.sp || sp != thread->native.sp)
		return 0;
	request = &thread->native;
	address = native_block(request, result);
	if (address)
		waits = native_output(regs, thread,
				      request->old_address ? EVENT_REALLOC_DONE : EVENT_ALLOC,
				      address, request->bytes);
	/*
	 * A realloc to 0 bytes that returns NULL has freed the block (glibc); its EVENT_REALLOC has
	 * reported that.
	 */
	else if (request->old_address && request->bytes)
		realloc_fail_output(thread, request->old_address, EVENT_API_NATIVE);
	request->sp = 0;
	thread->outer_sp = 0;
	return waits;
}

SEC("uprobe")
int native_session(struct pt_regs *regs)
{
	if (!session_is_return(regs))
		return native_begin(regs, 1);
	/* The return has popped the return address. */
	if (native_end(regs, REG_SP(regs) - RETURN_BYTES, REG_RESULT(regs)))
		walk_begin(regs, &session_walks);
	return 0;
}

/* The same on kernels without sessions. */
SEC("uprobe")
int native_entry(struct pt_regs *regs)
{
	native_begin(regs, 1);
	return 0;
}

SEC("uprobe")
int native_return(struct pt_regs *regs)
{
	if (native_end(regs, REG_SP(regs) - RETURN_BYTES, REG_RESULT(regs)))
		walk_begin(regs, &walks);
	return 0;
}

/*
 * Calls without a return probe. A block may be reported as freed twice, by operator delete and by
 * the free that it calls. The second record comes before the address can be reused, so user space
 * recognises it. Functions that may throw instead of returning have their entry here, and their
 * ends.
 */
SEC("uprobe")
int native_once(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	__u64 cookie, address;
	int waits = 0;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	switch (cookie & 0xff) {
	case ABI_OP_FREE:
		address = argument(regs, cookie, 0);
		if (address && !request_is_nested(thread, &thread->native, REG_SP(regs)))
			free_output(thread, EVENT_FREE, address, 0, EVENT_API_NATIVE);
		break;
	case ABI_OP_CALLER:
		/* operator new[] calls operator new. */
		if (!request_is_nested(thread, &thread->native, REG_SP(regs)) &&
		    thread->outer_sp - REG_SP(regs) - 1 >= OUTER_BYTES_MAX) {
			thread->outer_sp = REG_SP(regs);
			thread->outer_frame = REG_FRAME(regs);
			thread->outer_caller = REG_CALLER(regs);
		}
		break;
	case ABI_OP_END:
		/*
		 * If a function with a return probe has jumped here, its return reports the end.
		 */
		if (thread->native.caller)
			waits = native_end(regs, REG_SP(regs), argument(regs, cookie, 0));
		break;
	default:
		native_begin(regs, 0);
	}
	if (waits)
		walk_begin(regs, &walks);
	return 0;
}
