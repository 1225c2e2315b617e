/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* One word of the running process's memory. */
#ifndef TRACER_BPF_USER_WORD_H
#define TRACER_BPF_USER_WORD_H

#include "kernel.h"

#define UNREADABLE (~0ull) /* no pointer is that */

/*
 * By way of the program's stack. That is the kernel's, where a copy may go without being asked what
 * memory that is, as long as the function that has it uses 48 bytes or fewer (hardened usercopy;
 * private stacks, 6.13+: tools/verifier.c).
 */
static __always_inline __u64 user_pointer(__u64 address)
{
	__u64 value;

	return bpf_probe_read_user(&value, sizeof(value), (void *)address) ? UNREADABLE : value;
}

/* What cannot be read is 0. */
static __always_inline __u64 user_u64(__u64 address)
{
	__u64 value = user_pointer(address);

	return value == UNREADABLE ? 0 : value;
}

/* The same, for functions that have no room on the stack for one more word. */
__noinline __u64 user_u64_called(__u64 address)
{
	return user_u64(address);
}

#endif
