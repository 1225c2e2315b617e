/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes have which files mapped executable: a snapshot of all processes.
 *
 * The maps of a process that keeps its lock taken (proc/patience.h) are awaited for a few
 * seconds. If they remain unknown, it counts as one that maps the file of its program, and every
 * library. One whose maps cannot be read for another reason counts as one that maps nothing.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct file_users;

/*
 * Reads the maps of every process. known: an earlier list, or NULL: what it says of processes that
 * keep their lock taken is not read again. 0, -errno.
 */
int file_users_read(const struct file_users *known, struct file_users **out);
void file_users_free(struct file_users *users); /* NULL is legal */
/*
 * Is every other process that maps the file which pid has mapped under path (as in its maps)
 * accepted by ours()? 0 also if pid is not known to map it.
 */
int file_users_all(const struct file_users *users, pid_t pid, const char *path,
		   bool (*ours)(pid_t pid, void *context), void *context);
/*
 * Calls each for every other process that maps the file, once or more often, until it returns
 * non-zero. Returns that value, else 0; 0 also if pid is not known to map it.
 */
int file_users_each(const struct file_users *users, pid_t pid, const char *path,
		    int (*each)(pid_t pid, void *context), void *context);
