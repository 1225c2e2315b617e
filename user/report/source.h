/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of source files, in the form of linecache.getline(): of the files as they are now on this
 * machine, or in the root directories of the processes. The names come from a snapshot and are not
 * trusted: only regular files of at most 16 MiB are read, and nothing else is opened. A root is not
 * trusted either: its links are resolved inside it and never lead out of it.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#define SOURCE_ROOTS_MAX 8u

/* Where files are searched. */
struct source_roots {
	int fds[SOURCE_ROOTS_MAX]; /* roots other than ours, opened by state_root_open() */
	size_t count;
	int own; /* also in our own root */
};

struct buffer;
struct source;

/* roots: borrowed; NULL: our own root. 0, -ENOMEM. */
int source_new(struct source **out, const struct source_roots *roots);
void source_free(struct source *source); /* NULL is legal */
/*
 * The line with its indentation, without its end, NUL-terminated, instead of what out held. 1; 0:
 * there is no such line, or the roots that have it differ; -ENOMEM.
 */
int source_read(struct source *source, const char *filename, uint32_t line, struct buffer *out);
/*
 * Prints indent, the line without surrounding white space, and a newline. Prints nothing if there
 * is no such line, or if the roots that have it differ.
 */
void source_print(struct source *source, FILE *out, const char *indent, const char *filename,
		  uint32_t line);
/* Prints one line for each reason why source lines could not be printed. */
void source_missing_print(const struct source *source, FILE *out);
