/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_TARGET_THREADS_H
#define TRACER_TARGET_THREADS_H

#include <sys/types.h>

/*
 * Visits the threads of a process that may be in the middle of a function: those that run, and those that stand anywhere
 * but in a system call. One that is in a call, or has ended, has done whatever came before. visit() returns non-zero to
 * stop, which is then returned. 0; -ESRCH; -errno.
 */
int threads_visit(pid_t pid, int (*visit)(pid_t tid, void *context), void *context);

#endif
