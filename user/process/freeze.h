/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops all threads of a process, for as long as it takes to read something that must not change.
 * By ptrace and not by a signal: nobody else notices, no call of the process fails for it, and
 * should we be killed or stopped it runs again.
 */
#ifndef TRACER_PROCESS_FREEZE_H
#define TRACER_PROCESS_FREEZE_H

#include <stdint.h>
#include <sys/types.h>

struct freeze;

/*
 * Returns once all threads stand, but for those that sleep in a call that fails when it is
 * interrupted (epoll_wait): they sleep on. 0; -EBUSY it is traced already (a debugger); -ETIMEDOUT
 * a thread did not stop within half a second; -ESRCH; -EPERM; -ENOMEM; -EIO. On failure all threads
 * run again. It stands for ten seconds at most.
 */
int freeze_begin(struct freeze **out, pid_t pid);
/*
 * Lets them run; NULL is legal. For how long the process stood, in ns; 0: not all of it, or not all
 * of the time.
 */
uint64_t freeze_end(struct freeze *freeze);

#endif
