/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops all threads of a process, for as long as it takes to read something that must not change. By ptrace and not by
 * a signal: nobody else notices, and should we be killed the kernel lets the threads run again.
 */
#ifndef TRACER_TARGET_FREEZE_H
#define TRACER_TARGET_FREEZE_H

#include <stdint.h>
#include <sys/types.h>

struct freeze;

/*
 * Returns once all threads stand. 0; -EBUSY it is traced already (a debugger); -ETIMEDOUT a thread did not stop within
 * half a second; -ESRCH; -EPERM; -ENOMEM. On failure all threads run again.
 */
int freeze_begin(struct freeze **out, pid_t pid);
/* Lets them run; NULL is legal. For how long the process was stopped, in ns. */
uint64_t freeze_end(struct freeze *freeze);

#endif
