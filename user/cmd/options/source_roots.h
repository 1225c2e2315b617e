/* SPDX-License-Identifier: Apache-2.0 */
/* The root directories in which the source files of a snapshot's processes are searched. */
#pragma once

#include "report/source.h"
#include "snapshot/snapshot.h"

/*
 * live: the processes run now, and their roots are searched; a process that has ended has no root
 * any more. Otherwise lines come from this machine's files. What is omitted or doubtful is reported
 * (log_info). source_roots_close() closes.
 */
void source_roots_open(const struct snapshot *snapshot, int live, struct source_roots *out);
void source_roots_close(struct source_roots *roots);
