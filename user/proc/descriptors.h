/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a process has open, by the names that its descriptors' links show. */
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

/* Anything but 0 ends the search and is returned. */
typedef int (*descriptor_fn)(void *context, pid_t pid, const char *number);

/*
 * Calls found() for each descriptor whose file has, or had before it was removed, that name in some
 * directory; at most 65,536 descriptors are inspected. 0; -errno: they cannot be listed; or what
 * found() returned.
 */
int descriptors_find(pid_t pid, const char *name, descriptor_fn found, void *context);

struct writers {
	int count; /* descriptors through which it may write to the file */
	/* some of them write at their own offset, not at the end (no O_APPEND) */
	int at_offset;
};

/* How the process writes to that file, whose last name is known. None if it has ended. */
struct writers writers_find(pid_t pid, const char *name, const struct stat *file);
