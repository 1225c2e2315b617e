/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How a function is left at a place in it, without a table: where its caller's registers are, as
 * the code between its entry and the place tells (user/object/insn/frame.h).
 */
#pragma once

#include <linux/types.h>

enum abi_frame_base {
	ABI_FRAME_UNKNOWN = 0,
	ABI_FRAME_POINTER = 1, /* the frame pointer, which the function has set up */
	ABI_FRAME_STACK = 2,   /* the stack pointer */
};

#define ABI_FRAME_MAX  (64u << 10) /* bytes of the function's frame */
#define ABI_FRAME_KEPT 0xffffffffu /* in its register: it was not saved */

/* The fields are bytes above the base. */
struct abi_frame {
	__u32 base;      /* enum abi_frame_base; unknown: the others say nothing */
	__u32 end_at;    /* the stack pointer after the return */
	__u32 return_at; /* the return address; ABI_FRAME_KEPT: in the link register */
	__u32 saved_at;  /* the caller's frame pointer, or ABI_FRAME_KEPT */
};

/*
 * The same in a cookie, for operations without other arguments: bits 16-27 return_at and 28-39
 * saved_at, in words, all bits set if they are kept; 40-55 end_at; 57-58 the base. A frame whose
 * numbers do not fit is unknown.
 */
#define ABI_FRAME_WORD_KEPT 0xfffu
#define ABI_FRAME_COOKIE_BITS                                                                      \
	((__u64)ABI_FRAME_WORD_KEPT << 16 | (__u64)ABI_FRAME_WORD_KEPT << 28 | 0xffffull << 40 |   \
	 3ull << 57)

static inline __attribute__((always_inline)) __u64 abi_frame_cookie(const struct abi_frame *frame)
{
	__u64 word_return = frame->return_at / 8, word_saved = frame->saved_at / 8;

	if (frame->base == ABI_FRAME_UNKNOWN || frame->end_at > 8 * (ABI_FRAME_WORD_KEPT - 1) ||
	    frame->return_at % 8 != (frame->return_at == ABI_FRAME_KEPT ? 7 : 0) ||
	    frame->saved_at % 8 != (frame->saved_at == ABI_FRAME_KEPT ? 7 : 0))
		return 0;
	return (word_return & ABI_FRAME_WORD_KEPT) << 16 |
	       (word_saved & ABI_FRAME_WORD_KEPT) << 28 | (__u64)frame->end_at << 40 |
	       (__u64)frame->base << 57;
}

static inline __attribute__((always_inline)) struct abi_frame abi_frame_of_cookie(__u64 cookie)
{
	__u32 word_return = cookie >> 16 & ABI_FRAME_WORD_KEPT;
	__u32 word_saved = cookie >> 28 & ABI_FRAME_WORD_KEPT;
	struct abi_frame frame = {.base = cookie >> 57 & 3, .end_at = cookie >> 40 & 0xffff};

	frame.return_at = word_return == ABI_FRAME_WORD_KEPT ? ABI_FRAME_KEPT : 8 * word_return;
	frame.saved_at = word_saved == ABI_FRAME_WORD_KEPT ? ABI_FRAME_KEPT : 8 * word_saved;
	return frame;
}

_Static_assert(sizeof(struct abi_frame) == 16, "frame");
