/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of source files as linecache.getline() gives them, of the files as they are now on this
 * machine, or in the roots of the processes. The names are a snapshot's and not to be trusted: only
 * regular files of at most 16 MiB are read, and nothing else is opened. A root is not to be trusted
 * either: links in it lead to where they do in there, never out of it.
 */
#ifndef TRACER_REPORT_SOURCE_H
#define TRACER_REPORT_SOURCE_H

#include <stdint.h>
#include <stdio.h>

#define SOURCE_ROOTS_MAX 8u

/* Where files are looked for. */
struct source_roots {
	int fds[SOURCE_ROOTS_MAX]; /* other roots than ours, as state_root_open() opens them */
	size_t count;
	int own; /* in ours, too */
};

struct source;

/* borrowed; NULL: ours. 0, -ENOMEM */
int source_new(struct source **out, const struct source_roots *roots);
void source_free(struct source *source); /* NULL is legal */
/*
 * Prints indent, the line without white space around it, and a newline; nothing when there is no
 * such line, or when it is not the same in all roots that have it.
 */
void source_print(struct source *source, FILE *out, const char *indent, const char *filename,
		  uint32_t line);
/* A line for each kind of lines that could not be printed, if there were any. */
void source_missing_print(const struct source *source, FILE *out);

#endif
