/* SPDX-License-Identifier: Apache-2.0 */
/* Another process of ours at the end of a socket, and messages that pass descriptors to it. */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#define MESSAGE_FDS_MAX 3u /* in a message */

/*
 * Sends the parts as one message, however often a signal comes; no SIGPIPE. Returns the bytes that
 * were sent; -errno.
 */
ssize_t message_send(int socket, const struct iovec *parts, size_t part_count, const int *fds,
		     size_t fd_count);
/*
 * Receives a message with at most fd_max descriptors, which are closed on exec; fds[i]: -1 for
 * none. *cut, if not NULL: 1: some were lost, since there was no room for them. Returns its bytes;
 * 0: the other end is closed; -errno.
 */
ssize_t message_receive(int socket, void *data, size_t bytes, int *fds, size_t fd_max, int *cut);
/*
 * Starts a process that runs run() with its end of a new pair of sockets (SOCK_SEQPACKET or
 * SOCK_STREAM) and our process id; run() must not return. Returns our end; -errno.
 */
int message_child(pid_t *pid, int type, void (*run)(void *context, int socket, pid_t parent),
		  void *context);
