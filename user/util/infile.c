/* SPDX-License-Identifier: Apache-2.0 */
#include "util/infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

#define INFILE_BYTES (128u * 1024)

bool infile_begins(const char *path, const char *text)
{
	size_t bytes = strlen(text);
	char head[32];
	struct stat st;

	if (bytes > sizeof(head) || stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd >= 0 && pread(fd, head, bytes, 0) == (ssize_t)bytes && !memcmp(head, text, bytes);
}

int infile_open(struct infile *file, const char *path)
{
	error_clear();
	*file = (struct infile){.capacity = INFILE_BYTES, .left = UINT64_MAX};
	file->data = malloc(file->capacity);
	if (!file->data)
		return -ENOMEM;
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (file->fd >= 0)
		return 0;
	int err = error_errno();
	free(file->data);
	return err;
}

void infile_close(struct infile *file)
{
	close(file->fd);
	free(file->data);
}

static int capacity_make(struct infile *file, size_t bytes)
{
	memmove(file->data, file->data + file->at, file->end - file->at);
	file->offset += file->at;
	file->end -= file->at;
	file->at = 0;
	if (bytes <= file->capacity)
		return 0;
	unsigned char *data = realloc(file->data, bytes);
	if (!data)
		return -ENOMEM;
	file->data = data;
	file->capacity = bytes;
	return 0;
}

int infile_fill(struct infile *file, size_t bytes)
{
	if (file->end - file->at >= bytes || file->ended)
		return 0;
	int err = capacity_make(file, bytes);
	while (!err && file->end < bytes && !file->ended) {
		size_t room = file->capacity - file->end;
		ssize_t got = read(file->fd, file->data + file->end,
				   room < file->left ? room : file->left);

		if (got > 0) {
			file->end += (size_t)got;
			file->left -= (uint64_t)got;
		} else if (!got) {
			file->ended = 1;
		} else if (errno != EINTR) {
			err = error_errno();
		}
	}
	return err;
}
