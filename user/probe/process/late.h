/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a process that loads Python later: an application that embeds it and calls
 * dlopen("libpython…"), or one that is still starting. Checking again is cheap: files are opened
 * only when the mapped code has changed.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct runtime_files;

struct late {
	pid_t pid;
	uint64_t mapped; /* hash of the executable maps at the last check */
	uint64_t looked; /* hash of the executable maps that are known to have no runtime */
	unsigned int tries;
};

/*
 * Checks whether a runtime has appeared. 1: it has, and the dynamic loader has finished with it
 * (python_runtime_find() finds it, or reports why it is not supported); 0: not yet; -ESRCH: the
 * process has ended; -EPERM; -errno.
 */
int late_look(struct late *late, struct runtime_files *files);
