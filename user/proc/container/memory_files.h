/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a memory cgroup's directory, v1 or v2. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/container/cgroup.h"

#define MEMORY_FILE_BYTES 16384u

/* Reads a file as text. The length; 0 if there is no such file. */
size_t memory_text_read(const char *directory, const char *name, char *out, size_t capacity);
/* A file with one number. UINT64_MAX: "max", no such file, or v1's number for "no limit". */
uint64_t memory_number_read(const char *directory, const char *name);
/* Bytes of the machine's memory, by /proc/meminfo: "MemTotal:". UINT64_MAX: it does not tell. */
uint64_t memory_machine_read(const char *name);
/* The value of "name 123" among the lines of a memory.stat; 0 if it is missing. Pure. */
uint64_t memory_stat_value(const char *text, const char *name);
/* Whether the hierarchy of this line counts memory: v2, or v1's controller. */
int memory_line_counts(const struct cgroup_line *line);
