/* SPDX-License-Identifier: Apache-2.0 */
/* What the memory cgroup of a process counts, and its limit. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct memory_usage {
	char path[256]; /* in its hierarchy, cut at the front */
	uint64_t used;  /* bytes of all processes in it, and below it */
	uint64_t limit; /* the lowest of its own and those above it; UINT64_MAX: none */
	uint64_t anonymous, file, kernel; /* of used; 0: none or not counted */
};

/* 0; -ENOENT: no cgroup that counts memory is visible; -ESRCH; -EPERM; -ENOMEM. */
int memory_usage_read(pid_t pid, struct memory_usage *out);
