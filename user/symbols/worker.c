/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's side. What the worker answers may be a broken one's: every offset in it is checked. */
#include "symbols/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "symbols/worker_wire.h"

struct worker {
	pid_t pid;   /* 0: none */
	pid_t owner; /* who started it: after a fork the child is not ours to talk to, nor to reap */
	int socket;
	uint64_t generation;
	char answer[WORKER_ANSWER_MAX + 1] __attribute__((aligned(8))); /* and a NUL */
};

static int worker_start(struct worker *worker)
{
	pid_t self = getpid();
	int ends[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	worker->pid = fork();
	if (!worker->pid)
		worker_child_run(ends[1], self);
	err = -errno;
	close(ends[1]);
	if (worker->pid < 0) {
		worker->pid = 0;
		close(ends[0]);
		return err;
	}
	worker->owner = self;
	worker->socket = ends[0];
	worker->generation++;
	return 0;
}

/* Its end, and how it ended (waitpid), 0 when that cannot be known. */
static int worker_end(struct worker *worker)
{
	int status = 0;

	if (!worker->pid)
		return 0;
	if (worker->owner == getpid()) {
		close(worker->socket);
		kill(worker->pid, SIGKILL);
		while (waitpid(worker->pid, &status, 0) < 0)
			if (errno != EINTR) {
				status = 0;
				break;
			}
	}
	worker->pid = 0;
	return status;
}

pid_t worker_pid(const struct worker *worker)
{
	return worker->pid;
}

void worker_stop(struct worker *worker)
{
	worker_end(worker);
}

/* After a fork the other process's worker is left alone; its socket's number may be something else by now. */
static int worker_ensure(struct worker *worker)
{
	if (worker->pid && worker->owner != getpid())
		worker->pid = 0;
	return worker->pid ? 0 : worker_start(worker);
}

int worker_new(struct worker **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int err = worker ? worker_start(worker) : -ENOMEM;

	if (err)
		free(worker);
	else
		*out = worker;
	return err;
}

void worker_free(struct worker *worker)
{
	if (!worker)
		return;
	worker_end(worker);
	free(worker);
}

int worker_generation(struct worker *worker, uint64_t *generation)
{
	int err = worker_ensure(worker);

	*generation = worker->generation;
	return err;
}

/* It has ended, or is to: the reason. */
static int worker_lost(struct worker *worker, int answer_came)
{
	int status = worker_end(worker);

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		return error_set(-ETIMEDOUT, "more than %d s to read it", WORKER_CPU_SECONDS);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		return error_set(-EIO, "the process that reads it was killed by signal %d", WTERMSIG(status));
	return error_set(-EIO, answer_came ? "the process that reads it gave a wrong answer"
					   : "the process that reads it has ended");
}

static int question_send(struct worker *worker, const struct worker_question *question, const char *symbol,
			 const int fds[], size_t fd_count)
{
	char control[CMSG_SPACE(sizeof(int) * WORKER_FILES_MAX)] __attribute__((aligned(8))) = {0};
	struct iovec iov[] = {{.iov_base = (void *)(uintptr_t)question, .iov_len = sizeof(*question)},
			      {.iov_base = (void *)(uintptr_t)symbol, .iov_len = strlen(symbol) + 1}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t sent;

	if (fd_count) {
		struct cmsghdr *header = (void *)control;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
	}
	do
		sent = sendmsg(worker->socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Bytes of the answer; 0: none has come in time. */
static size_t answer_receive(struct worker *worker)
{
	struct pollfd wait = {.fd = worker->socket, .events = POLLIN};
	ssize_t bytes;
	int ready;

	/* A signal begins the wait anew: what bounds it is the worker's own clock. */
	do
		ready = poll(&wait, 1, WORKER_WALL_SECONDS * 1000);
	while (ready < 0 && errno == EINTR);
	if (ready <= 0)
		return 0;
	do
		bytes = recv(worker->socket, worker->answer, sizeof(worker->answer) - 1, 0);
	while (bytes < 0 && errno == EINTR);
	return bytes > 0 ? (size_t)bytes : 0;
}

static int worker_ask(struct worker *worker, const struct worker_question *question, const char *symbol,
		      const int fds[], size_t fd_count, size_t *bytes)
{
	const struct worker_answer *answer = (void *)worker->answer;
	int err = worker_ensure(worker);

	*bytes = 0;
	if (err)
		return err;
	err = question_send(worker, question, symbol, fds, fd_count);
	if (!err)
		*bytes = answer_receive(worker);
	if (*bytes < sizeof(*answer))
		return worker_lost(worker, *bytes != 0);
	worker->answer[*bytes] = '\0'; /* every text ends */
	return answer->result;
}

int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd)
{
	const struct worker_question question = {.kind = WORKER_OPEN, .file = file};
	const int fds[] = {fd, alternate_fd};
	size_t bytes;

	return worker_ask(worker, &question, "", fds, alternate_fd >= 0 ? 2 : 1, &bytes);
}

int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  struct worker_frame frames[WORKER_FRAMES_MAX])
{
	const struct worker_question question = {.kind = WORKER_FRAMES, .file = file, .vaddr = vaddr};
	const struct worker_wire_frame *wire = (void *)(worker->answer + sizeof(struct worker_answer));
	size_t bytes, texts;
	int count;

	count = worker_ask(worker, &question, strlen(symbol) < WORKER_NAME_MAX ? symbol : "", NULL, 0,
			   &bytes);
	if (count <= 0)
		return count;
	texts = sizeof(struct worker_answer) + (size_t)count * sizeof(*wire);
	if (count > (int)WORKER_FRAMES_MAX || texts > bytes)
		return worker_lost(worker, 1);
	for (int i = 0; i < count; i++) {
		if (wire[i].function >= bytes || wire[i].filename >= bytes)
			return worker_lost(worker, 1);
		frames[i] = (struct worker_frame){.function = worker->answer + wire[i].function,
						  .filename = worker->answer + wire[i].filename,
						  .line = wire[i].line};
	}
	return count;
}
