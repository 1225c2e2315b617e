/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reads one word of the running process's memory. */
#pragma once

#include "kernel.h"

#define UNREADABLE (~0ull) /* not a valid pointer */

/*
 * Reads by way of the program's stack. While the function uses 48 bytes of stack or fewer, that is
 * the kernel's stack, for which hardened usercopy needs no lookup of the memory. Otherwise it may
 * be a private stack (6.13+: tools/verifier.c).
 */
static __always_inline __u64 user_pointer(__u64 address)
{
	__u64 value;

	return bpf_probe_read_user(&value, sizeof(value), (void *)address) ? UNREADABLE : value;
}

/* 0 if it cannot be read. */
static __always_inline __u64 user_u64(__u64 address)
{
	__u64 value = user_pointer(address);

	return value == UNREADABLE ? 0 : value;
}

/* The same, for functions whose stack has no space for one more word. */
__noinline __u64 user_u64_called(__u64 address)
{
	return user_u64(address);
}
