/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "util/error.h"
#include "util/page.h"
#include "util/sorted.h"

int pagemap_open(pid_t pid)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : error_errno();
}

ssize_t pagemap_read(int fd, uint64_t address, uint64_t *entries, size_t pages)
{
	uint64_t parts = page_bytes() / PAGEMAP_PAGE, first = address / PAGEMAP_PAGE;
	uint64_t before = first % parts, wanted = pages ? (before + pages - 1) / parts + 1 : 0;
	ssize_t got = pread(fd, entries, wanted * sizeof(*entries),
			    (off_t)(first / parts * sizeof(*entries)));

	if (got < 0)
		return error_errno();
	got = got / (ssize_t)sizeof(*entries) * (ssize_t)parts - (ssize_t)before;
	if (got < 0)
		return 0;
	if ((size_t)got > pages)
		got = (ssize_t)pages;
	/* From the end on: no word is overwritten before it is copied. */
	for (size_t i = (size_t)got; parts > 1 && i-- > 0;)
		entries[i] = entries[(before + i) / parts];
	return got;
}

int pagemap_each(int fd, uint64_t start, uint64_t end, uint64_t *buffer, pagemap_fn each,
		 void *context)
{
	int err = 0;

	for (uint64_t at = start; at < end && !err; at += (uint64_t)PAGEMAP_PIECE * PAGEMAP_PAGE) {
		size_t pages = (size_t)lesser((end - at) / PAGEMAP_PAGE, PAGEMAP_PIECE);
		ssize_t got = pagemap_read(fd, at, buffer, pages);

		err = got < 0                 ? (int)got
		      : got != (ssize_t)pages ? -ESRCH
					      : each(context, at, buffer, pages);
	}
	return err;
}
