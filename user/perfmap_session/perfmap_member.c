/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap_session/perfmap_member.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "process/tmp_dir.h"

#define DESCRIPTORS_MAX 65536 /* descriptors of a process that are inspected */

/* Reads what an exec may change. */
static int info_read(struct perfmap_member *member)
{
	struct process_info info;
	int err = process_info_read(member->pid, &info) ?: process_info_check(&info);

	if (err)
		return err;
	if (member->pidfd < 0)
		return error_set(-ESRCH, "it has ended");
	member->ns_pid = info.ns_pid;
	member->uid = info.uid;
	snprintf(member->name, sizeof(member->name), "%s", info.name);
	err = perfmap_places_open(&member->places, member->pid, member->ns_pid, member->uid);
	if (err)
		error_print(err, "no map is read or written there", "PID %d", member->pid);
	return 0;
}

int perfmap_member_open(struct perfmap_member *member)
{
	member->places =
		(struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}}, .target = -1};
	/* The pidfd first: it keeps naming this process if its pid is reused. A thread has none. */
	member->pidfd = syscall(SYS_pidfd_open, member->pid, 0);
	return info_read(member);
}

void perfmap_member_inherit(struct perfmap_member *member, const struct perfmap_member *parent)
{
	memcpy(member->name, parent->name, sizeof(member->name));
	member->ns_pid = member->pid;
	member->uid = parent->uid;
	if (parent->places.target == 1)
		perfmap_places_open_own(&member->places, member->pid, member->uid);
}

static void files_forget(struct perfmap_member *member, int inotify)
{
	for (size_t i = 0; i < member->follow_count; i++)
		perfmap_follow_free(member->follows[i], inotify);
	member->follow_count = 0;
	perfmap_places_close(&member->places);
}

int perfmap_member_renew(struct perfmap_member *member, int inotify)
{
	uint64_t version = member->places.version;
	int err;

	files_forget(member, inotify);
	member->python = member->probed = 0;
	err = info_read(member);
	/* The installed map of the old program must be replaced, even by an empty one. */
	if (version != UINT64_MAX)
		member->places.version = version;
	return err;
}

void perfmap_member_close(struct perfmap_member *member, int inotify)
{
	if (!member)
		return;
	files_forget(member, inotify);
	if (member->pidfd >= 0)
		close(member->pidfd);
	free(member);
}

static int is_followed(const struct perfmap_member *member, dev_t device, ino_t inode)
{
	for (size_t i = 0; i < member->follow_count; i++)
		if (member->follows[i]->device == device && member->follows[i]->inode == inode)
			return 1;
	return 0;
}

/* Takes ownership of fd. Reading begins at offset. */
static void file_refuse(struct perfmap_member *member, int err)
{
	if (!member->files_refused++)
		snprintf(member->file_reason, sizeof(member->file_reason), "%s", error_reason(err));
}

static void follow_add(struct perfmap_member *member, int fd, int is_jitdump, int inotify,
		       uint64_t offset)
{
	struct perfmap_follow *follow;
	int err;

	if (member->follow_count == PERFMAP_FOLLOWS_MAX) {
		member->follows_dropped++;
		close(fd);
		return;
	}
	err = perfmap_follow_new(&follow, fd, is_jitdump, inotify);
	if (err) {
		file_refuse(member, err);
		return;
	}
	follow->offset = offset;
	member->jitdumps += is_jitdump;
	member->follows[member->follow_count++] = follow;
}

void perfmap_member_find_map(struct perfmap_member *member, int inotify, int from_start)
{
	const struct perfmap_place *place =
		&member->places.at[member->places.target < 0 ? 0 : member->places.target];
	uint64_t offset = 0;
	struct stat st;
	int fd;

	if (place->directory < 0)
		return;
	fd = tmp_dir_file(place->directory, place->name, member->uid);
	if (fd < 0) {
		if (fd != -ENOENT)
			file_refuse(member, fd);
		return;
	}
	if (fstat(fd, &st) || is_followed(member, st.st_dev, st.st_ino)) {
		close(fd);
		return;
	}
	/* Of a file that we installed, only what others append is read. */
	if (st.st_ino == place->installed.st_ino && st.st_dev == place->installed.st_dev)
		offset = place->installed.st_size;
	else if (!from_start)
		offset = st.st_size;
	follow_add(member, fd, 0, inotify, offset);
}

/*
 * Is a descriptor's link that of the map file: "/any/path/perf-PID.map", with " (deleted)" if its
 * name was removed?
 */
static int is_map_file(const char *link, pid_t ns_pid)
{
	const char *name = strrchr(link, '/');
	char expected[32];
	size_t length = snprintf(expected, sizeof(expected), "/perf-%d.map", ns_pid);

	return name && !strncmp(name, expected, length) &&
	       (!name[length] || !strcmp(name + length, " (deleted)"));
}

void perfmap_member_find_open(struct perfmap_member *member, int inotify, int from_start)
{
	int left = DESCRIPTORS_MAX, fd;
	char path[32], link[4096];
	struct dirent *entry;
	DIR *directory;
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd", member->pid);
	directory = opendir(path);
	if (!directory)
		return;
	member->process->file = PERFMAP_FILE_CLOSED;
	while (left-- && (entry = readdir(directory))) {
		ssize_t length =
			readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1);

		if (length <= 0)
			continue;
		link[length] = '\0';
		if (!is_map_file(link, member->ns_pid))
			continue;
		member->process->file = PERFMAP_FILE_OPEN;
		fd = tmp_dir_descriptor(member->pid, entry->d_name, member->uid);
		if (fd >= 0 && !fstat(fd, &st) && !is_followed(member, st.st_dev, st.st_ino))
			follow_add(member, fd, 0, inotify, from_start ? 0 : st.st_size);
		else if (fd >= 0)
			close(fd);
	}
	closedir(directory);
}

static void jitdump_find(struct perfmap_member *member, const struct process_map *map, int inotify)
{
	int fd;

	if (is_followed(member, makedev(map->device_major, map->device_minor), map->inode))
		return;
	fd = process_map_open(member->pid, map);
	if (fd >= 0)
		follow_add(member, fd, 1, inotify, 0);
}

int perfmap_member_scan(struct perfmap_member *member, int inotify)
{
	struct perfmap_range *ranges;
	struct process_maps maps;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	size_t count = 0;

	/* The mappings of a process that is ending or in the middle of an exec say nothing. */
	if (member->pidfd < 0 || process_maps_read(member->pid, &maps))
		return 0;
	ranges = malloc((maps.count + 1) * sizeof(*ranges));
	if (!ranges) {
		process_maps_free(&maps);
		return -ENOMEM;
	}
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (map->inode && jitdump_has_name(map->path))
			jitdump_find(member, map, inotify);
		if (count && ranges[count - 1].end == map->start)
			ranges[count - 1].end = map->end;
		else
			ranges[count++] = (struct perfmap_range){map->start, map->end};
	}
	if (count)
		member->process->expired +=
			perfmap_table_expire(member->process->table, ranges, count, start_ns);
	free(ranges);
	process_maps_free(&maps);
	member->scanned_ns = clock_ns(CLOCK_MONOTONIC);
	member->scan_cost_ns = member->scanned_ns - start_ns;
	return 0;
}

int perfmap_member_read(struct perfmap_member *member, uint64_t limit)
{
	int err = 0;

	for (size_t i = 0; i < member->follow_count && !err; i++)
		err = perfmap_follow_read(member->follows[i], member->process, limit);
	return err;
}

void perfmap_member_mark(struct perfmap_member *member, int watch)
{
	for (size_t i = 0; i < member->follow_count; i++)
		if (member->follows[i]->watch == watch)
			member->follows[i]->dirty = 1;
}
