/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle of evidence, as it is and with the sums of its headers made right: a member lies within
 * the file, and is read to its end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK 512u

/* So that other bytes of a header than its sum are tried. */
static void header_seal(uint8_t *header)
{
	char sum[8];
	unsigned int total = 0;

	memcpy(header + 257, "ustar", 6);
	header[156] = '0';
	header[99] = '\0';
	memset(header + 148, ' ', 8);
	for (size_t i = 0; i < BLOCK; i++)
		total += header[i];
	snprintf(sum, sizeof(sum), "%06o", total);
	memcpy(header + 148, sum, 7);
}

static void archive_use(int fd, size_t size)
{
	struct archive_member members[ARCHIVE_MEMBERS];
	int count = archive_list(fd, members);
	char path[32];

	if (count > (int)ARCHIVE_MEMBERS)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < count; i++) {
		struct infile file;

		if (members[i].offset > size || members[i].bytes > size - members[i].offset ||
		    !memchr(members[i].name, 0, ARCHIVE_NAME))
			abort();
		if (archive_infile(&file, path, members[i].name))
			abort();
		if (infile_fill(&file, size + 1) || file.end > size)
			abort();
		infile_close(&file);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	uint8_t *copy = malloc(size + 1);

	if (fd < 0 || !copy)
		abort();
	memcpy(copy, data, size);
	for (int sealed = 0; sealed < 2; sealed++) {
		for (size_t at = 0; sealed && at + BLOCK <= size; at += BLOCK)
			if (copy[at])
				header_seal(copy + at);
		if (pwrite(fd, copy, size, 0) != (ssize_t)size)
			abort();
		archive_use(fd, size);
	}
	free(copy);
	close(fd);
	return 0;
}
