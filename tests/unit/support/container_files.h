/* SPDX-License-Identifier: Apache-2.0 */
/* State files of container runtimes, written into a temporary folder. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_A "fe0b56ec3c688e9354c927d1d563387f0db8ba9eb5349d318477fde6144231aa"
#define ID_B "1f02158942600f1e560e7308875d84dc3dcb3fd5af0bae7dcf8fab68295cf74a"
#define ID_C "36a73ff024ffd17873626f82bc4908409f739ed04e9304ba4e4d5e54648a5216"

/* --- a folder --------------------------------------------------------------------------------- */

struct folder {
	char path[64];
	int fd;
};

static inline int folder_make(void **state)
{
	struct folder *folder = calloc(1, sizeof(*folder));

	strcpy(folder->path, "/tmp/test_container.XXXXXX");
	if (!mkdtemp(folder->path))
		return -1;
	folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY);
	*state = folder;
	return folder->fd < 0 ? -1 : 0;
}

static inline int folder_remove(void **state)
{
	struct folder *folder = *state;
	char command[128];

	close(folder->fd);
	snprintf(command, sizeof(command), "rm -rf %s", folder->path);
	free(folder);
	return system(command);
}

/* Writes a file, and creates the folders in its path. */
static inline void put(const struct folder *folder, const char *path, const char *text)
{
	char part[512];
	int fd;

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdirat(folder->fd, part, 0700);
	}
	fd = openat(folder->fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}
