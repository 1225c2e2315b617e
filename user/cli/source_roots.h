/* SPDX-License-Identifier: Apache-2.0 */
/* In which roots the processes of a snapshot have their source files. */
#ifndef TRACER_CLI_SOURCE_ROOTS_H
#define TRACER_CLI_SOURCE_ROOTS_H

#include "report/source.h"
#include "snapshot/snapshot.h"

/*
 * live: the processes are those that run now, and their roots are looked into; one that has ended
 * has none any more. Else lines are of this machine's files. What this leaves out or makes doubtful
 * is told (log_info). source_roots_close() closes.
 */
void source_roots_open(const struct snapshot *snapshot, int live, struct source_roots *out);
void source_roots_close(struct source_roots *roots);

#endif
