/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes that work on what others have written: files, answers of servers. */
#pragma once

#include <sys/types.h>

#define CHILD_SOCKET 3 /* the only descriptor that a confined child has, beside 0 to 2 */

/*
 * Confines the calling process, a child of parent: it ends with its parent, is shown by ps as name,
 * ignores the signals that a terminal sends (they are for the session, which still has questions),
 * has /dev/null as its standard streams and socket as CHILD_SOCKET, writes no core, and has no
 * capability, nor can it get one. 0; -ESRCH: the parent has ended; -errno.
 */
int child_confine(const char *name, int socket, pid_t parent);
/*
 * The same, but it keeps the rights to read what belongs to other processes and users
 * (privileges_drop(0, -1)), and may make few system calls (calls_limit()).
 */
int child_confine_reader(const char *name, int socket, pid_t parent);
