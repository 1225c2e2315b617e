/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private stacks of BPF functions. From 6.13 on the kernel gives a function with 64 bytes of
 * variables or more, rounded up to 16, a private per-CPU stack. A task that is preempted in a
 * uprobe's program shares it with the next task on that CPU: one overwrites the other's variables,
 * including kernel pointers. Therefore none of our programs may have one. Mended kernels, as
 * 6.18.44, give none to programs of probes, only to those of tracepoints.
 */
#pragma once

#include <stddef.h>

/* The number of functions with a private stack in x86-64 machine code. Pure. */
int private_stack_count(const unsigned char *code, size_t bytes);
/* The same for a loaded program. -errno if the kernel does not show its machine code. */
int private_stack_count_fd(int program);
