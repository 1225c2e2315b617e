/* SPDX-License-Identifier: Apache-2.0 */
#include "base/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int regular_reopen(int path_fd)
{
	char link[40];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

int regular_open(int directory, const char *path, uint64_t resolve)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = resolve};
	int path_fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof(how)), fd;

	if (path_fd < 0)
		return -errno;
	fd = regular_reopen(path_fd);
	close(path_fd);
	return fd;
}
