/* SPDX-License-Identifier: Apache-2.0 */
/* Reads another process's memory (process_vm_readv). It never stops the process or writes to it. */
#ifndef TRACER_PROCESS_MEMORY_H
#define TRACER_PROCESS_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads exactly bytes at address into out. 0; -EFAULT if any of it is unmapped; -ESRCH; -EPERM. */
int memory_read(pid_t pid, uint64_t address, void *out, size_t bytes);
/*
 * Reads a text up to its NUL, cut at bytes - 1; it never reads beyond the page that the text ends
 * in. 0, as memory_read(): out has what could be read.
 */
int memory_read_text(pid_t pid, uint64_t address, char *out, size_t bytes);
/* A pointer-sized value. */
int memory_read_u64(pid_t pid, uint64_t address, uint64_t *out);

/* Memory that is read in the same way: of a process, or a copy of it. */
struct memory_reader {
	int (*read)(void *context, uint64_t address, void *out, size_t bytes);
	void *context; /* borrowed */
};

#endif
