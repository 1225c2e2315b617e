/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel shares the processors among sessions (autogroup), priority counts within one of
 * them only. A process of ours whose delay costs the target becomes a session, which has that
 * priority among the others. Refused, it shares the processors as others do.
 */
#pragma once

#include <sys/types.h>

/* The process becomes a session of this priority (nice value); so are those that it forks. */
void priority_set(int priority);
/* The same with the priority that the process has. */
void priority_keep(void);
/*
 * For a process that stays in its user's session, whose priority is not ours to change, and for
 * `other` (0: none): they have PRIORITY_HURRIED among its processes. To be called before privileges
 * are dropped.
 */
#define PRIORITY_HURRIED -10
void priority_hurry(pid_t other);
/* In a child, whose work can wait: the priority that its parent had before. */
void priority_rest(void);
