/* SPDX-License-Identifier: Apache-2.0 */
/* The registers of a thread that is stopped by ptrace, as far as proc/ uses them. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* The program counter. 0; -errno */
int registers_pc(pid_t tid, uint64_t *pc);
/* The number of the system call that has just failed with EINTR. -ENOENT: the thread is at none. */
long registers_interrupted_call(pid_t tid);
/* Makes the thread repeat that system call, when it goes on. 0; -errno */
int registers_repeat_call(pid_t tid);
/* Stops the thread when it executes an address; 0: no more. 0; -errno */
int registers_break_at(pid_t tid, uint64_t address);
