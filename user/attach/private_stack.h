/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private stacks of BPF functions. From 6.13 on the kernel gives a function of 64 bytes of
 * variables or more, rounded up to 16, a stack of its own for each processor. A task that is
 * preempted in a uprobe's program shares it with the next task there: one writes into the other's
 * variables, pointers into the kernel among them. No program of ours may have one.
 */
#ifndef TRACER_ATTACH_PRIVATE_STACK_H
#define TRACER_ATTACH_PRIVATE_STACK_H

#include <stddef.h>

/* In machine code of x86-64: functions that have one. Pure. */
int private_stack_count(const unsigned char *code, size_t bytes);
/* Of a loaded program. -errno where the kernel does not show its machine code. */
int private_stack_count_fd(int program);

#endif
