/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap_session/perfmap_member.h"

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
#include "base/regular.h"
#include "process/descriptors.h"
#include "process/tmp_dir.h"

#define GENERATIONS_MAX 64

/* How long ago it began; 0: not known. */
static uint64_t age_ns(const struct perfmap_member *member)
{
	uint64_t forked_ns = member->process->forked_ns;

	return forked_ns ? clock_ns(CLOCK_MONOTONIC) - forked_ns : process_age_ns(member->pid);
}

/* When it began, on the clock of files. */
static uint64_t begun_ns(const struct perfmap_member *member)
{
	uint64_t age = age_ns(member);

	return age ? clock_ns(CLOCK_REALTIME) - age : 0;
}

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
	member->opened_ns = clock_ns(CLOCK_MONOTONIC);
	snprintf(member->name, sizeof(member->name), "%s", info.name);
	err = perfmap_places_open(&member->places, member->pid, member->ns_pid, member->uid);
	member->places.begun_ns = begun_ns(member);
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
	member->places.begun_ns = begun_ns(member);
}

/* Its map file stays followed after an exec: what is in it now is of the program before. */
static void files_forget(struct perfmap_member *member, int inotify, int all)
{
	size_t kept = 0;

	for (size_t i = 0; i < member->follow_count; i++)
		if (all || member->follows[i]->is_jitdump)
			perfmap_follow_free(member->follows[i], inotify);
		else
			member->follows[kept++] = member->follows[i];
	member->follow_count = kept;
}

int perfmap_member_renew(struct perfmap_member *member, int inotify)
{
	struct perfmap_places before = member->places;
	int err;

	files_forget(member, inotify, 0);
	member->python = member->probed = 0;
	member->advice = NULL;
	err = info_read(member);
	/* It may be in another root. The installed map of the old program must be replaced. */
	if (!err)
		perfmap_places_continue(&member->places, &before);
	if (!err)
		perfmap_places_close(&before);
	return err;
}

void perfmap_member_close(struct perfmap_member *member, int inotify)
{
	if (!member)
		return;
	files_forget(member, inotify, 1);
	perfmap_places_close(&member->places);
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

static void file_refuse(struct perfmap_member *member, int err)
{
	if (!member->files_refused++)
		snprintf(member->file_reason, sizeof(member->file_reason), "%s", error_reason(err));
}

/* Takes ownership of fd. Reading begins at offset. NULL: it is not followed. */
static struct perfmap_follow *follow_add(struct perfmap_member *member, int fd, int is_jitdump,
					 int inotify, uint64_t offset)
{
	struct perfmap_follow *follow;
	int err;

	if (member->follow_count == PERFMAP_FOLLOWS_MAX) {
		member->follows_dropped++;
		close(fd);
		return NULL;
	}
	err = perfmap_follow_new(&follow, fd, is_jitdump, inotify);
	if (err) {
		file_refuse(member, err);
		return NULL;
	}
	follow->offset = offset;
	member->follows[member->follow_count++] = follow;
	return follow;
}

static struct perfmap_place *own_place(struct perfmap_member *member)
{
	return &member->places.at[member->places.target < 0 ? 0 : member->places.target];
}

/* Was the file made before the process began? Not every file system knows. */
static int is_older(const struct perfmap_member *member, int fd)
{
	struct statx file;
	struct stat made = {0};

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &file) || !(file.stx_mask & STATX_BTIME))
		return 0;
	made.st_mtim = (struct timespec){file.stx_btime.tv_sec, file.stx_btime.tv_nsec};
	return perfmap_places_stale(&member->places, &made);
}

/* Where reading of its map file begins. */
static uint64_t map_offset(struct perfmap_member *member, const struct stat *st, int from_start)
{
	const struct perfmap_place *place = own_place(member);

	/* Of a file that we installed, only what others append is read. */
	if (place->ours && st->st_ino == place->inode && st->st_dev == place->device)
		return place->bytes;
	member->stale = perfmap_places_stale(&member->places, st);
	return from_start && !member->stale ? 0 : st->st_size;
}

/* Takes ownership of fd. */
static void map_follow(struct perfmap_member *member, int fd, int inotify, int from_start)
{
	struct perfmap_follow *follow;
	struct stat st;
	uint64_t offset;

	if (regular_stat(fd, &st) || is_followed(member, st.st_dev, st.st_ino)) {
		close(fd);
		return;
	}
	offset = map_offset(member, &st, from_start);
	follow = follow_add(member, fd, 0, inotify, offset);
	if (follow && !offset && st.st_size && is_older(member, fd))
		member->older = follow->mapped_only = 1;
}

/* Is a jitdump followed for the process that forked it, which has mapped it? */
static int is_ancestors(const struct perfmap_member *member, const struct stat *st)
{
	const struct perfmap_process *parent = member->process->parent;

	for (int i = 0; parent && i < GENERATIONS_MAX; i++, parent = parent->parent)
		if (parent->user && is_followed(parent->user, st->st_dev, st->st_ino))
			return 1;
	return 0;
}

/* Takes ownership of fd. writer: whose it is, by its name. */
static void jitdump_follow(struct perfmap_member *member, int fd, pid_t writer, int inotify)
{
	struct perfmap_follow *follow;
	struct stat st;

	if (regular_stat(fd, &st) || is_followed(member, st.st_dev, st.st_ino) ||
	    is_ancestors(member, &st) || perfmap_places_stale(&member->places, &st)) {
		close(fd);
		return;
	}
	follow = follow_add(member, fd, 1, inotify, 0);
	/* It has mapped the file since it was forked; what is written later is not its code. */
	if (follow && writer != member->ns_pid)
		follow->until_ns = clock_ns(CLOCK_MONOTONIC) - age_ns(member);
}

/* Reads its user again, which it may change. */
static void user_read(struct perfmap_member *member)
{
	struct process_info info;

	if (member->pidfd < 0 || process_info_read(member->pid, &info))
		return;
	member->uid = info.uid;
	perfmap_places_user(&member->places, info.uid);
}

void perfmap_member_find_files(struct perfmap_member *member, int inotify, int from_start)
{
	const struct perfmap_place *place = own_place(member);
	char jitdump[32];
	int fd;

	if (place->directory < 0 || place->rival || member->finished)
		return;
	user_read(member);
	fd = tmp_dir_file(place->directory, place->name, member->uid, O_RDONLY);
	if (fd >= 0)
		map_follow(member, fd, inotify, from_start);
	else if (fd != -ENOENT)
		file_refuse(member, fd);
	/* CPython's, also of a process that has ended. Others are found by their mapping. */
	snprintf(jitdump, sizeof(jitdump), "jit-%d.dump", member->ns_pid);
	fd = tmp_dir_file(place->directory, jitdump, member->uid, O_RDONLY);
	if (fd >= 0)
		jitdump_follow(member, fd, member->ns_pid, inotify);
}

struct open_search {
	struct perfmap_member *member;
	int inotify, from_start;
};

static int open_take(void *context, pid_t pid, const char *number)
{
	struct open_search *search = context;
	struct perfmap_member *member = search->member;
	int fd = tmp_dir_descriptor(pid, number, member->uid);

	member->process->file = PERFMAP_FILE_OPEN;
	if (fd >= 0)
		map_follow(member, fd, search->inotify, search->from_start);
	return 0;
}

void perfmap_member_find_open(struct perfmap_member *member, int inotify, int from_start)
{
	struct open_search search = {member, inotify, from_start};
	char name[32];

	snprintf(name, sizeof(name), "perf-%d.map", member->ns_pid);
	member->process->file = PERFMAP_FILE_CLOSED;
	if (!own_place(member)->rival)
		descriptors_find(member->pid, name, open_take, &search);
}

static void jitdump_find(struct perfmap_member *member, const struct process_map *map, int inotify)
{
	pid_t writer = jitdump_writer(map->path);
	int fd;

	if (writer < 0 ||
	    is_followed(member, makedev(map->device_major, map->device_minor), map->inode))
		return;
	fd = process_map_open(member->pid, map);
	if (fd >= 0)
		jitdump_follow(member, fd, writer, inotify);
}

/* Then a part of its mappings may have been read only. */
static int is_ending(pid_t pid)
{
	struct process_info info;

	return process_info_read(pid, &info) || info.zombie || info.headless;
}

int perfmap_member_scan(struct perfmap_member *member, int inotify, enum perfmap_expiry expiry)
{
	struct perfmap_range *ranges;
	struct process_maps maps;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	size_t count = 0;

	if (member->pidfd < 0 || process_maps_read(member->pid, &maps))
		return 0;
	ranges = malloc((maps.count + 1) * sizeof(*ranges));
	if (!ranges) {
		process_maps_free(&maps);
		return -ENOMEM;
	}
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (map->inode)
			jitdump_find(member, map, inotify);
		if (count && ranges[count - 1].end == map->start)
			ranges[count - 1].end = map->end;
		else
			ranges[count++] = (struct perfmap_range){map->start, map->end};
	}
	if (expiry != PERFMAP_EXPIRE_NONE && count && !is_ending(member->pid)) {
		member->process->expired +=
			perfmap_table_expire(member->process->table, ranges, count, start_ns,
					     expiry == PERFMAP_EXPIRE_LATE);
		member->expired_ns = start_ns;
	}
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

int perfmap_member_settle(struct perfmap_member *member, int inotify)
{
	int err = 0;

	perfmap_member_find_files(member, inotify, 1);
	for (size_t i = 0; i < member->follow_count && !err; i++)
		err = perfmap_follow_finish(member->follows[i], member->process);
	return err;
}

int perfmap_member_install(struct perfmap_member *member, int inotify)
{
	struct perfmap_place *place = own_place(member);
	int status;

	/* The file that is there now, so that our lines can be told from its own. */
	perfmap_member_find_files(member, inotify, 1);
	place->appended_start = place->appended_end = 0;
	status =
		perfmap_install(&member->places, member->process->table, &member->process->account);
	for (size_t i = 0; place->appended_end && i < member->follow_count; i++) {
		struct perfmap_follow *follow = member->follows[i];

		if (follow->inode == place->inode && follow->device == place->device &&
		    perfmap_follow_skip(follow, member->process, place->appended_start,
					place->appended_end))
			return -ENOMEM;
	}
	if (status > 0)
		perfmap_member_find_files(member, inotify, 1);
	return status;
}

/* Reads what one ancestor has written, into the map of its descendant. */
static int ancestor_read(struct perfmap_member *member, pid_t pid)
{
	struct perfmap_member ancestor = {.pid = pid, .process = member->process};
	uint64_t begun = clock_ns(CLOCK_MONOTONIC) - age_ns(member);
	int state = member->process->file, err = perfmap_member_open(&ancestor);

	if (!err) {
		perfmap_member_find_open(&ancestor, -1, 1);
		perfmap_member_find_files(&ancestor, -1, 1);
	}
	for (size_t i = 0; i < ancestor.follow_count && !err; i++) {
		ancestor.follows[i]->mapped_only = 1;
		ancestor.follows[i]->until_ns = begun;
		err = perfmap_follow_read(ancestor.follows[i], member->process, UINT64_MAX);
	}
	member->process->file = state;
	files_forget(&ancestor, -1, 1);
	perfmap_places_close(&ancestor.places);
	if (ancestor.pidfd >= 0)
		close(ancestor.pidfd);
	return err == -ENOMEM ? err : 0;
}

/* Do both run the same program? */
static int same_program(pid_t a, pid_t b)
{
	struct stat first, second;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", a);
	if (stat(path, &first))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/exe", b);
	return !stat(path, &second) && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

int perfmap_member_read_ancestors(struct perfmap_member *member)
{
	pid_t pids[GENERATIONS_MAX], pid = member->pid;
	struct process_info info;
	int count = 0, err = 0;

	while (count < GENERATIONS_MAX && !process_info_read(pid, &info) && info.forked) {
		/* Its parent has ended: another process has taken its place. */
		if (info.ppid <= 1 || !same_program(pid, info.ppid)) {
			member->orphaned = 1;
			break;
		}
		pids[count++] = pid = info.ppid;
	}
	/* The oldest first, since the newest entry wins. */
	while (count && !err)
		err = ancestor_read(member, pids[--count]);
	return err;
}

void perfmap_member_mark(struct perfmap_member *member, int watch)
{
	for (size_t i = 0; i < member->follow_count; i++)
		if (member->follows[i]->watch == watch)
			member->follows[i]->dirty = 1;
}
