/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time for which a thread of ours was running, or was to run and had no processor: on a busy
 * machine a system call takes long without waiting for anything.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * Of the thread tid of this process, in nanoseconds, since it began; the time since it was last to
 * run and is not running yet is not in it. UINT64_MAX: the kernel does not say. Takes a descriptor.
 */
uint64_t sched_time_ns(pid_t tid);
/* Does it sleep now? 1; 0: it runs, or is to run; -1: not known. */
int sched_sleeps(pid_t tid);
/*
 * What it slept of took_ns, at whose beginning sched_time_ns() was before_ns; all, if the kernel
 * does not say.
 */
uint64_t sched_slept_ns(pid_t tid, uint64_t took_ns, uint64_t before_ns);
