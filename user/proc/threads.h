/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Visits the threads of a process that may be in the middle of a function: those that run, and
 * those that are blocked other than in a system call. A thread that is in a system call, or has
 * ended, has completed whatever it did before. visit() returns non-zero to stop; that value is
 * returned. 0; -ESRCH; -errno.
 */
int threads_visit(pid_t pid, int (*visit)(pid_t tid, void *context), void *context);
/*
 * The number of the system call in which a thread sleeps; -1: it runs, or is blocked elsewhere;
 * -ESRCH.
 */
long thread_call(pid_t pid, pid_t tid);
/* Its name, which may be empty. 0; -ESRCH, -errno. */
int thread_name(pid_t pid, pid_t tid, char name[16]);
/* How often it has been scheduled so far; 0: unknown. */
unsigned long thread_runs(pid_t pid, pid_t tid);

/* Of all threads of a process so far, together. */
struct threads_time {
	uint64_t run_ns;  /* on a processor */
	uint64_t wait_ns; /* ready to run, for a processor */
	uint64_t threads; /* which ones: others make another number */
};
/* 0; -E2BIG: it has more threads than most; -ENOTSUP: the kernel does not tell; -ESRCH, -errno. */
int threads_time(pid_t pid, size_t most, struct threads_time *out);
/* threads_time.run_ns; 0: it is not known. What has not run meanwhile has changed nothing. */
uint64_t threads_run_ns(pid_t pid);
