/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and asyncio tasks in the data of the HTML page. */
#ifndef TRACER_EXPORT_HTML_THREADS_H
#define TRACER_EXPORT_HTML_THREADS_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/*
 * Writes the members "threads" and "tasks", a text for each, and "by_owner", {traceback, process,
 * thread, task, bytes, blocks} of what is alive. Empty where they are not known, the last one also
 * where there is only one thread and one task. 0, -ENOMEM.
 */
int html_threads_write(FILE *out, const struct snapshot *snapshot);

#endif
