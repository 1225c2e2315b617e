/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct memory_reading;
struct report_choice;

/*
 * Reads the process's memory once and prints that to two files, as text and as JSON. Standard
 * output is the second one afterwards. 0, -errno as memory_read_report() and of writing.
 */
int memory_save(struct memory_reading *reading, int text, int json);

/*
 * Prints what these processes have, and what they have together. named: each that cannot be read is
 * an error, which is printed. The exit status.
 */
int memory_service_print(const pid_t *pids, size_t count, bool named,
			 const struct report_choice *choice);
/*
 * Prints what a process that was forked has unshared since, and why. 0; -ENOTSUP (error_set): it
 * was not forked, or nothing of its parent is left; errors of heap_source_open() and
 * unshared_read().
 */
int memory_unshared_print(pid_t pid, const struct report_choice *choice);
