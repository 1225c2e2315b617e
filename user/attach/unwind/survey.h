/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a process's files have an unwind table, before it is traced (--dry-run -v). */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define UNWIND_SURVEY_FILES 4096u

/*
 * One file that is mapped as code. err: 0; -ENOENT: it has no table, and frame pointers are
 * followed; -EAGAIN: it took too long; others: it cannot be read. rows and bytes are of the table.
 * path is borrowed, and not to be trusted.
 */
typedef void (*unwind_survey_fn)(void *context, const char *path, int err, size_t rows,
				 size_t bytes);

/* Calls each for the first UNWIND_SURVEY_FILES files, once for a file. 0, -errno. */
int unwind_survey(pid_t pid, unwind_survey_fn each, void *context);
