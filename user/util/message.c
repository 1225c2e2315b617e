/* SPDX-License-Identifier: Apache-2.0 */
#include "util/message.h"
#include "util/error.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_BYTES CMSG_SPACE(MESSAGE_FDS_MAX * sizeof(int))

ssize_t message_send(int socket, const struct iovec *parts, size_t part_count, const int *fds,
		     size_t fd_count)
{
	char control[CONTROL_BYTES] __attribute__((aligned(8))) = {0};
	struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = part_count};
	ssize_t sent;

	if (fd_count) {
		struct cmsghdr *header = (void *)control;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
	}
	do
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? error_errno() : sent;
}

ssize_t message_receive(int socket, void *data, size_t bytes, int *fds, size_t fd_max, int *cut)
{
	char control[CONTROL_BYTES] __attribute__((aligned(8)));
	struct iovec part = {.iov_base = data, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = CMSG_SPACE(fd_max * sizeof(int))};
	ssize_t got;

	if (fd_max)
		memset(fds, 0xff, fd_max * sizeof(*fds));
	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return error_errno();
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS) {
		size_t size = header->cmsg_len - CMSG_LEN(0), room = fd_max * sizeof(*fds);

		memcpy(fds, CMSG_DATA(header), size < room ? size : room);
	}
	if (cut)
		*cut = (message.msg_flags & MSG_CTRUNC) != 0;
	return got;
}

int message_child(pid_t *pid, int type, void (*run)(void *context, int socket, pid_t parent),
		  void *context)
{
	pid_t self = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends))
		return error_errno();
	*pid = fork();
	int err = *pid < 0 ? error_errno() : 0;
	if (!*pid) {
		close(ends[0]);
		run(context, ends[1], self);
	}
	close(ends[1]);
	if (!err)
		return ends[0];
	close(ends[0]);
	return err;
}
