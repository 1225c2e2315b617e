/* SPDX-License-Identifier: Apache-2.0 */
/* Our side: asks the process in regular_child.c, and keeps the copies that it makes. */
#include "util/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/array.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/regular_wire.h"

#define MS_NS    1000000ull
#define COPY_MS  10000 /* for a copy that makes progress */
#define LOOK_MS  50    /* between two looks whether we are asked to end */
#define HUNG_MAX 16u   /* processes that are left behind, and questions that are remembered */

/* A file that was copied. */
struct copy {
	struct stat file;       /* of the file, with the size of the copy */
	struct stat kept;       /* of the copy */
	off_t size;             /* of the file */
	int copy_fd, origin_fd; /* O_PATH */
};

/* A question that was not answered. */
struct hung {
	uint64_t key, until_ns;
};

/* One for this process: what is asked does not depend on who asks. */
static struct {
	pid_t pid, owner; /* 0: none; after a fork it belongs to the parent */
	int socket;
	struct copy *copies;
	size_t count, capacity;
	uint64_t bytes;
	struct hung hung[HUNG_MAX];
	unsigned int hung_next;
	pid_t left[HUNG_MAX]; /* processes that are left behind; 0: none */
} files;

/* Where the next process that is left behind is noted; NULL: there are too many. */
static pid_t *left_place(void)
{
	pid_t *place = NULL;

	for (size_t i = 0; i < HUNG_MAX; i++) {
		if (files.left[i] && waitpid(files.left[i], NULL, WNOHANG))
			files.left[i] = 0;
		if (!files.left[i])
			place = &files.left[i];
	}
	return place;
}

static int child_start(void)
{
	pid_t self = getpid();
	int ends[2];

	if (files.pid && files.owner == self)
		return 0;
	if (!left_place())
		return error_set(-ETIMEDOUT, "%u file systems do not answer: no more are asked",
				 HUNG_MAX);
	if (files.pid)
		close(files.socket);
	files.pid = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	files.pid = fork();
	if (!files.pid)
		regular_child_run(ends[1], self);
	close(ends[1]);
	if (files.pid < 0) {
		files.pid = 0;
		close(ends[0]);
		return -EAGAIN;
	}
	files.owner = self;
	files.socket = ends[0];
	return 0;
}

/* Leaves the process behind; if it waits in the kernel, it ends whenever that answers. */
static void child_leave(void)
{
	pid_t *place = left_place();

	close(files.socket);
	kill(files.pid, SIGKILL);
	if (place)
		*place = files.pid;
	files.pid = 0;
}

/* A question that is the same next time has the same key. */
static uint64_t question_key(const struct regular_question *question, int fd)
{
	uint64_t key = 14695981039346656037ull ^ question->kind;
	struct statx at = {0};

	if (question->has_descriptor)
		statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &at);
	key = (key ^ at.stx_dev_minor ^ (uint64_t)at.stx_dev_major << 32) * 1099511628211ull;
	/* A file system that does not answer for one file does not for another. */
	if (question->kind != REGULAR_REOPEN)
		key = (key ^ at.stx_ino) * 1099511628211ull;
	for (const char *at_path = question->path; *at_path; at_path++)
		key = (key ^ (unsigned char)*at_path) * 1099511628211ull;
	return key;
}

static int hung_find(uint64_t key)
{
	for (size_t i = 0; i < HUNG_MAX; i++)
		if (files.hung[i].key == key && clock_ns(CLOCK_MONOTONIC) < files.hung[i].until_ns)
			return 1;
	return 0;
}

static int no_answer(void)
{
	return error_set(-ETIMEDOUT, "its file system does not answer");
}

static int question_send(const struct regular_question *question, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)question, .iov_len = sizeof(*question)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	if (question->has_descriptor) {
		struct cmsghdr *header = (void *)control;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	do
		sent = sendmsg(files.socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -EIO : 0;
}

/* fds: -1 for none. 0; -EIO; -EMFILE: no room for the descriptors, which are lost. */
static int answer_read(struct regular_answer *answer, int fds[2])
{
	char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {.iov_base = answer, .iov_len = sizeof(*answer)};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t got;

	fds[0] = fds[1] = -1;
	do
		got = recvmsg(files.socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != sizeof(*answer))
		return -EIO;
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
	if (!(message.msg_flags & MSG_CTRUNC))
		return 0;
	for (size_t i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	fds[0] = fds[1] = -1;
	return -EMFILE;
}

/* 1: a message has come; 0: not in time, or we are asked to end. */
static int answer_wait(uint64_t until_ns)
{
	uint64_t now_ns;

	while ((now_ns = clock_ns(CLOCK_MONOTONIC)) < until_ns) {
		uint64_t look_ns = now_ns + LOOK_MS * MS_NS;

		if (descriptor_wait(files.socket, look_ns < until_ns ? look_ns : until_ns))
			return 1;
		if (interrupt_pending())
			return 0;
	}
	return 0;
}

static int answer_receive(struct regular_answer *answer, int fds[2])
{
	uint64_t begun_ns = clock_ns(CLOCK_MONOTONIC), now_ns = begun_ns;
	int err = 0;

	do {
		uint64_t end_ns = begun_ns + COPY_MS * MS_NS, until_ns = now_ns;

		until_ns += REGULAR_WAIT_MS * MS_NS;
		if (!answer_wait(until_ns < end_ns ? until_ns : end_ns))
			return -ETIMEDOUT;
		err = answer_read(answer, fds);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	} while (!err && answer->result == REGULAR_GOES_ON);
	return err;
}

/* The result; fds are the caller's. */
static int question_ask(const struct regular_question *question, int fd,
			struct regular_answer *answer, int fds[2])
{
	uint64_t key = question_key(question, fd);

	fds[0] = fds[1] = -1;
	if (hung_find(key))
		return no_answer();
	int err = child_start();
	if (!err)
		err = question_send(question, fd) ?: answer_receive(answer, fds);
	else
		return err;
	if (err)
		child_leave();
	if (err == -ETIMEDOUT) {
		files.hung[files.hung_next++ % HUNG_MAX] =
			(struct hung){key, clock_ns(CLOCK_MONOTONIC) + REGULAR_AGAIN_MS * MS_NS};
		return no_answer();
	}
	return err ?: answer->result;
}

static int is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static struct copy *copy_find(int fd)
{
	struct stat st;

	if (!files.count || fstat(fd, &st))
		return NULL;
	for (size_t i = 0; i < files.count; i++)
		if (is_same_file(&files.copies[i].kept, &st))
			return &files.copies[i];
	return NULL;
}

/* Another descriptor of a copy, with an offset of its own. */
static int copy_open(const struct copy *copy)
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", copy->copy_fd);
	int fd = open(link, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Where a copy of this file is, or is to be; NULL: there is no memory. */
static struct copy *copy_place(const struct stat *file)
{
	for (size_t i = 0; i < files.count; i++) {
		struct copy *copy = &files.copies[i];

		if (!is_same_file(&copy->file, file))
			continue;
		files.bytes -= (uint64_t)copy->kept.st_size;
		close(copy->copy_fd);
		close(copy->origin_fd);
		return copy;
	}
	if (ARRAY_GROW(files.copies, files.capacity, files.count))
		return NULL;
	return &files.copies[files.count++];
}

/* Takes both descriptors. Returns one of the copy, -errno. */
static int copy_add(const struct regular_answer *answer, int copy_fd, int origin_fd)
{
	struct copy copy = {.file = answer->stat,
			    .size = answer->stat.st_size,
			    .copy_fd = copy_fd,
			    .origin_fd = origin_fd};
	int err = copy_fd < 0 || origin_fd < 0 || fstat(copy_fd, &copy.kept) ? -EIO : 0;
	struct copy *place = NULL;

	if (!err && files.bytes + (uint64_t)copy.kept.st_size > REGULAR_KEPT_MAX)
		err = error_set(-EFBIG, "copies of files that others serve take more than %llu MiB",
				REGULAR_KEPT_MAX >> 20);
	if (!err)
		place = copy_place(&copy.file);
	if (!err && !place)
		err = -ENOMEM;
	if (err) {
		if (copy_fd >= 0)
			close(copy_fd);
		if (origin_fd >= 0)
			close(origin_fd);
		return err;
	}
	copy.file.st_size = copy.kept.st_size;
	files.bytes += (uint64_t)copy.kept.st_size;
	*place = copy;
	return copy_open(place);
}

/* Returns a descriptor, -errno. */
static int file_ask(const struct regular_question *question, int fd)
{
	struct regular_answer answer;
	int fds[2], result = question_ask(question, fd, &answer, fds);

	if (result == REGULAR_COPIED)
		return copy_add(&answer, fds[0], fds[1]);
	if (result == REGULAR_DONE && fds[0] >= 0)
		return fds[0];
	if (result == -EFBIG)
		return error_set(-EFBIG, "more than %llu MiB on a file system that others serve",
				 REGULAR_COPY_MAX >> 20);
	return result < 0 ? result : -EIO;
}

/* What is known of a file without asking its file system. */
static int cached_stat(int path_fd, struct statx *out)
{
	return statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		     STATX_TYPE | STATX_INO | STATX_SIZE | STATX_MTIME, out)
		       ? -errno
		       : 0;
}

static struct copy *copy_known(const struct statx *st)
{
	for (size_t i = 0; i < files.count; i++) {
		struct copy *copy = &files.copies[i];

		if (copy->file.st_dev == makedev(st->stx_dev_major, st->stx_dev_minor) &&
		    copy->file.st_ino == st->stx_ino && copy->size == (off_t)st->stx_size &&
		    copy->file.st_mtim.tv_sec == st->stx_mtime.tv_sec &&
		    copy->file.st_mtim.tv_nsec == (long)st->stx_mtime.tv_nsec)
			return copy;
	}
	return NULL;
}

int regular_reopen(int path_fd)
{
	static const struct regular_question question = {.kind = REGULAR_REOPEN,
							 .has_descriptor = 1};
	struct statx st;
	struct copy *known;
	char link[40];
	int fd, err = cached_stat(path_fd, &st);

	if (err)
		return err;
	if (!S_ISREG(st.stx_mode))
		return -EINVAL;
	/* Anonymous device numbers, without a disk, are those of all others. */
	if (!st.stx_dev_major) {
		known = copy_known(&st);
		return known ? copy_open(known) : file_ask(&question, path_fd);
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

/* 0; -ENAMETOOLONG. */
static int question_make(struct regular_question *out, enum regular_kind kind, int directory,
			 const char *path, uint64_t resolve)
{
	memset(out, 0, sizeof(*out));
	out->kind = kind;
	out->has_descriptor = directory != AT_FDCWD;
	out->resolve = resolve;
	if (strlen(path) >= sizeof(out->path))
		return -ENAMETOOLONG;
	memcpy(out->path, path, strlen(path));
	return 0;
}

int regular_open(int directory, const char *path, uint64_t resolve)
{
	struct regular_question question;
	int err = question_make(&question, REGULAR_FILE, directory, path, resolve);

	return err ?: file_ask(&question, directory);
}

int regular_folder(int directory, const char *path, uint64_t resolve)
{
	struct regular_question question;
	struct regular_answer answer;
	int fds[2] = {-1, -1},
	    err = question_make(&question, REGULAR_FOLDER, directory, path, resolve);

	if (!err)
		err = question_ask(&question, directory, &answer, fds);
	return err < 0 ? err : fds[0] < 0 ? -EIO : fds[0];
}

int regular_is_local(int folder)
{
	static const struct regular_question question = {.kind = REGULAR_LOCAL,
							 .has_descriptor = 1};
	struct regular_answer answer;
	int fds[2], err = question_ask(&question, folder, &answer, fds);

	return err < 0 ? err : answer.is_local;
}

static int names_each(FILE *names, size_t max, int (*each)(void *context, const char *name),
		      void *context)
{
	size_t capacity = 0, count = 0;
	char *name = NULL;
	int err = 0;

	while (!err && getdelim(&name, &capacity, '\0', names) > 0)
		err = count++ == max ? -E2BIG : each(context, name);
	free(name);
	return err;
}

int regular_names(int folder, size_t max, int (*each)(void *context, const char *name),
		  void *context)
{
	static const struct regular_question question = {.kind = REGULAR_NAMES,
							 .has_descriptor = 1};
	struct regular_answer answer;
	int fds[2], err = question_ask(&question, folder, &answer, fds);
	FILE *names = err < 0 || fds[0] < 0 ? NULL : fdopen(fds[0], "r");

	if (!names) {
		if (fds[0] >= 0)
			close(fds[0]);
		return err < 0 ? err : -EIO;
	}
	rewind(names);
	err = names_each(names, max, each, context);
	fclose(names);
	return err ? err : answer.cut ? -E2BIG : 0;
}

int regular_stat(int fd, struct stat *out)
{
	const struct copy *copy = copy_find(fd);

	if (!copy)
		return fstat(fd, out) ? -errno : 0;
	*out = copy->file;
	return 0;
}

int regular_is_copy(int fd)
{
	return copy_find(fd) != NULL;
}

int regular_origin(int fd)
{
	static const struct regular_question question = {.kind = REGULAR_REOPEN,
							 .has_descriptor = 1};
	const struct copy *copy = copy_find(fd);
	struct regular_answer answer;
	int fds[2], err, origin;

	if (!copy)
		return fd;
	origin = copy->origin_fd;
	err = question_ask(&question, origin, &answer, fds);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return err < 0 ? err : origin;
}
