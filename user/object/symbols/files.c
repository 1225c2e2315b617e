/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/descriptor.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/regular.h"

#define BUCKETS 1024u

struct files {
	struct file *buckets[BUCKETS];
	uint32_t count, idle, max, last_number;
	uint64_t clock;
};

int files_new(struct files **out)
{
	struct files *files = calloc(1, sizeof(*files));
	struct rlimit limit;

	if (!files)
		return -ENOMEM;
	/* A file may have a debug file, and that one a common part. */
	files->max = FILES_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur / 4 < FILES_MAX)
		files->max = (uint32_t)(limit.rlim_cur / 4);
	*out = files;
	return 0;
}

static void file_free(struct file *file)
{
	elf_file_close(file->elf);
	descriptor_close(file->fd);
	free(file->path);
	free(file);
}

void files_free(struct files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while (files->buckets[i]) {
			struct file *file = files->buckets[i];

			files->buckets[i] = file->next;
			file_free(file);
		}
	free(files);
}

static struct file **bucket_of(struct files *files, const struct process_map *map)
{
	uint64_t device = (uint64_t)map->device_major << 32 | map->device_minor;

	return &files->buckets[hash_u64(map->inode ^ hash_u64(device)) % BUCKETS];
}

static bool is_same(const struct file *file, const struct process_map *map)
{
	struct stat st;

	return file->inode == map->inode && file->device_major == map->device_major &&
	       file->device_minor == map->device_minor &&
	       !regular_stat(file->elf ? elf_file_fd(file->elf) : file->fd, &st) &&
	       st.st_size == file->bytes && st.st_mtim.tv_sec == file->changed.tv_sec &&
	       st.st_mtim.tv_nsec == file->changed.tv_nsec;
}

/* Removes the least recently used file that has no users. */
static int oldest_remove(struct files *files)
{
	struct file **oldest = NULL, *file;

	for (size_t i = 0; i < BUCKETS; i++)
		for (struct file **link = &files->buckets[i]; *link; link = &(*link)->next)
			if (!(*link)->users && (!oldest || (*link)->used < (*oldest)->used))
				oldest = link;
	if (!oldest)
		return error_set(-EMFILE, "more than %u files are mapped", files->max);
	file = *oldest;
	*oldest = file->next;
	files->count--;
	files->idle--;
	file_free(file);
	return 0;
}

static int file_open(struct file **out, pid_t pid, const struct process_map *map)
{
	struct file *file = calloc(1, sizeof(*file));
	struct stat st;

	if (!file)
		return -ENOMEM;
	file->elf_err = 1;
	file->path = strdup(map->path);
	file->fd = file->path ? process_map_open(pid, map) : -ENOMEM;
	int err = file->fd < 0 ? file->fd : regular_stat(file->fd, &st);
	if (err) {
		file_free(file);
		return err;
	}
	file->device_major = map->device_major;
	file->device_minor = map->device_minor;
	file->inode = map->inode;
	file->bytes = st.st_size;
	file->changed = st.st_mtim;
	*out = file;
	return 0;
}

int files_get(struct files *files, struct file **out, pid_t pid, const struct process_map *map,
	      int root)
{
	struct file **bucket = bucket_of(files, map), *file;

	for (file = *bucket; file; file = file->next)
		if (is_same(file, map))
			break;
	if (!file) {
		int err = (files->count < files->max ? 0 : oldest_remove(files))
				  ?: file_open(&file, pid, map);
		if (err)
			return err;
		file->number = ++files->last_number;
		file->next = *bucket;
		*bucket = file;
		files->count++;
		files->idle++;
		/* The other root disappears with its last process. */
		if (root >= 0 && !file_read(file))
			elf_file_find_debug(file->elf, root);
	}
	files->idle -= !file->users++;
	file->used = ++files->clock;
	*out = file;
	return 0;
}

struct file *files_find(const struct files *files, uint32_t number)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct file *file = files->buckets[i]; file; file = file->next)
			if (file->number == number)
				return file;
	return NULL;
}

void files_renew(struct files *files, struct file *file)
{
	file->number = ++files->last_number;
	file->dwarf = FILE_DWARF_UNKNOWN;
	file->tables = FILE_TABLES_UNKNOWN;
	file->tables_generation = 0;
}

void files_share(struct file *file)
{
	file->users++;
}

void files_put(struct files *files, struct file *file)
{
	file->used = ++files->clock;
	if (--file->users)
		return;
	if (++files->idle > FILES_IDLE)
		oldest_remove(files);
}

int file_read(struct file *file)
{
	if (file->elf_err > 0) {
		file->elf_err = elf_file_open(&file->elf, file->fd, file->path, NULL);
		if (!file->elf_err)
			file->fd = -1;
	}
	return file->elf_err;
}

uint32_t files_count(const struct files *files)
{
	return files->count;
}
