/* SPDX-License-Identifier: Apache-2.0 */
#include "util/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "util/cleanup.h"
#include "util/error.h"

int folder_check(const char *path)
{
	struct stat st;

	if (lstat(path, &st)) {
		const char *slash = strrchr(path, '/');
		char above[PATH_MAX];

		if (errno != ENOENT || !slash)
			return error_errno();
		snprintf(above, sizeof(above), "%.*s", slash == path ? 1 : (int)(slash - path),
			 path);
		if (stat(above, &st))
			return error_errno();
		return S_ISDIR(st.st_mode) ? 0 : error_set(-ENOTDIR, "%s is no directory", above);
	}
	if (!S_ISDIR(st.st_mode))
		return error_set(-ENOTDIR, "it is no directory");
	return st.st_uid || st.st_mode & (S_IWGRP | S_IWOTH)
		       ? error_set(-EPERM, "other users can write to it")
		       : 0;
}

int folder_open(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return error_errno();
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return error_set(-ENOTDIR, "it is no directory");
	if (fd < 0 || fstat(fd, &st))
		return error_errno();
	if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
		return error_set(-EPERM, "other users can write to it");
	int opened = fd;
	fd = -1;
	return opened;
}

int folder_take(const char *path)
{
	int fd = folder_open(path);

	if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	close(fd);
	return error_set(-EBUSY, "another agent uses it");
}
