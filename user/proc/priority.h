/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel shares the processors among sessions (autogroup), priority counts within one of
 * them only. A process of ours whose delay costs the target becomes a session, which has that
 * priority among the others. Refused, it shares the processors as others do.
 */
#pragma once

/* The process becomes a session of this priority (nice value); so are those that it forks. */
void priority_set(int priority);
/* The same with the priority that the process has. */
void priority_keep(void);
