/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What tells a frame that a frame pointer leads to from any other memory. */
#pragma once

#include "kernel.h"

#define STACK_BYTES_MAX (8ull << 20) /* between two frames */
#define STACK_TOTAL_MAX (8ull << 30) /* of a whole stack */
#define MAIN_BASE_BYTES 1024         /* libc's own frames below main's */
/* a thread's stack begins below its thread-local variables, which end at the fs base */
#define THREAD_BASE_BYTES 8192

/* Does the instruction before this address call? 0 if it cannot be read. */
static __noinline int is_call_before(__u64 address)
{
	__u8 code[CALL_BYTES];

	return !bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))) &&
	       is_call_end(code);
}
