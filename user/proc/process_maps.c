/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proc/lock_read.h"
#include "proc/patience.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/regular.h"

#define MAPS_MAX        65536u
#define STREAM_BYTES    (64u * 1024)
#define TEXT_MAX        (16u << 20) /* of maps that are awaited */
#define ESCAPED_NEWLINE "\\012"

/* "START-END rwxp OFFSET MAJOR:MINOR INODE      PATH"; numbers are in hex, except for the inode. */
static int parse_map(char *line, struct process_map *map)
{
	char permissions[5];
	int path = 0;
	size_t length = strlen(line);

	if (length && line[length - 1] == '\n')
		line[length - 1] = '\0';
	if (sscanf(line,
		   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %" SCNu64 "%n",
		   &map->start, &map->end, permissions, &map->offset, &map->device_major,
		   &map->device_minor, &map->inode, &path) != 7 ||
	    map->start >= map->end || strlen(permissions) != 4)
		return -EPROTO;
	map->readable = permissions[0] == 'r';
	map->writable = permissions[1] == 'w';
	map->executable = permissions[2] == 'x';
	map->shared = permissions[3] == 's';
	while (line[path] == ' ')
		path++;
	map->path = strdup(line + path);
	return map->path ? 0 : -ENOMEM;
}

static int append_map(struct process_maps *maps, size_t *capacity, char *line)
{
	if (maps->count == MAPS_MAX)
		return error_set(-E2BIG, "more than %u memory maps", MAPS_MAX);
	if (maps->count == *capacity) {
		size_t grown = *capacity ? *capacity * 2 : 128;
		struct process_map *entries = realloc(maps->entries, grown * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		maps->entries = entries;
		*capacity = grown;
	}
	maps->entries[maps->count] = (struct process_map){0};
	int err = parse_map(line, &maps->entries[maps->count]);
	if (!err)
		maps->count++;
	return err;
}

bool process_line_bytes(const char *line, const char *key, uint64_t *bytes)
{
	size_t length = strlen(key);

	if (strncmp(line, key, length) || line[length] != ':')
		return 0;
	*bytes = strtoull(line + length + 1, NULL, 10) * 1024;
	return 1;
}

/* A line of smaps that is not the first of its map. */
static void parse_detail(const char *line, struct process_map *map)
{
	const struct {
		const char *key;
		uint64_t *sum;
	} keys[] = {
		{"Rss", &map->rss},
		{"Shared_Clean", &map->rss_shared},
		{"Shared_Dirty", &map->rss_shared},
		{"AnonHugePages", &map->rss_huge},
		{"ShmemPmdMapped", &map->rss_huge},
		{"FilePmdMapped", &map->rss_huge},
	};
	uint64_t bytes;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (process_line_bytes(line, keys[i].key, &bytes))
			*keys[i].sum += bytes;
}

/* patience: NULL: reading the stream does not wait. Closes the stream. 0, -errno. */
static int maps_parse(FILE *stream, struct patience *patience, struct process_maps *out)
{
	struct process_maps maps = {0};
	size_t capacity = 0, line_size = 0;
	char *line = NULL;
	int err = 0;

	errno = 0;
	while (!err && getline(&line, &line_size, stream) > 0) {
		/* A map begins with its address, in lower-case hex. */
		if (maps.count && line[0] >= 'A' && line[0] <= 'Z')
			parse_detail(line, &maps.entries[maps.count - 1]);
		else
			err = append_map(&maps, &capacity, line);
		if (!err && patience)
			err = patience_renew(patience);
	}
	if (!err && ferror(stream))
		err = errno == EACCES ? -EPERM : errno ? error_errno() : -EIO;
	free(line);
	fclose(stream);
	if (err)
		process_maps_free(&maps);
	else
		*out = maps;
	return err;
}

static int maps_read(pid_t pid, const char *name, struct process_maps *out)
{
	struct patience patience;
	char path[48];
	int err = patience_begin(&patience, pid);

	if (err)
		return err;
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	FILE *stream = fopen(path, "re");
	if (!stream)
		return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : error_errno();
	setvbuf(stream, NULL, _IOFBF, STREAM_BYTES);
	err = maps_parse(stream, &patience, out);
	patience_end(&patience);
	return err;
}

int process_maps_read(pid_t pid, struct process_maps *out)
{
	return maps_read(pid, "maps", out);
}

int process_smaps_read(pid_t pid, struct process_maps *out)
{
	return maps_read(pid, "smaps", out);
}

int process_maps_await(pid_t pid, unsigned int wait_ms, struct process_maps *out)
{
	struct buffer text = {0};
	uint64_t slept_ns;
	int err = lock_read(pid, "maps", TEXT_MAX, 1, wait_ms, 0, &text, &slept_ns);

	if (err)
		return err;
	FILE *stream = text.size ? fmemopen(text.data, text.size, "r") : NULL;
	err = stream ? maps_parse(stream, NULL, out) : -ESRCH;
	buffer_free(&text);
	return err;
}

void process_maps_free(struct process_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		free(maps->entries[i].path);
	free(maps->entries);
	*maps = (struct process_maps){0};
}

static int not_regular(void)
{
	return error_set(-EINVAL, "the mapped object is not a regular file");
}

static int open_map_file(pid_t pid, const struct process_map *map)
{
	struct patience patience;
	char name[96];
	int path_fd, fd, err = patience_begin(&patience, pid);

	if (err)
		return err;
	snprintf(name, sizeof(name), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, map->start,
		 map->end);
	path_fd = open(name, O_PATH | O_CLOEXEC);
	err = error_errno();
	patience_end(&patience);
	if (path_fd < 0)
		return err;
	fd = regular_reopen(path_fd);
	close(path_fd);
	return fd == -EINVAL ? not_regular() : fd;
}

/*
 * Is this the mapped file? stat() is not reliable: overlayfs and btrfs report another device to
 * stat() than in maps. Map the file ourselves and compare our own maps entry with the target's.
 */
static bool is_mapped_file(int fd, const struct process_map *map)
{
	const size_t bytes = 1; /* rounded up to a page */
	struct process_maps own;
	struct stat st;
	int same = 0;

	/* Of a copy all that is known is what stat() said. */
	if (regular_is_copy(fd))
		return !regular_stat(fd, &st) && st.st_ino == map->inode &&
		       st.st_dev == makedev(map->device_major, map->device_minor);
	void *area = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (area == MAP_FAILED)
		return 0;
	if (!process_maps_read(getpid(), &own)) {
		for (size_t i = 0; i < own.count; i++) {
			const struct process_map *ours = &own.entries[i];

			if ((uintptr_t)area >= ours->start && (uintptr_t)area < ours->end)
				same = ours->inode == map->inode &&
				       ours->device_major == map->device_major &&
				       ours->device_minor == map->device_minor;
		}
		process_maps_free(&own);
	}
	munmap(area, bytes);
	return same;
}

/*
 * Opens the name in the target's own root. The kernel shows names without symbolic links, so a name
 * that contains a link now is not the one that was mapped. RESOLVE_IN_ROOT keeps ".." from leaving
 * the target's root.
 */
static int open_in_root(int root, const struct process_map *map, const char *path)
{
	int fd = regular_open(root, path,
			      RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	if (fd == -EINVAL)
		return not_regular();
	if (fd >= 0 && !is_mapped_file(fd, map)) {
		close(fd);
		return error_set(-ESTALE, "'%s' is no longer the file that is mapped", path);
	}
	return fd;
}

/*
 * The path with unescaped line ends; NULL if it has none. A file with literally that name was tried
 * before.
 */
static char *unescape(const char *path)
{
	const char *escape = strstr(path, ESCAPED_NEWLINE);
	char *plain = escape ? strdup(path) : NULL, *to = plain;

	while (plain && *path) {
		if (!strncmp(path, ESCAPED_NEWLINE, strlen(ESCAPED_NEWLINE))) {
			*to++ = '\n';
			path += strlen(ESCAPED_NEWLINE);
		} else
			*to++ = *path++;
	}
	if (plain)
		*to = '\0';
	return plain;
}

int process_map_open(pid_t pid, const struct process_map *map)
{
	char name[40];

	if (!map->inode)
		return error_set(-EINVAL, "no file behind this memory");
	int first = open_map_file(pid, map);
	if (first >= 0 || first == -ETIMEDOUT || map->path[0] != '/')
		return first;

	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	int root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 && errno == ENOENT)
		root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return errno == EACCES ? -EPERM : errno == ENOENT ? -ESRCH : error_errno();
	int fd = open_in_root(root, map, map->path);
	if (fd < 0) {
		_cleanup_free_ char *plain = unescape(map->path);
		if (plain)
			fd = open_in_root(root, map, plain);
	}
	close(root);
	/* If the name does not exist, report the error of the map_files attempt instead. */
	return fd == -ENOENT ? first : fd;
}

bool process_map_is_code(const struct process_map *map, const struct stat *file)
{
	return map->executable && map->inode == file->st_ino &&
	       map->device_major == major(file->st_dev) && map->device_minor == minor(file->st_dev);
}

bool process_map_is_libc(const struct process_map *map)
{
	const char *slash = strrchr(map->path, '/');

	return map->executable && map->inode && slash &&
	       (!strncmp(slash, "/libc.so", strlen("/libc.so")) ||
		!strncmp(slash, "/libc-2.", strlen("/libc-2.")) ||
		!strncmp(slash, "/ld-musl-", strlen("/ld-musl-")));
}

void process_code_range(pid_t pid, const struct stat *file, uint64_t *start, uint64_t *end)
{
	struct process_maps maps;
	int found = 0;

	if (process_maps_read(pid, &maps))
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!process_map_is_code(map, file))
			continue;
		if (!found++)
			*start = map->start;
		*end = map->end;
	}
	process_maps_free(&maps);
}

int process_root_identify(int directory, struct process_root *out)
{
	struct statx st;

	if (statx(directory, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, &st))
		return error_errno();
	*out = (struct process_root){.mount = st.stx_mnt_id,
				     .inode = st.stx_ino,
				     .device_major = st.stx_dev_major,
				     .device_minor = st.stx_dev_minor};
	return 0;
}

bool process_root_is(const struct process_root *a, const struct process_root *b)
{
	return a->mount == b->mount && a->inode == b->inode && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

int process_root_open(pid_t pid)
{
	struct process_root theirs = {}, ours = {};
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	int root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -1;
	_cleanup_close_ int own = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (own >= 0 && !process_root_identify(root, &theirs) &&
	    !process_root_identify(own, &ours) && !process_root_is(&theirs, &ours)) {
		return root;
	}
	close(root);
	return -1;
}
