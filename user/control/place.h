/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where sessions are talked to: a Unix socket for each, DIRECTORY/PID.sock by the tracer's own
 * process id, in a directory that only its user may enter. It appears when it listens already, by
 * rename; so a socket that refuses is a dead session's, and is replaced or passed over.
 */
#ifndef TRACER_CONTROL_PLACE_H
#define TRACER_CONTROL_PLACE_H

#include <stddef.h>
#include <sys/types.h>

#define PLACE_DIRECTORY "/run/tracer"
#define PLACE_PATH_MAX  108 /* that of a socket */

/*
 * Listens as session pid, in directory (made if it is not there), and removes what dead sessions
 * have left there. The descriptor, or -errno: -EPERM the directory is another user's, or others may
 * enter it (error_set tells).
 */
int place_listen(const char *directory, pid_t pid);
/* The path of a session's socket. 0, -ENAMETOOLONG. */
int place_path(const char *directory, pid_t pid, char out[PLACE_PATH_MAX]);
/* Takes the socket's name away: no new client finds it. */
void place_leave(const char *directory, pid_t pid);

/*
 * Of the sessions in directory: their process ids; *count may be 0. Caller frees. 0; -ENOENT no
 * directory; -EACCES; -ENOMEM.
 */
int place_list(const char *directory, pid_t **pids, size_t *count);
/*
 * Connects to one, never blocking. The descriptor (non-blocking); -ECONNREFUSED it is dead; -errno.
 */
int place_connect(const char *directory, pid_t pid);

/* Does the peer of a socket run as our user? *pid is the peer's. 0; -EPERM; -errno. */
int place_peer_check(int fd, pid_t *pid);

#endif
