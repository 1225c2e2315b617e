/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side. A compromised worker may answer anything: every offset in an answer is checked.
 */
#include "object/symbols/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/symbols/worker_wire.h"
#include "proc/process.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define SECOND_NS 1000000000ull
#define WALL_NS   (WORKER_WALL_SECONDS * SECOND_NS)

struct worker {
	pid_t pid; /* 0: none */
	/* process that started it: after a fork the worker belongs to the parent */
	pid_t owner;
	int socket;
	uint64_t generation;
	/* when the unanswered question was sent; 0: none */
	uint64_t asked_ns;
	uint64_t past_ns;      /* CPU time of workers that have ended */
	uint64_t forked_bytes; /* anonymous memory inherited by the fork */
	char answer[WORKER_ANSWER_MAX + 1] __attribute__((aligned(8))); /* plus a NUL */
};

/* Anonymous memory of a process; 0: unknown. */
static uint64_t anonymous_bytes(pid_t pid)
{
	uint64_t bytes, anonymous;

	return process_rss_read(pid, &bytes, &anonymous) ? 0 : anonymous;
}

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
	worker->forked_bytes = anonymous_bytes(worker->pid);
	return 0;
}

static uint64_t timeval_ns(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * SECOND_NS + (uint64_t)time->tv_usec * 1000;
}

/* Ends the worker. Returns its wait status, 0 if unknown. */
static int worker_end(struct worker *worker)
{
	struct rusage usage = {0};
	int status = 0;

	if (!worker->pid)
		return 0;
	if (worker->owner == getpid()) {
		close(worker->socket);
		kill(worker->pid, SIGKILL);
		while (wait4(worker->pid, &status, 0, &usage) < 0)
			if (errno != EINTR) {
				status = 0;
				break;
			}
		worker->past_ns += timeval_ns(&usage.ru_utime) + timeval_ns(&usage.ru_stime);
	}
	worker->pid = 0;
	worker->asked_ns = 0;
	return status;
}

uint64_t worker_held_bytes(const struct worker *worker)
{
	uint64_t bytes = worker->pid ? anonymous_bytes(worker->pid) : 0;

	return bytes > worker->forked_bytes ? bytes - worker->forked_bytes : 0;
}

pid_t worker_pid(const struct worker *worker)
{
	return worker->pid;
}

void worker_stop(struct worker *worker)
{
	worker_end(worker);
}

/*
 * After a fork the parent's worker is not touched; the number of its socket may have been reused.
 */
static int worker_ensure(struct worker *worker)
{
	if (worker->pid && worker->owner != getpid())
		worker->pid = worker->asked_ns = 0;
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

static int lost_reason(int status, int answer_came)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		return error_set(-ETIMEDOUT, "more than %d s to read it", WORKER_CPU_SECONDS);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		return error_set(-EIO, "the process that reads it was killed by signal %d",
				 WTERMSIG(status));
	return error_set(-EIO, answer_came ? "the process that reads it gave a wrong answer"
					   : "the process that reads it has ended");
}

/* Ends the worker and returns the reason of its failure. */
static int worker_lost(struct worker *worker, int answer_came)
{
	uint64_t took_ns = worker->asked_ns ? clock_ns(CLOCK_MONOTONIC) - worker->asked_ns : 0;
	int status = worker_end(worker);

	if (took_ns < WALL_NS || WIFSIGNALED(status) != 1 || WTERMSIG(status) != SIGKILL)
		return lost_reason(status, answer_came);
	worker->past_ns += took_ns;
	return error_set(-ETIMEDOUT, "no answer in %d s", WORKER_WALL_SECONDS);
}

static int question_send(struct worker *worker, const struct worker_question *question,
			 const char *symbol, const int fds[], size_t fd_count)
{
	char control[CMSG_SPACE(sizeof(int) * WORKER_FILES_MAX)] __attribute__((aligned(8))) = {0};
	struct iovec iov[] = {
		{.iov_base = (void *)(uintptr_t)question, .iov_len = sizeof(*question)},
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

/* Receives the answer and its size. 0; -EAGAIN; -ETIMEDOUT, -EIO. */
static int answer_receive(struct worker *worker, uint64_t until_ns, size_t *bytes)
{
	uint64_t end_ns = worker->asked_ns + WALL_NS;
	ssize_t got;

	if (!descriptor_wait(worker->socket, until_ns < end_ns ? until_ns : end_ns))
		return clock_ns(CLOCK_MONOTONIC) < end_ns ? -EAGAIN : worker_lost(worker, 0);
	do
		got = recv(worker->socket, worker->answer, sizeof(worker->answer) - 1, 0);
	while (got < 0 && errno == EINTR);
	if (got < (ssize_t)sizeof(struct worker_answer))
		return worker_lost(worker, got > 0);
	worker->asked_ns = 0;
	worker->answer[got] = '\0'; /* terminates the last text */
	*bytes = (size_t)got;
	return 0;
}

uint64_t worker_spent_ns(const struct worker *worker)
{
	struct timespec now = {0};
	clockid_t clock;

	if (worker->pid && worker->owner == getpid() && !clock_getcpuclockid(worker->pid, &clock))
		clock_gettime(clock, &now);
	return worker->past_ns + (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* other_fd: -1 for none. */
static int file_hand(struct worker *worker, const struct worker_question *question, int fd,
		     int other_fd)
{
	const int fds[] = {fd, other_fd};
	int err = worker_ensure(worker);

	if (err)
		return err;
	return question_send(worker, question, "", fds, other_fd >= 0 ? 2 : 1)
		       ? worker_lost(worker, 0)
		       : 0;
}

int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd)
{
	const struct worker_question question = {.kind = WORKER_OPEN, .file = file};

	return file_hand(worker, &question, fd, alternate_fd);
}

int worker_open_tables(struct worker *worker, uint32_t file, int fd, int debug_fd,
		       uint64_t tables_max)
{
	const struct worker_question question = {
		.kind = WORKER_OPEN_TABLES, .file = file, .tables_max = tables_max};

	return file_hand(worker, &question, fd, debug_fd);
}

/*
 * Asks, or waits for the answer of a question that was asked before. Returns the answer's result,
 * and its size.
 */
static int question_ask(struct worker *worker, const struct worker_question *question,
			const char *symbol, const int fds[], size_t fd_count, uint64_t until_ns,
			size_t *bytes)
{
	int err = worker_ensure(worker);

	if (!err && !worker->asked_ns) {
		worker->asked_ns = clock_ns(CLOCK_MONOTONIC);
		err = question_send(worker, question,
				    strlen(symbol) < WORKER_NAME_MAX ? symbol : "", fds, fd_count);
		if (err)
			return worker_lost(worker, 0);
	}
	if (!err)
		err = answer_receive(worker, until_ns, bytes);
	return err ?: ((const struct worker_answer *)worker->answer)->result;
}

static int frames_ask(struct worker *worker, const struct worker_question *question,
		      const char *symbol, uint64_t until_ns,
		      struct worker_frame frames[WORKER_FRAMES_MAX])
{
	const struct worker_wire_frame *wire =
		(void *)(worker->answer + sizeof(struct worker_answer));
	size_t bytes = 0, texts;
	int count = question_ask(worker, question, symbol, NULL, 0, until_ns, &bytes);

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

int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX])
{
	const struct worker_question question = {
		.kind = WORKER_FRAMES, .file = file, .vaddr = vaddr};

	return frames_ask(worker, &question, symbol, until_ns, frames);
}

int worker_symbol(struct worker *worker, uint32_t file, uint64_t vaddr, uint64_t until_ns,
		  const char **name)
{
	const struct worker_question question = {
		.kind = WORKER_SYMBOL, .file = file, .vaddr = vaddr};
	struct worker_frame frames[WORKER_FRAMES_MAX];
	int count = frames_ask(worker, &question, "", until_ns, frames);

	*name = count > 0 ? frames[0].function : "";
	return count < 0 ? count : 0;
}

int worker_unwind(struct worker *worker, int fd, int debug_fd, int table_fd, uint32_t rows,
		  uint64_t until_ns)
{
	const struct worker_question question = {.kind = WORKER_UNWIND, .rows = rows};
	const int fds[] = {fd, table_fd, debug_fd};
	size_t bytes;
	int result =
		question_ask(worker, &question, "", fds, debug_fd >= 0 ? 3 : 2, until_ns, &bytes);

	return result > 0 ? worker_lost(worker, 1) : result;
}
