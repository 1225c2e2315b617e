/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the kernel takes the processor from a task that runs in it, and so from a BPF program at
 * a uprobe (PREEMPT, preempt=full).
 */
#pragma once

#include <stdbool.h>

/*
 * From the kernel's version (uname -v), its models with the current one in parentheses
 * (/sys/kernel/debug/sched/preempt) and its command line; NULL: not known. 1 if it does or may; 0.
 * Pure.
 */
bool preemption_is_full(const char *version, const char *models, const char *command_line);
/* The same for the running kernel. */
bool kernel_is_preempted(void);
