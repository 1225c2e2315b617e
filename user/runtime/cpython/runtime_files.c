/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/runtime_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/regular.h"

#define SWEPT 16u /* slots that are looked at when a file is added */

struct known_file {
	uint64_t inode; /* as maps show it */
	uint32_t device_major, device_minor;
	int fd;                /* -1: the slot is free */
	bool used;             /* since the last runtime_files_sweep() */
	struct elf_file *file; /* NULL: it holds no runtime */
	off_t bytes;
	struct timespec changed;
};

struct runtime_files {
	struct known_file items[RUNTIME_FILES_MAX];
	size_t next; /* next slot to use */
	size_t swept;
};

int runtime_files_new(struct runtime_files **out)
{
	struct runtime_files *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < RUNTIME_FILES_MAX; i++)
		files->items[i].fd = -1;
	*out = files;
	return 0;
}

static void known_forget(struct known_file *known)
{
	if (known->fd < 0)
		return;
	close(known->fd);
	elf_file_close(known->file);
	*known = (struct known_file){.fd = -1};
}

void runtime_files_free(struct runtime_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < RUNTIME_FILES_MAX; i++)
		known_forget(&files->items[i]);
	free(files);
}

int runtime_files_find(struct runtime_files *files, const struct process_map *map,
		       struct elf_file **file)
{
	for (size_t i = 0; files && i < RUNTIME_FILES_MAX; i++) {
		struct known_file *known = &files->items[i];
		struct stat st;

		if (known->fd < 0 || known->inode != map->inode ||
		    known->device_major != map->device_major ||
		    known->device_minor != map->device_minor)
			continue;
		if (regular_stat(known->fd, &st) || st.st_size != known->bytes ||
		    st.st_ctim.tv_sec != known->changed.tv_sec ||
		    st.st_ctim.tv_nsec != known->changed.tv_nsec) {
			known_forget(known);
			return -ENOENT;
		}
		known->used = true;
		if (!known->file)
			return 0;
		*file = elf_file_share(known->file);
		return 1;
	}
	return -ENOENT;
}

/*
 * Forgets files that have no name any more, among the next few slots: programs that come and go
 * with files of their own do not fill the cache.
 */
static void unlinked_forget(struct runtime_files *files)
{
	for (size_t i = 0; i < SWEPT; i++) {
		struct known_file *known = &files->items[files->swept++ % RUNTIME_FILES_MAX];
		struct stat st;

		if (known->fd >= 0 && !regular_stat(known->fd, &st) && !st.st_nlink)
			known_forget(known);
	}
}

void runtime_files_keep(struct runtime_files *files, const struct process_map *map,
			struct elf_file *file, int has_runtime)
{
	struct known_file *known = files ? &files->items[files->next] : NULL;
	struct stat st;

	if (!known || regular_stat(elf_file_fd(file), &st))
		return;
	int fd = fcntl(elf_file_fd(file), F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return;
	unlinked_forget(files);
	known_forget(known);
	*known = (struct known_file){.inode = map->inode,
				     .device_major = map->device_major,
				     .device_minor = map->device_minor,
				     .fd = fd,
				     .used = true,
				     .file = has_runtime ? elf_file_share(file) : NULL,
				     .bytes = st.st_size,
				     .changed = st.st_ctim};
	files->next = (files->next + 1) % RUNTIME_FILES_MAX;
}

void runtime_files_sweep(struct runtime_files *files)
{
	for (size_t i = 0; i < RUNTIME_FILES_MAX; i++) {
		if (!files->items[i].used)
			known_forget(&files->items[i]);
		files->items[i].used = false;
	}
}
