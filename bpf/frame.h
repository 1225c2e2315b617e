/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Leaves a function at a place in it (abi/frame.h). */
#pragma once

#include "native_frames.h"

#include "abi/frame.h"

/*
 * thread->native_walk.frame is the frame pointer at the place. Sets it, and .below and .caller, to
 * those of the function's caller. 0; -1: they are not known, and nothing is set. link: REG_LINK().
 */
static __noinline int function_leave(struct thread_state *thread, const struct abi_frame *frame,
				     __u64 sp, __u64 link)
{
	struct native_walk *walk = &thread->native_walk;
	__u64 base = frame->base == ABI_FRAME_POINTER ? walk->frame : sp;
	__u64 caller =
		frame->return_at == ABI_FRAME_KEPT ? link : user_u64(base + frame->return_at);

	caller = CODE_ADDRESS(caller);
	if (frame->base == ABI_FRAME_UNKNOWN || !follows_call(thread, caller))
		return -1;
	walk->caller = caller;
	walk->below = base + frame->end_at - RETURN_BYTES;
	if (frame->saved_at != ABI_FRAME_KEPT)
		walk->frame = user_u64(base + frame->saved_at);
	return 0;
}
