/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of source files as linecache.getline() gives them, of the files as they are now on this machine. The names are
 * a snapshot's and not to be trusted: only regular files of at most 16 MiB are read, and never waited for.
 */
#ifndef TRACER_REPORT_SOURCE_H
#define TRACER_REPORT_SOURCE_H

#include <stdint.h>
#include <stdio.h>

struct source;

int source_new(struct source **out);     /* 0, -ENOMEM */
void source_free(struct source *source); /* NULL is legal */
/* Prints indent, the line without white space around it, and a newline; nothing when there is no such line. */
void source_print(struct source *source, FILE *out, const char *indent, const char *filename, uint32_t line);

#endif
