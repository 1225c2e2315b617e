/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is in one of four states: idle, in the middle of a line, waiting for a saver, or slow to
 * read its answer. since_ns is the time when the state began. The second and the last state have a
 * timeout; a saver has no timeout while its client waits.
 */
#include "session/ctl/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/ctl/control.h"
#include "session/ctl/saver.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/json.h"

/* accepted per message, all but one are closed; the kernel drops those beyond */
#define DESCRIPTORS 8

struct client {
	int fd;
	pid_t pid;
	int passed; /* the descriptor received last; -1: none */
	struct saver *saver;
	size_t saved, of; /* processes in the snapshot that is written, and in the session */
	uint64_t since_ns;
	struct buffer out;
	size_t sent;
	size_t have;
	char line[REQUEST_BYTES];
};

int client_new(struct client **out, int fd, pid_t pid)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->fd = fd;
	client->pid = pid;
	client->passed = -1;
	client->since_ns = clock_ns(CLOCK_MONOTONIC);
	*out = client;
	return 0;
}

void client_free(struct client *client)
{
	if (!client)
		return;
	saver_free(client->saver);
	if (client->passed >= 0)
		close(client->passed);
	close(client->fd);
	buffer_free(&client->out);
	free(client);
}

static int answer_pending(const struct client *client)
{
	return client->sent < client->out.size;
}

size_t client_poll_fds(const struct client *client, struct pollfd *fds)
{
	size_t count = 0;

	fds[count++] = (struct pollfd){
		.fd = client->fd,
		.events = answer_pending(client) ? POLLOUT
			  : client->saver        ? 0
						 : POLLIN,
	};
	if (client->saver)
		fds[count++] =
			(struct pollfd){.fd = saver_poll_fd(client->saver), .events = POLLIN};
	return count;
}

int client_idle(const struct client *client)
{
	return !client->have && !answer_pending(client) && !client->saver;
}

uint64_t client_since_ns(const struct client *client)
{
	return client->since_ns;
}

int client_saves(const struct client *client)
{
	return client->saver != NULL;
}

void client_answer(struct client *client, const char *text, size_t bytes)
{
	/* Out of memory: close the connection without an answer. */
	if (buffer_append(&client->out, text, bytes) || buffer_append(&client->out, "\n", 1))
		shutdown(client->fd, SHUT_RDWR);
}

static char *error_text(const char *reason, size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	if (!out)
		return NULL;
	fputs("{\"error\": ", out);
	json_quote(out, reason);
	putc('}', out);
	fclose(out);
	return text;
}

void client_error(struct client *client, const char *reason)
{
	size_t size = 0;
	char *text = error_text(reason, &size);

	client_answer(client, text ? text : "", size);
	free(text);
}

int client_flush(struct client *client)
{
	while (answer_pending(client)) {
		ssize_t n = send(client->fd, client->out.data + client->sent,
				 client->out.size - client->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : error_errno();
		client->sent += (size_t)n;
		client->since_ns = clock_ns(CLOCK_MONOTONIC);
	}
	client->sent = 0;
	buffer_free(&client->out);
	return 0;
}

void client_refuse(struct client *client, const char *reason)
{
	log_info("client PID %d is dropped: %s", client->pid, reason);
	client_error(client, reason);
	client_flush(client);
}

/* Keeps the last descriptor of the message and closes the others. */
static void descriptors_take(struct client *client, struct msghdr *message)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			if (client->passed >= 0)
				close(client->passed);
			memcpy(&client->passed, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
		}
	}
}

/* The number of bytes read, 0 if there are none yet, negative if the client has closed. */
static ssize_t bytes_read(struct client *client)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control;
	struct iovec space = {client->line + client->have, sizeof(client->line) - client->have};
	struct msghdr message = {.msg_iov = &space,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : error_errno();
	descriptors_take(client, &message);
	return n ? n : -EPIPE;
}

/* Parses the next complete line of the buffer. 1; 0: none yet; negative: the client is refused. */
static int line_take(struct client *client, struct request *request)
{
	char *end = memchr(client->line, '\n', client->have);
	size_t size;
	int err;

	if (!end && client->have < sizeof(client->line))
		return 0;
	size = end ? (size_t)(end - client->line) + 1 : client->have;
	err = end ? request_parse(client->line, size - 1, request)
		  : error_set(-EBADMSG, "a line of more than %u bytes", REQUEST_BYTES);
	client->have -= size;
	memmove(client->line, client->line + size, client->have);
	if (err == -EBADMSG) {
		client_refuse(client, error_reason(err));
		return err;
	}
	if (err) {
		client_error(client, error_reason(err));
		return client_flush(client);
	}
	return 1;
}

static void saved_answer(struct client *client)
{
	char text[96], of[64] = "";

	if (client->of > 1)
		snprintf(of, sizeof(of), ", \"processes\": %zu, \"of\": %zu", client->saved,
			 client->of);
	client_answer(client, text,
		      (size_t)snprintf(text, sizeof(text), "{\"snapshot\": true%s}", of));
}

/* 0: still writing, or its answer is queued; negative: the client has disconnected. */
static int saver_watch(struct client *client)
{
	struct pollfd fds[] = {{.fd = saver_poll_fd(client->saver), .events = POLLIN},
			       {.fd = client->fd}};
	int err;

	if (poll(fds, 2, 0) <= 0)
		return 0;
	if (!fds[0].revents)
		return fds[1].revents & (POLLHUP | POLLERR) ? -EPIPE : 0;
	err = saver_finish(client->saver);
	client->saver = NULL;
	client->since_ns = clock_ns(CLOCK_MONOTONIC);
	if (err)
		client_error(client, error_reason(err));
	else
		saved_answer(client);
	return 0;
}

static int time_check(struct client *client, uint64_t now_ns)
{
	if (client_idle(client) || client->saver || now_ns < client->since_ns + CONTROL_TIMEOUT_NS)
		return 0;
	client_refuse(client, answer_pending(client) ? "it does not take its answer"
						     : "it does not end its line");
	return -ETIMEDOUT;
}

int client_next(struct client *client, uint64_t now_ns, struct request *request)
{
	int idle = client_idle(client);
	int got;

	error_clear();
	got = client->saver ? saver_watch(client) : 0;
	if (!got)
		got = client_flush(client);
	if (got || client->saver || answer_pending(client))
		return got ? got : time_check(client, now_ns);
	got = line_take(client, request);
	if (!got && !answer_pending(client)) {
		ssize_t n = bytes_read(client);

		if (n < 0)
			return (int)n;
		if (n && idle)
			client->since_ns = now_ns;
		client->have += (size_t)n;
		got = line_take(client, request);
	}
	if (got > 0)
		client->since_ns = now_ns;
	return got ? got : time_check(client, now_ns);
}

int client_take_passed(struct client *client)
{
	int fd = client->passed;

	client->passed = -1;
	return fd >= 0 ? fd : error_set(-EINVAL, "no descriptor was passed with the request");
}

int client_save(struct client *client, struct trace *trace, enum saver_what what, size_t process,
		size_t of)
{
	int fd = client_take_passed(client), err;

	if (fd < 0)
		return fd;
	err = saver_start(&client->saver, trace, what, process, fd);
	close(fd);
	client->saved = process == SAVER_ALL ? of : 1;
	client->of = of;
	return err;
}
