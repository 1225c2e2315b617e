/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that pass descriptors to another process of ours, over a socket. */
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
