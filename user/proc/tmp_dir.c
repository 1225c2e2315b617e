/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"
#include "util/regular.h"

int tmp_dir_open(pid_t pid)
{
	char path[32];
	int root, fd;

	if (!pid) {
		/* Our own /tmp may be a symlink: the administrator set it up. */
		fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? error_errno() : fd;
	}
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return errno == ENOENT ? -ESRCH : error_errno();
	fd = regular_folder(root, "tmp",
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd == -ELOOP)
		fd = error_set(-ELOOP, "its /tmp is a symbolic link, which is not followed");
	close(root);
	return fd;
}

static int type_refused(int err, const char *name)
{
	if (err == -ELOOP)
		return error_set(err, "'%s' is a symbolic link, which is not followed", name);
	if (err == -EISDIR)
		return error_set(err, "'%s' is a directory", name);
	if (err == -EINVAL)
		return error_set(err, "'%s' is not a regular file", name);
	return err;
}

/* Takes what was opened by that name, or its -errno. */
static int file_check(int fd, const char *name, uint32_t uid)
{
	struct stat st;

	if (fd < 0)
		return type_refused(fd, name);
	int err = regular_stat(fd, &st);
	if (!err && st.st_uid && st.st_uid != uid && st.st_uid != geteuid())
		err = error_set(-EPERM,
				"'%s' belongs to user %u, neither to root nor to the process's %u",
				name, st.st_uid, uid);
	if (!err && st.st_nlink > 1)
		err = error_set(
			-EPERM,
			"'%s' has more than one hard link, so it may be another user's file", name);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int tmp_dir_file(int directory, const char *name, uint32_t uid, int flags)
{
	int fd = regular_open(directory, name,
			      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
				      RESOLVE_NO_XDEV);
	char link[40];

	/* A process with a user namespace of its own can mount any file that it sees there. */
	if (fd == -EXDEV)
		return error_set(-EXDEV, "something is mounted on '%s'", name);
	int found = file_check(fd, name, uid);
	if (found < 0 || flags == O_RDONLY)
		return found;
	if (regular_is_copy(found))
		fd = error_set(-EOPNOTSUPP, "'%s' lies on a file system that others serve", name);
	else {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
		fd = open(link, flags | O_CLOEXEC | O_NONBLOCK);
		fd = fd < 0 ? error_errno() : fd;
	}
	close(found);
	return fd;
}

int tmp_dir_descriptor(pid_t pid, const char *number, uint32_t uid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, number);
	int path_fd = open(path, O_PATH | O_CLOEXEC);
	if (path_fd < 0)
		return error_errno();
	int fd = regular_reopen(path_fd);
	close(path_fd);
	return file_check(fd, path, uid);
}
