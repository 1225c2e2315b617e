/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops all threads of a process while something that must not change is read. It uses ptrace
 * rather than a signal: other processes do not notice, no call of the process fails, and if we are
 * killed or stopped the process resumes.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct freeze;

/*
 * Returns once all threads are stopped, except those that sleep in a call that fails when it is
 * interrupted (epoll_wait): they sleep on. 0; -EBUSY it is already traced (a debugger); -ETIMEDOUT
 * a thread did not stop within half a second; -ESRCH; -EPERM; -ENOMEM; -EIO. On failure all threads
 * run again. The process is stopped for at most ten seconds.
 */
int freeze_begin(struct freeze **out, pid_t pid);
/*
 * Resumes the threads; NULL is legal. Returns for how long the process was stopped, in ns; 0 if not
 * all threads were stopped for the whole time.
 */
uint64_t freeze_end(struct freeze *freeze);
