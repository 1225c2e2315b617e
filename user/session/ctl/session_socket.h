/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of sessions: one Unix socket each, DIRECTORY/PID.sock with the tracer's own pid, in a
 * directory that only its user can enter. A socket is renamed into place when it is already
 * listening. A socket that refuses connections therefore belongs to a dead session, and is replaced
 * or skipped.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define SOCKET_DIRECTORY "/run/tracer"
#define SOCKET_PATH_MAX  108 /* length of a socket's path */

/*
 * Listens for session pid, in directory (created if missing), and removes the sockets of dead
 * sessions. Returns a descriptor, or -errno: -EPERM the directory belongs to another user, or
 * others can enter it (with error_set()).
 */
int session_socket_listen(const char *directory, pid_t pid);
/* The path of a session's socket. 0, -ENAMETOOLONG. */
int session_socket_path(const char *directory, pid_t pid, char out[SOCKET_PATH_MAX]);
/* Unlinks the socket, so that no new client finds it. */
void session_socket_remove(const char *directory, pid_t pid);

/*
 * Lists the pids of the sessions in directory; *count may be 0. Caller frees. 0; -ENOENT no
 * directory; -EACCES; -ENOMEM.
 */
int session_socket_list(const char *directory, pid_t **pids, size_t *count);
/*
 * Connects to a session without blocking. Returns a non-blocking descriptor; -ECONNREFUSED the
 * session is dead; -errno.
 */
int session_socket_connect(const char *directory, pid_t pid);

/* Does the peer of a socket run as our user? *pid is the peer's. 0; -EPERM; -errno. */
int session_socket_peer_check(int fd, pid_t *pid);
