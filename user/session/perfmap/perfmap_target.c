/* SPDX-License-Identifier: Apache-2.0 */
#include "session/perfmap/perfmap_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proc/descriptors.h"
#include "proc/tmp_dir.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

#define GENERATIONS_MAX 64

/* How long ago it began; 0: not known. */
static uint64_t age_ns(const struct perfmap_target *target)
{
	uint64_t forked_ns = target->process->forked_ns;

	return forked_ns ? clock_ns(CLOCK_MONOTONIC) - forked_ns : process_age_ns(target->pid);
}

/* When it began, on the clock of files. */
static uint64_t begun_ns(const struct perfmap_target *target)
{
	uint64_t age = age_ns(target);

	return age ? clock_ns(CLOCK_REALTIME) - age : 0;
}

/* Reads what an exec may change. */
static int info_read(struct perfmap_target *target)
{
	struct process_info info;
	int err = process_info_read(target->pid, &info) ?: process_info_check(&info);

	if (err)
		return err;
	if (target->pidfd < 0)
		return error_set(-ESRCH, "it has ended");
	target->ns_pid = info.ns_pid;
	target->uid = info.uid;
	target->opened_ns = clock_ns(CLOCK_MONOTONIC);
	snprintf(target->name, sizeof(target->name), "%s", info.name);
	err = perfmap_places_open(&target->places, target->pid, target->ns_pid, target->uid);
	target->places.begun_ns = begun_ns(target);
	if (err)
		error_print(err, "no map is read or written there", "PID %d", target->pid);
	return 0;
}

int perfmap_target_open(struct perfmap_target *target)
{
	target->places =
		(struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}}, .target = -1};
	/* The pidfd first: it keeps naming this process if its pid is reused. A thread has none. */
	target->pidfd = syscall(SYS_pidfd_open, target->pid, 0);
	return info_read(target);
}

void perfmap_target_inherit(struct perfmap_target *target, const struct perfmap_target *parent)
{
	memcpy(target->name, parent->name, sizeof(target->name));
	target->ns_pid = target->pid;
	target->uid = parent->uid;
	if (parent->places.target == 1)
		perfmap_places_open_own(&target->places, target->pid, target->uid);
	target->places.begun_ns = begun_ns(target);
}

/* Its map file stays followed after an exec: what is in it now is of the program before. */
static void files_forget(struct perfmap_target *target, int inotify, int all)
{
	size_t kept = 0;

	for (size_t i = 0; i < target->follow_count; i++)
		if (all || target->follows[i]->is_jitdump)
			perfmap_follow_free(target->follows[i], inotify);
		else
			target->follows[kept++] = target->follows[i];
	target->follow_count = kept;
}

int perfmap_target_renew(struct perfmap_target *target, int inotify)
{
	struct perfmap_places before = target->places;
	int err;

	files_forget(target, inotify, 0);
	target->python = target->probed = 0;
	target->advice = NULL;
	err = info_read(target);
	/* It may be in another root. The installed map of the old program must be replaced. */
	if (!err)
		perfmap_places_continue(&target->places, &before);
	if (!err)
		perfmap_places_close(&before);
	return err;
}

void perfmap_target_close(struct perfmap_target *target, int inotify)
{
	if (!target)
		return;
	files_forget(target, inotify, 1);
	perfmap_places_close(&target->places);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target);
}

static int is_followed(const struct perfmap_target *target, dev_t device, ino_t inode)
{
	for (size_t i = 0; i < target->follow_count; i++)
		if (target->follows[i]->device == device && target->follows[i]->inode == inode)
			return 1;
	return 0;
}

static void file_refuse(struct perfmap_target *target, int err)
{
	if (!target->files_refused++)
		snprintf(target->file_reason, sizeof(target->file_reason), "%s", error_reason(err));
}

/* Takes ownership of fd. Reading begins at offset. NULL: it is not followed. */
static struct perfmap_follow *follow_add(struct perfmap_target *target, int fd, int is_jitdump,
					 int inotify, uint64_t offset)
{
	struct perfmap_follow *follow;
	int err;

	if (target->follow_count == PERFMAP_FOLLOWS_MAX) {
		target->follows_dropped++;
		close(fd);
		return NULL;
	}
	err = perfmap_follow_new(&follow, fd, is_jitdump, inotify);
	if (err) {
		file_refuse(target, err);
		return NULL;
	}
	follow->offset = offset;
	target->follows[target->follow_count++] = follow;
	return follow;
}

static struct perfmap_place *own_place(struct perfmap_target *target)
{
	return &target->places.at[target->places.target < 0 ? 0 : target->places.target];
}

/* Was the file made before the process began? Not every file system knows. */
static int is_older(const struct perfmap_target *target, int fd)
{
	struct statx file;
	struct stat made = {0};

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &file) || !(file.stx_mask & STATX_BTIME))
		return 0;
	made.st_mtim = (struct timespec){file.stx_btime.tv_sec, file.stx_btime.tv_nsec};
	return perfmap_places_stale(&target->places, &made);
}

/* Where reading of its map file begins. */
static uint64_t map_offset(struct perfmap_target *target, const struct stat *st, int from_start)
{
	const struct perfmap_place *place = own_place(target);

	/* Of a file that we installed, only what others append is read. */
	if (place->ours && st->st_ino == place->inode && st->st_dev == place->device)
		return place->bytes;
	target->stale = perfmap_places_stale(&target->places, st);
	return from_start && !target->stale ? 0 : st->st_size;
}

/* Takes ownership of fd. */
static void map_follow(struct perfmap_target *target, int fd, int inotify, int from_start)
{
	struct perfmap_follow *follow;
	struct stat st;
	uint64_t offset;

	if (regular_stat(fd, &st) || is_followed(target, st.st_dev, st.st_ino)) {
		close(fd);
		return;
	}
	offset = map_offset(target, &st, from_start);
	follow = follow_add(target, fd, 0, inotify, offset);
	if (follow && !offset && st.st_size && is_older(target, fd))
		target->older = follow->mapped_only = 1;
}

/* Is a jitdump followed for the process that forked it, which has mapped it? */
static int is_ancestors(const struct perfmap_target *target, const struct stat *st)
{
	const struct perfmap_process *parent = target->process->parent;

	for (int i = 0; parent && i < GENERATIONS_MAX; i++, parent = parent->parent)
		if (parent->user && is_followed(parent->user, st->st_dev, st->st_ino))
			return 1;
	return 0;
}

/* Takes ownership of fd. writer: whose it is, by its name. */
static void jitdump_follow(struct perfmap_target *target, int fd, pid_t writer, int inotify)
{
	struct perfmap_follow *follow;
	struct stat st;

	if (regular_stat(fd, &st) || is_followed(target, st.st_dev, st.st_ino) ||
	    is_ancestors(target, &st) || perfmap_places_stale(&target->places, &st)) {
		close(fd);
		return;
	}
	follow = follow_add(target, fd, 1, inotify, 0);
	/* It has mapped the file since it was forked; what is written later is not its code. */
	if (follow && writer != target->ns_pid)
		follow->until_ns = clock_ns(CLOCK_MONOTONIC) - age_ns(target);
}

/* Reads its user again, which it may change. */
static void user_read(struct perfmap_target *target)
{
	struct process_info info;

	if (target->pidfd < 0 || process_info_read(target->pid, &info))
		return;
	target->uid = info.uid;
	perfmap_places_user(&target->places, info.uid);
}

void perfmap_target_find_files(struct perfmap_target *target, int inotify, int from_start)
{
	const struct perfmap_place *place = own_place(target);
	char jitdump[32];
	int fd;

	if (place->directory < 0 || place->rival || target->finished)
		return;
	user_read(target);
	fd = tmp_dir_file(place->directory, place->name, target->uid, O_RDONLY);
	if (fd >= 0)
		map_follow(target, fd, inotify, from_start);
	else if (fd != -ENOENT)
		file_refuse(target, fd);
	/* CPython's, also of a process that has ended. Others are found by their mapping. */
	snprintf(jitdump, sizeof(jitdump), "jit-%d.dump", target->ns_pid);
	fd = tmp_dir_file(place->directory, jitdump, target->uid, O_RDONLY);
	if (fd >= 0)
		jitdump_follow(target, fd, target->ns_pid, inotify);
}

struct open_search {
	struct perfmap_target *target;
	int inotify, from_start;
};

static int open_take(void *context, pid_t pid, const char *number)
{
	struct open_search *search = context;
	struct perfmap_target *target = search->target;
	int fd = tmp_dir_descriptor(pid, number, target->uid);

	target->process->file = PERFMAP_FILE_OPEN;
	if (fd >= 0)
		map_follow(target, fd, search->inotify, search->from_start);
	return 0;
}

void perfmap_target_find_open(struct perfmap_target *target, int inotify, int from_start)
{
	struct open_search search = {target, inotify, from_start};
	char name[32];

	snprintf(name, sizeof(name), "perf-%d.map", target->ns_pid);
	target->process->file = PERFMAP_FILE_CLOSED;
	if (!own_place(target)->rival)
		descriptors_find(target->pid, name, open_take, &search);
}

static void jitdump_find(struct perfmap_target *target, const struct process_map *map, int inotify)
{
	pid_t writer = jitdump_writer(map->path);
	int fd;

	if (writer < 0 ||
	    is_followed(target, makedev(map->device_major, map->device_minor), map->inode))
		return;
	fd = process_map_open(target->pid, map);
	if (fd >= 0)
		jitdump_follow(target, fd, writer, inotify);
}

/* Then a part of its mappings may have been read only. */
static int is_ending(pid_t pid)
{
	struct process_info info;

	return process_info_read(pid, &info) || info.zombie || info.headless;
}

int perfmap_target_scan(struct perfmap_target *target, int inotify, enum perfmap_expiry expiry)
{
	struct perfmap_range *ranges;
	struct process_maps maps;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	size_t count = 0;

	if (target->pidfd < 0 || process_maps_read(target->pid, &maps))
		return 0;
	ranges = malloc((maps.count + 1) * sizeof(*ranges));
	if (!ranges) {
		process_maps_free(&maps);
		return -ENOMEM;
	}
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (map->inode)
			jitdump_find(target, map, inotify);
		if (count && ranges[count - 1].end == map->start)
			ranges[count - 1].end = map->end;
		else
			ranges[count++] = (struct perfmap_range){map->start, map->end};
	}
	if (expiry != PERFMAP_EXPIRE_NONE && count && !is_ending(target->pid)) {
		target->process->expired +=
			perfmap_table_expire(target->process->table, ranges, count, start_ns,
					     expiry == PERFMAP_EXPIRE_LATE);
		target->expired_ns = start_ns;
	}
	free(ranges);
	process_maps_free(&maps);
	target->scanned_ns = clock_ns(CLOCK_MONOTONIC);
	target->scan_cost_ns = target->scanned_ns - start_ns;
	return 0;
}

int perfmap_target_read(struct perfmap_target *target, uint64_t limit)
{
	int err = 0;

	for (size_t i = 0; i < target->follow_count && !err; i++)
		err = perfmap_follow_read(target->follows[i], target->process, limit);
	return err;
}

int perfmap_target_settle(struct perfmap_target *target, int inotify)
{
	int err = 0;

	perfmap_target_find_files(target, inotify, 1);
	for (size_t i = 0; i < target->follow_count && !err; i++)
		err = perfmap_follow_finish(target->follows[i], target->process);
	return err;
}

int perfmap_target_install(struct perfmap_target *target, int inotify)
{
	struct perfmap_place *place = own_place(target);
	int status;

	/* The file that is there now, so that our lines can be told from its own. */
	perfmap_target_find_files(target, inotify, 1);
	place->appended_start = place->appended_end = 0;
	status =
		perfmap_install(&target->places, target->process->table, &target->process->account);
	for (size_t i = 0; place->appended_end && i < target->follow_count; i++) {
		struct perfmap_follow *follow = target->follows[i];

		if (follow->inode == place->inode && follow->device == place->device &&
		    perfmap_follow_skip(follow, target->process, place->appended_start,
					place->appended_end))
			return -ENOMEM;
	}
	if (status > 0)
		perfmap_target_find_files(target, inotify, 1);
	return status;
}

/* Reads what one ancestor has written, into the map of its descendant. */
static int ancestor_read(struct perfmap_target *target, pid_t pid)
{
	struct perfmap_target ancestor = {.pid = pid, .process = target->process};
	uint64_t begun = clock_ns(CLOCK_MONOTONIC) - age_ns(target);
	int state = target->process->file, err = perfmap_target_open(&ancestor);

	if (!err) {
		perfmap_target_find_open(&ancestor, -1, 1);
		perfmap_target_find_files(&ancestor, -1, 1);
	}
	for (size_t i = 0; i < ancestor.follow_count && !err; i++) {
		ancestor.follows[i]->mapped_only = 1;
		ancestor.follows[i]->until_ns = begun;
		err = perfmap_follow_read(ancestor.follows[i], target->process, UINT64_MAX);
	}
	target->process->file = state;
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

int perfmap_target_read_ancestors(struct perfmap_target *target)
{
	pid_t pids[GENERATIONS_MAX], pid = target->pid;
	struct process_info info;
	int count = 0, err = 0;

	while (count < GENERATIONS_MAX && !process_info_read(pid, &info) && info.forked) {
		/* Its parent has ended: another process has taken its place. */
		if (info.ppid <= 1 || !same_program(pid, info.ppid)) {
			target->orphaned = 1;
			break;
		}
		pids[count++] = pid = info.ppid;
	}
	/* The oldest first, since the newest entry wins. */
	while (count && !err)
		err = ancestor_read(target, pids[--count]);
	return err;
}

void perfmap_target_mark(struct perfmap_target *target, int watch)
{
	for (size_t i = 0; i < target->follow_count; i++)
		if (target->follows[i]->watch == watch)
			target->follows[i]->dirty = 1;
}
