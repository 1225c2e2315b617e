/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/file_users.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "proc/process.h"
#include "util/array.h"

/* At an attach, for the maps of a process that keeps its lock taken. */
#define AWAIT_MS 3000

struct file_use {
	uint64_t inode, path; /* path: a hash */
	uint32_t device_major, device_minor;
	pid_t pid;
};

/* A process whose lock is taken: its maps are not known. Its program is, without the lock. */
struct unread {
	pid_t pid;
	uint64_t program; /* a hash of the path; 0: not known */
};

struct file_users {
	struct file_use *items;
	struct unread *unread;
	size_t count, capacity, unread_count, unread_capacity;
};

static uint64_t path_hash(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 0x100000001b3ull;
	return hash;
}

/* Hash of the path of its program, as its maps name it; 0: not known. */
static uint64_t program_hash(pid_t pid)
{
	char path[PATH_MAX];

	return process_program_path(pid, path) ? 0 : path_hash(path);
}

static int unread_add(struct file_users *users, pid_t pid)
{
	int err = ARRAY_GROW(users->unread, users->unread_capacity, users->unread_count);

	if (!err)
		users->unread[users->unread_count++] = (struct unread){pid, program_hash(pid)};
	return err;
}

static int use_add(struct file_users *users, const struct file_use *use)
{
	int err = ARRAY_GROW(users->items, users->capacity, users->count);

	if (!err)
		users->items[users->count++] = *use;
	return err;
}

/*
 * A process whose lock is taken. What is known of it stays valid; otherwise its maps are awaited,
 * once.
 */
static int locked_add(struct file_users *users, const struct file_users *known, pid_t pid,
		      struct process_maps *maps)
{
	size_t count = users->count;

	for (size_t i = 0; known && i < known->unread_count; i++)
		if (known->unread[i].pid == pid)
			return unread_add(users, pid);
	for (size_t i = 0; known && i < known->count; i++)
		if (known->items[i].pid == pid && use_add(users, &known->items[i]))
			return -ENOMEM;
	if (users->count != count || !process_maps_await(pid, AWAIT_MS, maps))
		return 0;
	return unread_add(users, pid);
}

/* Adds a process's executable maps. A file with several executable maps is added several times. */
static int process_add(struct file_users *users, const struct file_users *known, pid_t pid)
{
	struct process_maps maps = {0};
	int err = process_maps_read(pid, &maps);

	/* See proc/patience.h. */
	if (err == -ETIMEDOUT || err == -EINTR)
		err = locked_add(users, known, pid, &maps);
	for (size_t i = 0; i < maps.count && !err; i++) {
		const struct process_map *map = &maps.entries[i];
		const struct file_use use = {map->inode, path_hash(map->path), map->device_major,
					     map->device_minor, pid};

		if (map->executable && map->path[0] == '/')
			err = use_add(users, &use);
	}
	process_maps_free(&maps);
	return err;
}

int file_users_read(const struct file_users *known, struct file_users **out)
{
	struct file_users *users = calloc(1, sizeof(*users));
	pid_t *pids = NULL;
	size_t count = 0;
	int err = users ? process_list(&pids, &count) : -ENOMEM;

	for (size_t i = 0; i < count && !err; i++) {
		err = process_add(users, known, pids[i]);
		if (err != -ENOMEM)
			err = 0;
	}
	free(pids);
	if (err) {
		file_users_free(users);
		return err;
	}
	*out = users;
	return 0;
}

void file_users_free(struct file_users *users)
{
	if (!users)
		return;
	free(users->items);
	free(users->unread);
	free(users);
}

/* The file that pid has mapped under that path; NULL if none. */
static const struct file_use *use_find(const struct file_users *users, pid_t pid, const char *path)
{
	uint64_t hash = path_hash(path);

	for (size_t i = 0; i < users->count; i++)
		if (users->items[i].pid == pid && users->items[i].path == hash)
			return &users->items[i];
	return NULL;
}

/*
 * Those processes whose maps are not known and that may map the file: what pid runs is mapped by
 * those that run it, any other file is a library, which may be anyone's.
 */
static int unread_each(const struct file_users *users, pid_t pid, uint64_t path,
		       int (*each)(pid_t pid, void *context), void *context)
{
	uint64_t program = users->unread_count ? program_hash(pid) : 0;
	int result = 0;

	for (size_t i = 0; i < users->unread_count && !result; i++) {
		const struct unread *unread = &users->unread[i];

		if (unread->pid != pid &&
		    (program != path || !unread->program || unread->program == path))
			result = each(unread->pid, context);
	}
	return result;
}

int file_users_each(const struct file_users *users, pid_t pid, const char *path,
		    int (*each)(pid_t pid, void *context), void *context)
{
	const struct file_use *file = use_find(users, pid, path);
	int result = 0;

	for (size_t i = 0; file && i < users->count && !result; i++) {
		const struct file_use *use = &users->items[i];

		if (use->inode == file->inode && use->device_major == file->device_major &&
		    use->device_minor == file->device_minor && use->pid != pid)
			result = each(use->pid, context);
	}
	return file && !result ? unread_each(users, pid, file->path, each, context) : result;
}

struct ours {
	bool (*is)(pid_t pid, void *context);
	void *context;
};

static int is_foreign(pid_t pid, void *context)
{
	const struct ours *ours = context;

	return !ours->is(pid, ours->context);
}

int file_users_all(const struct file_users *users, pid_t pid, const char *path,
		   bool (*ours)(pid_t pid, void *context), void *context)
{
	struct ours question = {ours, context};

	return use_find(users, pid, path) &&
	       !file_users_each(users, pid, path, is_foreign, &question);
}
