/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that will load Python later: an application that embeds it and calls
 * dlopen("libpython…"), or one that has not got so far. Looking again is cheap: files are opened
 * only when the code that is mapped has changed.
 */
#ifndef TRACER_PYTHON_LATE_H
#define TRACER_PYTHON_LATE_H

#include <stdint.h>
#include <sys/types.h>

struct runtime_files;

struct late {
	pid_t pid;
	uint64_t mapped; /* a hash of the maps with code, as of the last look */
	uint64_t looked; /* the maps for which it is known that there is no runtime in them */
	unsigned int tries;
};

/*
 * Has a runtime come since the last look? 1: one is there, and the dynamic loader has done with it
 * (python_runtime_find() will find it, or say why it is not supported); 0: not yet; -ESRCH the
 * process is gone; -EPERM; -errno.
 */
int late_look(struct late *late, struct runtime_files *files);

#endif
