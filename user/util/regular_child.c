/* SPDX-License-Identifier: Apache-2.0 */
/* The process that waits for file systems; regular.h explains its purpose. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/regular.h"
#include "util/regular_wire.h"

#define SOCKET      3
#define PIECE_BYTES (1u << 20)
/* magic numbers that linux/magic.h lacks */
#define ZFS_MAGIC      0x2fc12fc1
#define NTFS3_MAGIC    0x7366746e
#define BCACHEFS_MAGIC 0xca451a4e

static int path_open(int directory, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	int fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* Is a file system with this device mounted where we are, as this type? */
static int is_mounted_here(dev_t device, const char *type)
{
	_cleanup_(fclosep) FILE *mounts = fopen("/proc/self/mountinfo", "re");
	size_t capacity = 0;
	char *line = NULL;
	int found = 0;

	while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
		unsigned int major_number, minor_number;
		const char *after = strstr(line, " - ");

		found = after && !strncmp(after + 3, type, strlen(type)) &&
			after[3 + strlen(type)] == ' ' &&
			sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) == 2 &&
			makedev(major_number, minor_number) == device;
	}
	free(line);
	return found;
}

/* Does no use of the file ever wait for another process or machine? */
static int is_local(int path_fd, const struct stat *file)
{
	struct statfs system;
	struct stat root;

	if (!stat("/", &root) && root.st_dev == file->st_dev)
		return 1;
	if (fstatfs(path_fd, &system))
		return 0;
	switch ((uint32_t)system.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case F2FS_SUPER_MAGIC:
	case NILFS_SUPER_MAGIC:
	case REISERFS_SUPER_MAGIC:
	case SQUASHFS_MAGIC:
	case EROFS_SUPER_MAGIC_V1:
	case CRAMFS_MAGIC:
	case ISOFS_SUPER_MAGIC:
	case MSDOS_SUPER_MAGIC:
	case EXFAT_SUPER_MAGIC:
	case NTFS3_MAGIC:
	case ZFS_MAGIC:
	case BCACHEFS_MAGIC:
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case CGROUP2_SUPER_MAGIC:
		return 1;
	case OVERLAYFS_SUPER_MAGIC:
		return is_mounted_here(file->st_dev, "overlay");
	default:
		return 0;
	}
}

static void answer_send(const struct regular_answer *answer, const int *fds, size_t count)
{
	char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof(*answer)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count) {
		struct cmsghdr *header = (void *)control;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	}
	while (sendmsg(SOCKET, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			_exit(1);
}

static void failure_send(int err)
{
	const struct regular_answer answer = {.result = err};

	answer_send(&answer, NULL, 0);
}

/* Copies a file, and says so after each piece. 0, -errno. */
static int content_copy(int from, int to)
{
	const struct regular_answer goes_on = {.result = REGULAR_GOES_ON};
	_cleanup_free_ char *piece = malloc(PIECE_BYTES);
	uint64_t done = 0;
	ssize_t got = 1;
	int err = piece ? 0 : -ENOMEM;

	while (!err && got > 0) {
		got = read(from, piece, PIECE_BYTES);
		if (got < 0)
			err = errno == EINTR ? 0 : -errno;
		else if (done + (uint64_t)got > REGULAR_COPY_MAX)
			err = -EFBIG;
		else
			err = descriptor_write(to, piece, (size_t)got);
		if (got < 0 && !err)
			got = 1;
		else
			done += (uint64_t)(got > 0 ? got : 0);
		if (!err && got > 0)
			answer_send(&goes_on, NULL, 0);
	}
	return err;
}

/* file: open for reading. Answers by a copy. */
static void copy_answer(int path_fd, int file, struct regular_answer *answer)
{
	_cleanup_close_ int copy = (int)syscall(SYS_memfd_create, "tracer-copy", MFD_CLOEXEC);
	int err = copy < 0 ? -errno : content_copy(file, copy);

	if (!err) {
		const int fds[] = {copy, path_fd};

		answer->result = REGULAR_COPIED;
		answer_send(answer, fds, 2);
	} else
		failure_send(err);
}

static void file_answer(int path_fd)
{
	struct regular_answer answer = {.result = REGULAR_DONE};
	char link[40];
	int file, err = fstat(path_fd, &answer.stat)    ? -errno
			: S_ISDIR(answer.stat.st_mode)  ? -EISDIR
			: S_ISLNK(answer.stat.st_mode)  ? -ELOOP
			: !S_ISREG(answer.stat.st_mode) ? -EINVAL
							: 0;

	if (err) {
		failure_send(err);
		return;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	file = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file < 0)
		failure_send(-errno);
	else if (is_local(path_fd, &answer.stat))
		answer_send(&answer, &file, 1);
	else if ((uint64_t)answer.stat.st_size > REGULAR_COPY_MAX)
		failure_send(-EFBIG);
	else
		copy_answer(path_fd, file, &answer);
	if (file >= 0)
		close(file); /* may wait for the file system: the answer is sent */
}

/* The names, each with its NUL, in a file in memory. */
static int names_write(int folder, int out, struct regular_answer *answer)
{
	int fd = path_open(folder, ".", O_RDONLY | O_DIRECTORY, 0);
	_cleanup_(closedirp) DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	size_t bytes = 0;
	int err = 0;

	if (!stream)
		return fd < 0 ? fd : -errno;
	while (!err && !answer->cut && (entry = readdir(stream))) {
		size_t size = strlen(entry->d_name) + 1;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		bytes += size;
		answer->cut = bytes > REGULAR_NAMES_MAX;
		err = answer->cut ? 0 : descriptor_write(out, entry->d_name, size);
	}
	return err;
}

static void names_answer(int folder)
{
	struct regular_answer answer = {.result = REGULAR_DONE};
	_cleanup_close_ int out = (int)syscall(SYS_memfd_create, "tracer-names", MFD_CLOEXEC);
	int err = out < 0 ? -errno : names_write(folder, out, &answer);

	if (err)
		failure_send(err);
	else
		answer_send(&answer, &out, 1);
}

static void local_answer(int fd)
{
	struct regular_answer answer = {.result = REGULAR_DONE};

	if (fstat(fd, &answer.stat))
		answer.result = -errno;
	else
		answer.is_local = is_local(fd, &answer.stat);
	answer_send(&answer, NULL, 0);
}

static void path_answer(const struct regular_question *question, int directory)
{
	int is_folder = question->kind == REGULAR_FOLDER;
	_cleanup_close_ int fd =
		path_open(directory, question->path, O_PATH | (is_folder ? O_DIRECTORY : 0),
			  question->resolve);
	const struct regular_answer answer = {.result = REGULAR_DONE};

	if (fd < 0)
		failure_send(fd);
	else if (is_folder)
		answer_send(&answer, &fd, 1);
	else
		file_answer(fd);
}

static int question_read(struct regular_question *question, int *fd)
{
	char control[CMSG_SPACE(sizeof(*fd))] __attribute__((aligned(8)));
	struct iovec iov = {.iov_base = question, .iov_len = sizeof(*question)};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t got;

	do
		got = recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != sizeof(*question))
		return 0;
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*fd = -1;
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	return 1;
}

/* It holds nothing of its owner: a reader of the owner's output must not wait for it. */
static void child_begin(int socket, pid_t parent)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "tracer-files");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	socket = fcntl(socket, F_DUPFD_CLOEXEC, SOCKET + 1);
	syscall(SYS_close_range, 0u, (unsigned int)socket - 1, 0u);
	syscall(SYS_close_range, (unsigned int)socket + 1, ~0u, 0u);
	for (int fd = open("/dev/null", O_RDWR); fd >= 0 && fd < SOCKET - 1;)
		fd = dup(fd);
	if (dup2(socket, SOCKET) < 0)
		_exit(1);
	close(socket);
}

void regular_child_run(int socket, pid_t parent)
{
	static struct regular_question question;
	int fd;

	child_begin(socket, parent);
	while (question_read(&question, &fd)) {
		question.path[sizeof(question.path) - 1] = '\0';
		if (question.has_descriptor && fd < 0)
			failure_send(-EMFILE);
		else if (question.kind == REGULAR_REOPEN)
			file_answer(fd);
		else if (question.kind == REGULAR_NAMES)
			names_answer(fd);
		else if (question.kind == REGULAR_LOCAL)
			local_answer(fd);
		else
			path_answer(&question, question.has_descriptor ? fd : AT_FDCWD);
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}
