/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code without .eh_frame may be described in the program's separate debug file, which is looked for
 * only then: where the reader of symbols finds it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "object/unwind/unwind_table.h"

/* Bytes of code without an entry. Start-up code and assembly have less in most files. */
#define UNWIND_UNCOVERED_MAX 4096u

/* May the debug file describe code that a table does not? err, table: of unwind_loader_read(). */
bool unwind_debug_is_wanted(int err, const struct unwind_table *table);
/*
 * Opens the debug file of a file that a process maps, which stays the caller's. -1: there is none.
 * path: as the process sees it.
 */
int unwind_debug_open(pid_t pid, int fd, const char *path);
