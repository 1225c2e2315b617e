/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/jit_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/perfmap/jitdump.h"
#include "object/perfmap/perfmap_table.h"
#include "object/perfmap/text.h"
#include "proc/process.h"
#include "proc/tmp_dir.h"
#include "util/account.h"
#include "util/regular.h"

#define PIECE_BYTES 65536u
#define FILE_MAX    (1ll << 30) /* bytes of a map that are read in total */
#define LOOK_MAX    (8ll << 20) /* bytes that are read per look-up */
/* a map has at most this many times what the others leave */
#define MAP_SHARE 4u

struct jit_map {
	int fd;
	dev_t device;
	ino_t inode;
	uint32_t users;
	off_t offset; /* read so far */
	int is_dump, failed;
	union {
		struct perfmap_text text;
		struct jitdump dump;
	};
	struct account account;
	struct perfmap_table *table;
	struct jit_map *next;
};

static int map_open(pid_t pid)
{
	struct process_info info;
	char name[32];
	int directory, fd, err = process_info_read(pid, &info);

	if (err)
		return err;
	directory = tmp_dir_open(pid);
	if (directory < 0)
		return directory;
	snprintf(name, sizeof(name), "perf-%d.map", info.ns_pid);
	fd = tmp_dir_file(directory, name, info.uid, O_RDONLY);
	close(directory);
	return fd;
}

static void map_free(struct jit_map *map)
{
	perfmap_table_free(map->table);
	close(map->fd);
	free(map);
}

/* The map of an open file, which it takes. 0, -errno. */
static int file_get(struct jit_map **list, struct jit_map **out, int fd, int is_dump,
		    struct account *account)
{
	struct jit_map *map;
	struct stat st;
	int err = regular_stat(fd, &st);

	for (map = *list; !err && map; map = map->next)
		if (map->device == st.st_dev && map->inode == st.st_ino &&
		    map->is_dump == is_dump) {
			close(fd);
			map->users++;
			*out = map;
			return 0;
		}
	map = err ? NULL : calloc(1, sizeof(*map));
	if (map)
		map->account = (struct account){.parent = account, .share = MAP_SHARE};
	if (!map || perfmap_table_new_in(&map->table, &map->account)) {
		free(map);
		close(fd);
		return err ?: -ENOMEM;
	}
	map->fd = fd;
	map->is_dump = is_dump;
	map->device = st.st_dev;
	map->inode = st.st_ino;
	map->users = 1;
	map->next = *list;
	*list = *out = map;
	return 0;
}

int jit_map_get(struct jit_map **list, struct jit_map **out, pid_t pid, struct account *account)
{
	int fd = map_open(pid);

	return fd < 0 ? fd : file_get(list, out, fd, 0, account);
}

int jit_map_get_dump(struct jit_map **list, struct jit_map **out, int fd, struct account *account)
{
	return file_get(list, out, fd, 1, account);
}

void jit_map_share(struct jit_map *map)
{
	map->users++;
}

void jit_map_put(struct jit_map **list, struct jit_map *map)
{
	if (!map || --map->users)
		return;
	while (*list != map)
		list = &(*list)->next;
	*list = map->next;
	map_free(map);
}

/* An entry that does not fit into the table is not found later. */
static int entry_take(void *context, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes)
{
	const struct perfmap_entry entry = {0};

	perfmap_table_add(context, start, size, name, name_bytes, &entry);
	return 0;
}

/* As entry_take(). Code that has moved keeps its name. */
static int code_take(void *context, const struct jitdump_code *code)
{
	const struct perfmap_entry *old, entry = {0};
	char name[PERFMAP_NAME_MAX + 1];

	if (!code->moved_from)
		return entry_take(context, code->address, code->bytes, code->name,
				  code->name_bytes);
	old = perfmap_table_find(context, code->moved_from);
	if (!old)
		return 0;
	/* A copy, since adding may collect names. */
	snprintf(name, sizeof(name), "%s", perfmap_table_name(context, old));
	perfmap_table_cut(context, code->moved_from, code->moved_from + code->bytes);
	perfmap_table_add(context, code->address, code->bytes, name, strlen(name), &entry);
	return 0;
}

static void restart(struct jit_map *map)
{
	perfmap_table_clear(map->table);
	if (map->is_dump)
		memset(&map->dump, 0, sizeof(map->dump));
	else
		memset(&map->text, 0, sizeof(map->text));
	map->offset = 0;
	map->failed = 0;
}

static void read_on(struct jit_map *map)
{
	char piece[PIECE_BYTES];
	struct stat st;
	ssize_t bytes;

	if (fstat(map->fd, &st) || st.st_size == map->offset)
		return;
	if (st.st_size < map->offset) /* the file was truncated */
		restart(map);
	off_t end = map->offset + LOOK_MAX < FILE_MAX ? map->offset + LOOK_MAX : FILE_MAX;
	while (!map->failed && map->offset < end &&
	       (bytes = pread(map->fd, piece, sizeof(piece), map->offset)) > 0) {
		if (map->is_dump)
			map->failed = jitdump_read(&map->dump, piece, (size_t)bytes, code_take,
						   map->table) != 0;
		else
			perfmap_text_read(&map->text, piece, (size_t)bytes, entry_take, map->table);
		map->offset += bytes;
	}
}

const char *jit_map_find(struct jit_map *map, uint64_t address)
{
	read_on(map);
	const struct perfmap_entry *entry = perfmap_table_find(map->table, address);
	return entry ? perfmap_table_name(map->table, entry) : NULL;
}
