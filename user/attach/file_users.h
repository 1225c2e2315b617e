/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes of the machine have which files with code mapped, as it was at one moment. */
#ifndef TRACER_ATTACH_FILE_USERS_H
#define TRACER_ATTACH_FILE_USERS_H

#include <sys/types.h>

struct file_users;

/* Reads the maps of every process; 0, -errno. */
int file_users_read(struct file_users **out);
void file_users_free(struct file_users *users); /* NULL is legal */
/*
 * The file that pid has mapped under that path (as its maps show it): is each other process that
 * maps it one of those that ours() says yes to? 0, too, if pid was not known to map it. A process
 * whose maps cannot be read is taken to map nothing.
 */
int file_users_all(const struct file_users *users, pid_t pid, const char *path,
		   int (*ours)(pid_t pid, void *context), void *context);
/*
 * Calls each with every other process that maps it, once or more often, until it returns other than
 * 0, which is returned then.
 */
int file_users_each(const struct file_users *users, pid_t pid, const char *path,
		    int (*each)(pid_t pid, void *context), void *context);

#endif
