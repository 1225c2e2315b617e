/* SPDX-License-Identifier: Apache-2.0 */
#include "util/regular.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/message.h"

/* Messages between us and the process (SOCK_SEQPACKET), which keeps no copies: we do. */
enum regular_kind {
	REGULAR_FILE,   /* opened by a path below the descriptor */
	REGULAR_REOPEN, /* the descriptor, which was opened with O_PATH */
	REGULAR_FOLDER, /* a folder below the descriptor */
	REGULAR_NAMES,  /* the names in the descriptor's folder */
	REGULAR_LOCAL,  /* is the descriptor of a local file system? */
};

/* Comes with a descriptor, unless has_descriptor is 0: then the path begins where we are. */
struct regular_question {
	uint32_t kind, has_descriptor;
	uint64_t resolve;
	char path[PATH_MAX];
};

enum regular_result {
	REGULAR_DONE,   /* comes with a descriptor, but for REGULAR_LOCAL and _WORD */
	REGULAR_COPIED, /* with two: the copy, and the file itself (O_PATH) */
	REGULAR_GOES_ON /* no answer: a part was read */
};

struct regular_answer {
	int32_t result;   /* enum regular_result, -errno */
	int32_t cut;      /* REGULAR_NAMES: 1: there are more */
	int32_t is_local; /* REGULAR_LOCAL */
	struct stat stat; /* of the file */
};

/* Bytes of names, with their NULs. */
#define REGULAR_NAMES_MAX (16u << 20)

/* The process that waits for file systems; regular.h explains its purpose. */

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

	return fd < 0 ? error_errno() : fd;
}

/* Is a file system with this device mounted where we are, as this type? */
static bool is_mounted_here(dev_t device, const char *type)
{
	_cleanup_(fclosep) FILE *mounts = fopen("/proc/self/mountinfo", "re");
	size_t capacity = 0;
	_cleanup_free_ char *line = NULL;
	int found = 0;

	while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
		unsigned int major_number, minor_number;
		const char *after = strstr(line, " - ");

		found = after && !strncmp(after + 3, type, strlen(type)) &&
			after[3 + strlen(type)] == ' ' &&
			sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) == 2 &&
			makedev(major_number, minor_number) == device;
	}
	return found;
}

/* Does no use of the file ever wait for another process or machine? */
static bool is_local(int path_fd, const struct stat *file)
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
	const struct iovec part = {(void *)(uintptr_t)answer, sizeof(*answer)};

	if (message_send(SOCKET, &part, 1, fds, count) < 0)
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
			err = errno == EINTR ? 0 : error_errno();
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
	int err = copy < 0 ? error_errno() : content_copy(file, copy);

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
	int file, err = fstat(path_fd, &answer.stat)    ? error_errno()
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
		failure_send(error_errno());
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
		return fd < 0 ? fd : error_errno();
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
	int err = out < 0 ? error_errno() : names_write(folder, out, &answer);

	if (err)
		failure_send(err);
	else
		answer_send(&answer, &out, 1);
}

static void local_answer(int fd)
{
	struct regular_answer answer = {.result = REGULAR_DONE};

	if (fstat(fd, &answer.stat))
		answer.result = error_errno();
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

/* The process's main loop. Does not return. socket: its end. */
static void regular_child_run(void *context, int socket, pid_t parent)
{
	static struct regular_question question;
	int fd;

	(void)context;
	child_begin(socket, parent);
	while (message_receive(SOCKET, &question, sizeof(question), &fd, 1, NULL) ==
	       sizeof(question)) {
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
		descriptor_close(fd);
	}
	_exit(0);
}

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
	if (files.pid && files.owner == getpid())
		return 0;
	if (!left_place())
		return error_set(-ETIMEDOUT, "%u file systems do not answer: no more are asked",
				 HUNG_MAX);
	if (files.pid)
		close(files.socket);
	files.pid = 0;
	int end = message_child(&files.pid, SOCK_SEQPACKET, regular_child_run, NULL);
	if (end < 0) {
		files.pid = 0;
		return end == -ENOMEM ? -EAGAIN : end;
	}
	files.owner = getpid();
	files.socket = end;
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
	const struct iovec part = {(void *)(uintptr_t)question, sizeof(*question)};

	return message_send(files.socket, &part, 1, &fd, question->has_descriptor) < 0 ? -EIO : 0;
}

/* fds: -1 for none. 0; -EIO; -EMFILE: no room for the descriptors, which are lost. */
static int answer_read(struct regular_answer *answer, int fds[2])
{
	int cut;

	if (message_receive(files.socket, answer, sizeof(*answer), fds, 2, &cut) != sizeof(*answer))
		return -EIO;
	if (!cut)
		return 0;
	for (size_t i = 0; i < 2; i++)
		descriptor_close(fds[i]);
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

static bool is_same_file(const struct stat *a, const struct stat *b)
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

void regular_forget(void)
{
	if (files.pid)
		close(files.socket);
	for (size_t i = 0; i < files.count; i++) {
		close(files.copies[i].copy_fd);
		close(files.copies[i].origin_fd);
	}
	free(files.copies);
	memset(&files, 0, sizeof(files));
}

/* Another descriptor of a copy, with an offset of its own. */
static int copy_open(const struct copy *copy)
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", copy->copy_fd);
	int fd = open(link, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? error_errno() : fd;
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
		descriptor_close(copy_fd);
		descriptor_close(origin_fd);
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
		       ? error_errno()
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
	char link[40];
	int fd, err = cached_stat(path_fd, &st);

	if (err)
		return err;
	if (!S_ISREG(st.stx_mode))
		return -EINVAL;
	/* Anonymous device numbers, without a disk, are those of all others. */
	if (!st.stx_dev_major) {
		struct copy *known = copy_known(&st);
		return known ? copy_open(known) : file_ask(&question, path_fd);
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? error_errno() : fd;
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

	err = err ?: question_ask(&question, directory, &answer, fds);
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
	_cleanup_free_ char *name = NULL;
	int err = 0;

	while (!err && getdelim(&name, &capacity, '\0', names) > 0)
		err = count++ == max ? -E2BIG : each(context, name);
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
		descriptor_close(fds[0]);
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
		return fstat(fd, out) ? error_errno() : 0;
	*out = copy->file;
	return 0;
}

bool regular_is_copy(int fd)
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
		descriptor_close(fds[i]);
	return err < 0 ? err : origin;
}
