/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's side. */
#include "object/symbols/fetch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/symbols/fetch_wire.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define SECOND_NS 1000000000ull
#define BEGIN_NS  (20 * SECOND_NS) /* to load the library */

struct fetch {
	pid_t pid, owner;
	int socket;
};

void fetch_free(struct fetch *fetch)
{
	if (!fetch)
		return;
	close(fetch->socket);
	if (fetch->owner == getpid()) {
		kill(fetch->pid, SIGKILL);
		while (waitpid(fetch->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	free(fetch);
}

/* *fd: -1 for none. 0; -EAGAIN, -EIO. */
static int receive(struct fetch *fetch, uint64_t until_ns, struct fetch_result *answer, int *fd)
{
	char control[CMSG_SPACE(sizeof(*fd))] __attribute__((aligned(8)));
	struct iovec iov = {.iov_base = answer, .iov_len = sizeof(*answer)};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t bytes;

	*fd = -1;
	if (!descriptor_wait(fetch->socket, until_ns))
		return -EAGAIN;
	do
		bytes = recvmsg(fetch->socket, &message, MSG_CMSG_CLOEXEC);
	while (bytes < 0 && errno == EINTR);
	if (bytes != sizeof(*answer))
		return -EIO;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	return 0;
}

/* Waits for the message that says that it can fetch files. */
static int begin_wait(struct fetch *fetch)
{
	struct fetch_result answer;
	int fd, err = receive(fetch, clock_ns(CLOCK_MONOTONIC) + BEGIN_NS, &answer, &fd);

	if (err)
		return error_set(-EIO, "the process that fetches debug files does not begin");
	if (fd >= 0)
		close(fd);
	if (answer.result == -ELIBACC)
		return error_set(-ELIBACC, "libdebuginfod.so.1 is not installed");
	return answer.result ? error_set(answer.result, "libdebuginfod cannot be used") : 0;
}

int fetch_new(struct fetch **out, const char *urls)
{
	struct fetch *fetch = calloc(1, sizeof(*fetch));
	int ends[2], err;

	if (!fetch)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		err = -errno;
		free(fetch);
		return err;
	}
	fetch->owner = getpid();
	fetch->pid = fork();
	if (!fetch->pid)
		fetch_child_run(ends[1], fetch->owner, urls);
	err = fetch->pid < 0 ? -errno : 0;
	close(ends[1]);
	fetch->socket = ends[0];
	if (err) {
		close(ends[0]);
		free(fetch);
		return err;
	}
	err = begin_wait(fetch);
	if (err)
		fetch_free(fetch);
	else
		*out = fetch;
	return err;
}

int fetch_ask(struct fetch *fetch, uint32_t number, const char *build_id)
{
	struct fetch_question question = {.number = number};
	ssize_t sent;

	snprintf(question.build_id, sizeof(question.build_id), "%s", build_id);
	do
		sent = send(fetch->socket, &question, sizeof(question),
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int fetch_answer(struct fetch *fetch, uint64_t until_ns, uint32_t *number, int *fd)
{
	struct fetch_result answer;
	int err = receive(fetch, until_ns, &answer, fd);

	if (err)
		return err;
	*number = answer.number;
	if (*fd < 0)
		*fd = answer.result < 0 ? answer.result : -EIO;
	return 0;
}
