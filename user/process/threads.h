/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_PROCESS_THREADS_H
#define TRACER_PROCESS_THREADS_H

#include <sys/types.h>

/*
 * Visits the threads of a process that may be in the middle of a function: those that run, and
 * those that stand anywhere but in a system call. One that is in a call, or has ended, has done
 * whatever came before. visit() returns non-zero to stop, which is then returned. 0; -ESRCH;
 * -errno.
 */
int threads_visit(pid_t pid, int (*visit)(pid_t tid, void *context), void *context);
/*
 * The number of the system call in which a thread sleeps; -1: it runs, or sleeps elsewhere; -ESRCH.
 */
long thread_call(pid_t pid, pid_t tid);
/* How often it has been given a processor so far; 0: not known. */
unsigned long thread_runs(pid_t pid, pid_t tid);

#endif
