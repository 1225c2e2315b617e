/* SPDX-License-Identifier: Apache-2.0 */
#include "process/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

int tmp_dir_open(pid_t pid)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS |
					  RESOLVE_NO_MAGICLINKS};
	char path[32];
	int root, fd;

	if (!pid) {
		/* Our own /tmp may be a symlink: the administrator set it up. */
		fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	fd = syscall(SYS_openat2, root, "tmp", &how, sizeof(how));
	if (fd < 0)
		fd = errno == ELOOP
			     ? error_set(-ELOOP,
					 "its /tmp is a symbolic link, which is not followed")
			     : -errno;
	close(root);
	return fd;
}

static int file_check(int fd, const char *name, uint32_t uid)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISLNK(st.st_mode))
		return error_set(-ELOOP, "'%s' is a symbolic link, which is not followed", name);
	if (S_ISDIR(st.st_mode))
		return error_set(-EISDIR, "'%s' is a directory", name);
	if (!S_ISREG(st.st_mode))
		return error_set(-EINVAL, "'%s' is not a regular file", name);
	if (st.st_uid && st.st_uid != uid && st.st_uid != geteuid())
		return error_set(-EPERM,
				 "'%s' belongs to user %u, neither to root nor to the process's %u",
				 name, st.st_uid, uid);
	if (st.st_nlink > 1)
		return error_set(
			-EPERM,
			"'%s' has more than one hard link, so it may be another user's file", name);
	return 0;
}

/*
 * Checks path_fd, which identifies the file without opening it, reopens it, and closes path_fd.
 */
static int file_reopen(int path_fd, const char *name, uint32_t uid, int flags)
{
	int err = file_check(path_fd, name, uid), fd;
	char link[40];

	if (err) {
		close(path_fd);
		return err;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, flags | O_CLOEXEC | O_NONBLOCK);
	err = -errno;
	close(path_fd);
	return fd < 0 ? err : fd;
}

int tmp_dir_file(int directory, const char *name, uint32_t uid, int flags)
{
	/* A process with a user namespace of its own can mount any file that it sees there. */
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
			       .resolve = RESOLVE_NO_XDEV};
	int path_fd = syscall(SYS_openat2, directory, name, &how, sizeof(how));

	if (path_fd < 0)
		return errno == EXDEV ? error_set(-EXDEV, "something is mounted on '%s'", name)
				      : -errno;
	return file_reopen(path_fd, name, uid, flags);
}

int tmp_dir_descriptor(pid_t pid, const char *number, uint32_t uid)
{
	char path[64];
	int path_fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, number);
	path_fd = open(path, O_PATH | O_CLOEXEC);
	return path_fd < 0 ? -errno : file_reopen(path_fd, path, uid, O_RDONLY);
}
