/* SPDX-License-Identifier: Apache-2.0 */
#include "process/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int pagemap_open(pid_t pid)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : -errno;
}

ssize_t pagemap_read(int fd, uint64_t address, uint64_t *entries, size_t pages)
{
	ssize_t got = pread(fd, entries, pages * sizeof(*entries),
			    (off_t)(address / PAGEMAP_PAGE * sizeof(*entries)));

	return got < 0 ? -errno : got / (ssize_t)sizeof(*entries);
}
