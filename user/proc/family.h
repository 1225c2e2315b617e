/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of a process: what it has forked that runs its program, too. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/*
 * Its children that run the same program, by the path that the kernel shows, their children that
 * do, and so on for 32 generations, in the order of their ids. 0; -ESRCH, -errno. The caller frees
 * *pids.
 */
int family_list(pid_t pid, pid_t **pids, size_t *count);
