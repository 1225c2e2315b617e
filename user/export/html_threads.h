/* SPDX-License-Identifier: Apache-2.0 */
/* Threads in the data of the HTML page. */
#ifndef TRACER_EXPORT_HTML_THREADS_H
#define TRACER_EXPORT_HTML_THREADS_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/*
 * Writes the members "threads", a text for each, and "by_thread", {traceback, process, thread,
 * bytes, blocks} of what is alive; empty where threads are not known, the second also where there
 * is only one. 0, -ENOMEM.
 */
int html_threads_write(FILE *out, const struct snapshot *snapshot);

#endif
