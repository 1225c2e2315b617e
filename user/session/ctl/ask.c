/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "session/ctl/session_socket.h"
#include "util/clock.h"
#include "util/error.h"

#define ANSWER_BYTES (8u << 20) /* longest answer that is accepted */

static int request_send(int fd, const struct request *request, int passed)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char line[REQUEST_BYTES];
	struct iovec data = {line, request_print(line, request)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (passed >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		struct cmsghdr *at = CMSG_FIRSTHDR(&message);
		*at = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
				       .cmsg_level = SOL_SOCKET,
				       .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(at), &passed, sizeof(int));
	}
	/* The request is short, and the session has read everything before it. */
	ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
	if (n == (ssize_t)data.iov_len)
		return 0;
	/* A session that refuses us may have sent the reason. */
	return n < 0 && errno != EPIPE ? error_errno() : 0;
}

/* Appends received bytes; 1: end of the connection. end_ns 0: no timeout. */
static int bytes_wait(int fd, uint64_t end_ns, struct buffer *answer)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int wait_ms = !end_ns ? -1 : now_ns >= end_ns ? 0 : (int)((end_ns - now_ns) / 1000000 + 1);
	int ready = poll(&poll_fd, 1, wait_ms);
	char bytes[16384];

	if (ready < 0)
		return errno == EINTR ? 0 : error_errno();
	if (!ready)
		return error_set(-ETIMEDOUT, "the session does not answer");
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0
		       : errno == ECONNRESET             ? 1
							 : error_errno();
	if (answer->size + (size_t)n > ANSWER_BYTES)
		return error_set(-EMSGSIZE, "the answer is longer than %u bytes", ANSWER_BYTES);
	return n ? buffer_append(answer, bytes, (size_t)n) : 1;
}

static uint64_t end_of(int timeout_ms)
{
	return timeout_ms < 0 ? 0 : clock_ns(CLOCK_MONOTONIC) + (uint64_t)timeout_ms * 1000000;
}

static int answer_wait(int fd, uint64_t end_ns, struct buffer *answer)
{
	unsigned char *end = NULL;

	while (!end) {
		int err = bytes_wait(fd, end_ns, answer);

		if (err)
			return err > 0 ? error_set(-EPIPE, "the session has ended") : err;
		end = answer->size ? memchr(answer->data, '\n', answer->size) : NULL;
	}
	*end = '\0';
	answer->size = (size_t)(end - answer->data);
	return 0;
}

int ask(int fd, const struct request *request, int passed, int timeout_ms, struct buffer *answer)
{
	int err = request_send(fd, request, passed);

	answer->size = 0;
	return err ?: answer_wait(fd, end_of(timeout_ms), answer);
}

int ask_begin(int fd, const struct request *request, int passed, struct buffer *answer)
{
	answer->size = 0;
	return request_send(fd, request, passed);
}

int ask_step(int fd, struct buffer *answer)
{
	unsigned char *end;
	int err;

	do
		err = bytes_wait(fd, 1, answer); /* the time is over: what is there is read */
	while (!err && !memchr(answer->data, '\n', answer->size));
	if (err == -ETIMEDOUT)
		return 0;
	if (err)
		return err > 0 ? error_set(-EPIPE, "the session has ended") : err;
	end = memchr(answer->data, '\n', answer->size);
	*end = '\0';
	answer->size = (size_t)(end - answer->data);
	return 1;
}

int ask_memory_read(int memory, size_t max, struct buffer *out)
{
	struct stat st;

	out->size = 0;
	if (fstat(memory, &st))
		return error_errno();
	if ((uint64_t)st.st_size > max)
		return error_set(-EMSGSIZE, "the session's answer is longer than %zu MiB",
				 max >> 20);
	int err = buffer_reserve(out, (size_t)st.st_size);

	while (!err && out->size < (size_t)st.st_size) {
		ssize_t got = pread(memory, out->data + out->size, (size_t)st.st_size - out->size,
				    (off_t)out->size);

		if (got <= 0)
			return got ? error_errno() : 0;
		out->size += (size_t)got;
	}
	return err;
}

int ask_end(int fd, int timeout_ms)
{
	uint64_t end_ns = end_of(timeout_ms);
	struct buffer rest = {0};
	int err;

	do
		err = bytes_wait(fd, end_ns, &rest);
	while (!err);
	buffer_free(&rest);
	return err > 0 ? 0 : err;
}

/* A session that was asked whether it traces the process. */
struct ask_connection {
	pid_t pid;
	int fd;
};

/* Returns the index of the one session that traces pid. */
static int answers_choose(struct ask_connection *asked, size_t count, uint32_t pid)
{
	uint64_t end_ns = end_of(ASK_TIMEOUT_MS);
	size_t found = count, silent = 0;
	struct buffer answer = {0};
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		answer.size = 0;
		if (asked[i].fd < 0)
			continue;
		int failed = answer_wait(asked[i].fd, end_ns, &answer);
		if (failed || strncmp((char *)answer.data, "{\"is_tracing\"", 13) != 0)
			silent += failed == -ETIMEDOUT;
		else if (found < count)
			err = error_set(-EEXIST, "sessions %d and %d both trace it",
					asked[found].pid, asked[i].pid);
		else
			found = i;
	}
	buffer_free(&answer);
	if (err)
		return err;
	if (found < count)
		return (int)found;
	if (silent)
		return error_set(-ETIMEDOUT,
				 "no session says that it traces it, but %zu did not answer",
				 silent);
	return error_set(-ESRCH, "no session traces PID %u", pid);
}

int ask_find(const char *directory, uint32_t pid, pid_t session)
{
	const struct request request = {.kind = REQUEST_STATUS, .pid = pid};
	struct ask_connection *asked;
	pid_t *pids = NULL;
	size_t count = 0;
	int err = session_socket_list(directory, &pids, &count), fd = -1;

	if (err == -ENOENT)
		return error_set(-ESRCH, "no session traces PID %u", pid);
	if (err)
		return err;
	asked = calloc(count + 1, sizeof(*asked));
	if (!asked) {
		free(pids);
		return -ENOMEM;
	}
	/* Send to all before waiting for the first, so that they answer in parallel. */
	for (size_t i = 0; i < count; i++) {
		asked[i] = (struct ask_connection){.pid = pids[i], .fd = -1};
		if (!session || session == pids[i])
			asked[i].fd = session_socket_connect(directory, pids[i]);
		if (asked[i].fd >= 0)
			request_send(asked[i].fd, &request, -1);
	}
	err = answers_choose(asked, count, pid);
	for (size_t i = 0; i < count; i++) {
		if ((int)i == err)
			fd = asked[i].fd;
		else if (asked[i].fd >= 0)
			close(asked[i].fd);
	}
	free(asked);
	free(pids);
	return err < 0 ? err : fd;
}
