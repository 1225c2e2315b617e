// SPDX-License-Identifier: Apache-2.0
/*
 * A FUSE file system of two files, with the bytes of another file: "good", whose reads are
 * answered, and "hung", whose reads and writes never are. Whoever waits for "hung" cannot be
 * killed, until this program ends. Without libfuse.
 *
 * usage: hung_files FOLDER FILE       prints "ready" once FOLDER is mounted; ends with its stdin
 *        hung_files FOLDER FILE WAY COMMAND...    COMMAND, and the file system until it ends
 *
 * WAY is how those mount who are not root: "namespace", in a user namespace of COMMAND's own;
 * "user", as fusermount3 does it for user 65534, whose COMMAND it is. Root may not look at it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = 1, GOOD, HUNG };

static int device, content;
static uint64_t size;

static void answer(uint64_t to, int err, const void *data, size_t bytes)
{
	struct fuse_out_header header = {sizeof(header) + (err ? 0 : bytes), err, to};
	struct iovec parts[] = {{&header, sizeof(header)}, {(void *)(uintptr_t)data, bytes}};

	if (writev(device, parts, !err && bytes ? 2 : 1) < 0 && errno != ENOENT)
		perror("answer");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr = {.ino = node, .nlink = 1, .blocks = 8, .blksize = 4096};

	attr.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0777;
	attr.size = node == ROOT ? 4096 : size;
	return attr;
}

static void lookup(const struct fuse_in_header *in, const char *name)
{
	uint64_t node = !strcmp(name, "good") ? GOOD : !strcmp(name, "hung") ? HUNG : 0;
	struct fuse_entry_out out = {.nodeid = node, .entry_valid = 1000, .attr_valid = 1000};

	out.attr = attributes(node);
	answer(in->unique, node ? 0 : -ENOENT, &out, sizeof(out));
}

static void give(const struct fuse_in_header *in, const struct fuse_read_in *read_in)
{
	char *bytes = malloc(read_in->size);
	ssize_t got = bytes ? pread(content, bytes, read_in->size, (off_t)read_in->offset) : -1;

	answer(in->unique, got < 0 ? -EIO : 0, bytes, got < 0 ? 0 : (size_t)got);
	free(bytes);
}

static void serve(const struct fuse_in_header *in, const void *argument)
{
	const struct fuse_init_out init = {
		.major = 7, .minor = 31, .max_readahead = 1 << 17, .max_write = 4096};
	const struct fuse_open_out opened = {.open_flags = FOPEN_KEEP_CACHE};
	struct fuse_attr_out attr = {.attr_valid = 1000, .attr = attributes(in->nodeid)};

	switch (in->opcode) {
	case FUSE_INIT:
		answer(in->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		lookup(in, argument);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		answer(in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(in->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		if (in->nodeid == GOOD)
			give(in, argument);
		break;
	case FUSE_WRITE:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		answer(in->unique, 0, NULL, 0);
		break;
	default:
		answer(in->unique, -ENOSYS, NULL, 0);
	}
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t wrote = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return wrote < 0 ? -1 : 0;
}

static int namespace_enter(void)
{
	char map[64];

	snprintf(map, sizeof(map), "%u %u 1", getuid(), getgid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || write_text("/proc/self/setgroups", "deny"))
		return -1;
	return write_text("/proc/self/uid_map", map) ?: write_text("/proc/self/gid_map", map);
}

/* Answers until the program's stdin, if it is its own, or the file system ends. */
static void answer_all(int own)
{
	static char request[1 << 20] __attribute__((aligned(8)));
	struct pollfd fds[2] = {{.fd = device, .events = POLLIN},
				{.fd = own ? 0 : -1, .events = POLLIN}};

	for (;;) {
		ssize_t got;

		poll(fds, 2, -1);
		if (fds[1].revents)
			return;
		got = read(device, request, sizeof(request));
		if (got >= (ssize_t)sizeof(struct fuse_in_header))
			serve((void *)request, request + sizeof(struct fuse_in_header));
		else if (got < 0 && errno == ENODEV)
			return;
	}
}

/* The command keeps the PID; its child serves, and ends with it. */
static int command_run(char **command, unsigned int user)
{
	pid_t pid = fork();

	if (!pid) {
		int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int fd = 0; fd < 3; fd++)
			dup2(nothing, fd);
		answer_all(0);
		_exit(0);
	}
	close(device);
	if (pid > 0 && (!user || (!setgid(user) && !setuid(user))))
		execvp(command[0], command);
	perror(command[0]);
	return 2;
}

int main(int argc, char **argv)
{
	const char *way = argc > 4 ? argv[3] : "";
	unsigned int user = strcmp(way, "user") ? 0 : 65534;
	struct stat st;
	char options[128];

	content = argc == 3 || argc > 4 ? open(argv[2], O_RDONLY | O_CLOEXEC) : -1;
	if (content < 0 || fstat(content, &st) ||
	    (!strcmp(way, "namespace") && namespace_enter())) {
		perror("hung_files");
		return 2;
	}
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	size = (uint64_t)st.st_size;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u%s", device,
		 user, user, way[0] ? "" : ",allow_other");
	if (device < 0 || mount("hung", argv[1], "fuse.hung", MS_NOSUID | MS_NODEV, options)) {
		perror("mount");
		return 2;
	}
	if (way[0])
		return command_run(argv + 4, user);
	puts("ready");
	fflush(stdout);
	answer_all(1);
	return 0;
}
