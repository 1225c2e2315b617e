/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)

int resident_open(pid_t pid)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void resident_read(int fd, uint64_t address, uint32_t pages, uint8_t exists[RESIDENT_PAGES])
{
	uint64_t entries[RESIDENT_PAGES];
	size_t bytes = pages * sizeof(entries[0]);

	memset(exists, 1, pages);
	if (fd < 0 || lseek(fd, (off_t)(address / RESIDENT_PAGE * 8), SEEK_SET) < 0 ||
	    read(fd, entries, bytes) != (ssize_t)bytes)
		return;
	for (uint32_t i = 0; i < pages; i++)
		exists[i] = (entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)) != 0;
}
