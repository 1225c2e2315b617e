/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/links_holder.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/links/links_wire.h"
#include "proc/patience.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define LOOK_MS 50u /* between two looks whether we are to end */

struct links_holder {
	pid_t pid;
	int socket;
	uint32_t next_group;
	size_t count; /* descriptors of links that it holds */
	int left;     /* the kernel made it wait when we were to end: it ends by itself */
};

int links_holder_new(struct links_holder **out)
{
	struct links_holder *holder = calloc(1, sizeof(*holder));
	int ends[2], owner, err;

	if (!holder)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		err = -errno;
		free(holder);
		return err;
	}
	owner = (int)syscall(SYS_pidfd_open, getpid(), 0);
	holder->pid = fork();
	if (!holder->pid) {
		close(ends[0]);
		links_holder_run(ends[1], owner);
	}
	err = holder->pid < 0 ? -errno : 0;
	close(ends[1]);
	if (owner >= 0)
		close(owner);
	if (err) {
		close(ends[0]);
		free(holder);
		return error_set(err, "the process that holds the probes cannot be started");
	}
	holder->socket = ends[0];
	*out = holder;
	return 0;
}

static int holder_gone(void)
{
	return error_set(-EOWNERDEAD,
			 "the process that holds the probes (" LINKS_HOLDER_NAME ") was killed: no "
			 "probe is in place any more");
}

static int holder_left(void)
{
	pid_t slow = patience_slow();

	if (slow)
		return error_set(-EINTR,
				 "the tracer is to end, and the kernel still waits for PID %d, "
				 "which keeps its memory map locked",
				 (int)slow);
	return error_set(-EINTR, "the tracer is to end, and the kernel has not finished");
}

static int bytes_send(struct links_holder *holder, const void *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t sent =
			send(holder->socket, (const char *)data + at, size - at, MSG_NOSIGNAL);

		if (sent >= 0)
			at += (size_t)sent;
		else if (errno != EINTR)
			return holder_gone();
	}
	return 0;
}

/* fds: two descriptors to pass along, or NULL. */
static int request_send(struct links_holder *holder, const struct links_request *request,
			const int *fds)
{
	char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header;
	ssize_t sent;

	if (holder->left)
		return holder_left();
	if (fds) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(header), fds, 2 * sizeof(int));
	}
	do
		sent = sendmsg(holder->socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent <= 0)
		return holder_gone();
	return bytes_send(holder, (const char *)request + sent, sizeof(*request) - (size_t)sent);
}

/*
 * Waits for an answer, while the kernel places or removes probes. It may wait for the lock of any
 * process that maps the file, without end. We do not once we are to end: the process ends by itself
 * when the kernel lets it, and removes the links.
 */
static int answer_wait(struct links_holder *holder)
{
	unsigned int looks = 0;

	do {
		uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_MS * 1000000ull;

		if (descriptor_wait(holder->socket, until_ns))
			return 0;
		looks = patience_is_ending() ? looks + 1 : 0;
	} while (looks < LINKS_END_MS / LOOK_MS);
	shutdown(holder->socket, SHUT_RDWR);
	holder->left = 1;
	return holder_left();
}

static int answer_read(struct links_holder *holder, struct links_answer *out)
{
	for (size_t at = 0; at < sizeof(*out);) {
		int err = answer_wait(holder);

		if (err)
			return err;
		ssize_t got = read(holder->socket, (char *)out + at, sizeof(*out) - at);
		if (got > 0)
			at += (size_t)got;
		else if (!got || errno != EINTR)
			return holder_gone();
	}
	return 0;
}

/* A process becomes a zombie only after its files are closed. 1: it has ended. */
static int end_wait(pid_t pid, int wait_ms)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)wait_ms * 1000000, now;
	struct pollfd poll_end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	int ended = 0;

	while (poll_end.fd >= 0 && !ended && (now = clock_ns(CLOCK_MONOTONIC)) < until_ns)
		ended = poll(&poll_end, 1, (int)((until_ns - now) / 1000000) + 1) == 1;
	if (poll_end.fd >= 0)
		close(poll_end.fd);
	return ended;
}

int links_holder_free(struct links_holder *holder, int wait_ms)
{
	const struct links_request request = {.op = LINKS_END};

	if (!holder)
		return 1;
	if (!holder->left)
		request_send(holder, &request, NULL);
	close(holder->socket);
	int ended = !holder->left && (wait_ms < 0 || (wait_ms && end_wait(holder->pid, wait_ms)));
	while (ended && waitpid(holder->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(holder);
	return ended;
}

pid_t links_holder_pid(const struct links_holder *holder)
{
	return holder ? holder->pid : 0;
}

int links_holder_check(const struct links_holder *holder)
{
	struct pollfd poll_end = {.fd = holder->socket, .events = POLLIN};

	return !holder->left && poll(&poll_end, 1, 0) == 1 ? holder_gone() : 0;
}

/* Sends a request that is followed by size bytes. */
static int request_do(struct links_holder *holder, const struct links_request *request,
		      const void *data, size_t size)
{
	struct links_answer answer;
	int err = request_send(holder, request, NULL);

	if (!err)
		err = bytes_send(holder, data, size);
	if (!err)
		err = answer_read(holder, &answer);
	return err ?: answer.err;
}

int links_holder_confine(struct links_holder *holder, int attaches)
{
	const struct links_request request = {.op = LINKS_CONFINE, .attaches = attaches};

	int err = request_do(holder, &request, NULL, 0);

	/* One that was left has nothing to do any more but to end. */
	return holder->left ? 0 : err;
}

int links_holder_sweep(struct links_holder *holder, const char *path)
{
	const struct links_request request = {.op = LINKS_SWEEP, .count = (uint32_t)strlen(path)};

	return request.count >= LINKS_PATH_MAX ? -ENAMETOOLONG
					       : request_do(holder, &request, path, request.count);
}

size_t links_holder_count(const struct links_holder *holder)
{
	return holder ? holder->count : 0;
}

static int spec_refused(const struct links_spec *spec, const struct links_answer *answer)
{
	if (spec->backend == LINKS_PERF)
		return error_set(answer->err, "uprobe at offset 0x%llx: %s",
				 (unsigned long long)answer->where, strerror(-answer->err));
	return error_set(answer->err, "uprobe_multi link of %zu sites: %s", spec->sites.count,
			 strerror(-answer->err));
}

int links_holder_add(struct links_holder *holder, const struct links_spec *spec, uint32_t *group,
		     size_t *made)
{
	const struct links_request request = {
		.op = LINKS_ADD,
		.backend = spec->backend,
		.kind = spec->kind,
		.pid = spec->pid,
		.group = holder->next_group++,
		.count = (uint32_t)spec->sites.count,
		.has_semaphores = spec->sites.semaphores != NULL,
	};
	const size_t bytes = spec->sites.count * sizeof(uint64_t);
	const int fds[] = {spec->program, spec->file};
	struct links_answer answer = {0};

	*group = request.group;
	*made = 0;
	if (!spec->sites.count || spec->sites.count > LINKS_SITES_MAX)
		return spec->sites.count ? -E2BIG : 0;
	int err = request_send(holder, &request, fds)
		  ?: bytes_send(holder, spec->sites.offsets, bytes)
		  ?: bytes_send(holder, spec->sites.cookies, bytes);
	if (!err && request.has_semaphores)
		err = bytes_send(holder, spec->sites.semaphores, bytes);
	if (!err)
		err = answer_read(holder, &answer);
	if (err)
		return err;
	*made = answer.made;
	holder->count += answer.made;
	return answer.err ? spec_refused(spec, &answer) : 0;
}

void links_holder_drop(struct links_holder *holder, const uint32_t *groups, size_t count,
		       size_t descriptors, int wait)
{
	const struct links_request request = {
		.op = LINKS_DROP, .count = (uint32_t)count, .wait = wait};

	if (!count)
		return;
	/* If the holder has ended, so have the links. */
	request_do(holder, &request, groups, count * sizeof(*groups));
	holder->count -= descriptors;
}
