/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes in files are hit by every process that maps them. A process under a translator
 * (probe/process/translator.h) would be killed by them.
 */
#ifndef TRACER_SESSION_TARGET_TRANSLATORS_H
#define TRACER_SESSION_TARGET_TRANSLATORS_H

#include <sys/types.h>

struct session;

/*
 * Does a process run under a translator? Looks at all processes at the first call, and logs those
 * that do. Then probes are to be placed in each process alone.
 */
int translators_run(struct session *session);
/*
 * A process has mapped a file of this translator. If there are probes in files, they are removed at
 * once, and the session ends: what it would see from here on is not what it says.
 */
void translator_appears(struct session *session, pid_t pid, const char *name);

#endif
