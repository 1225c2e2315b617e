/* SPDX-License-Identifier: Apache-2.0 */
#include "session/perfmap/perfmap_session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attach/links/hints.h"
#include "attach/links/links.h"
#include "proc/descriptors.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "proc/tmp_dir.h"
#include "session/perfmap/perfmap_state.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"
#include "util/sorted.h"

/* Processes of different PID namespaces that share a /tmp may write the same map file. */

static int same_directory(int a, int b)
{
	struct stat first, second;

	return !fstat(a, &first) && !fstat(b, &second) && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

static void target_compare(struct perfmap_target *a, struct perfmap_target *b)
{
	for (int i = 0; i < 4; i++) {
		struct perfmap_place *first = &a->places.at[i / 2], *second = &b->places.at[i % 2];

		if (first->directory < 0 || second->directory < 0 ||
		    strcmp(first->name, second->name) ||
		    !same_directory(first->directory, second->directory))
			continue;
		first->rival = b->pid;
		second->rival = a->pid;
	}
}

/* Another process, whose id is that of the place: does it write the file? */
static void process_compare(struct perfmap_place *place, pid_t pid)
{
	int directory = tmp_dir_open(pid);
	struct stat file;

	if (directory < 0)
		return;
	if (same_directory(directory, place->directory) &&
	    !fstatat(directory, place->name, &file, AT_SYMLINK_NOFOLLOW) &&
	    writers_find(pid, place->name, &file).count)
		place->rival = pid;
	close(directory);
}

/*
 * Finds processes with the same id in their PID namespace and the same /tmp, which write the same
 * map file: targets, and for a target that was named also others that have it open.
 */
static void perfmap_rivals_find(struct perfmap_session *session, struct perfmap_target *target)
{
	pid_t ids[2] = {target->ns_pid, target->pid}, *pids;
	struct process_info info;
	size_t count;

	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i] != target && !session->targets[i]->finished)
			target_compare(target, session->targets[i]);
	if (!target->named || process_list(&pids, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		if (pids[i] == target->pid || process_info_read(pids[i], &info) ||
		    info.kernel_thread)
			continue;
		for (int at = 0; at < 2; at++)
			if (target->places.at[at].directory >= 0 && info.ns_pid == ids[at])
				process_compare(&target->places.at[at], pids[i]);
	}
	free(pids);
}

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

/*
 * Fills a target whose pid and process are set. 0, -errno (error_set). pidfd is -1 if the process
 * could not be opened.
 */
static int perfmap_target_open(struct perfmap_target *target)
{
	target->places =
		(struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}}, .target = -1};
	/* The pidfd first: it keeps naming this process if its pid is reused. A thread has none. */
	target->pidfd = syscall(SYS_pidfd_open, target->pid, 0);
	return info_read(target);
}

/*
 * For a child that has ended before it could be opened: where its map is installed is known if its
 * parent is in no PID namespace.
 */
static void perfmap_target_inherit(struct perfmap_target *target,
				   const struct perfmap_target *parent)
{
	memcpy(target->name, parent->name, sizeof(target->name));
	target->ns_pid = target->pid;
	target->uid = parent->uid;
	if (parent->places.target == 1)
		perfmap_places_open_own(&target->places, target->pid, target->uid);
	target->places.begun_ns = begun_ns(target);
}

static void target_space_close(struct perfmap_target *target)
{
	space_close(target->space);
	target->space = NULL;
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

/*
 * It runs another program now, possibly in another root: drops files and places, and finds the
 * places again. 0, -errno.
 */
static int perfmap_target_renew(struct perfmap_target *target, int inotify)
{
	struct perfmap_places before = target->places;
	int err;

	files_forget(target, inotify, 0);
	target_space_close(target);
	free(target->code);
	target->code = NULL;
	target->code_count = 0;
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

static void perfmap_target_close(struct perfmap_target *target, int inotify)
{
	if (!target)
		return;
	files_forget(target, inotify, 1);
	target_space_close(target);
	perfmap_places_close(&target->places);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target->code);
	free(target);
}

static bool is_followed(const struct perfmap_target *target, dev_t device, ino_t inode)
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
static bool is_older(const struct perfmap_target *target, int fd)
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
static bool is_ancestors(const struct perfmap_target *target, const struct stat *st)
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

/*
 * Follows the map file and the jitdump in the process's /tmp, unless they are followed already; a
 * map that we installed, or that an earlier process wrote, is followed from its end. from_start:
 * also reads the existing contents. A file that must not be read is counted in files_refused.
 */
static void perfmap_target_find_files(struct perfmap_target *target, int inotify, int from_start)
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

/*
 * Finds out by its descriptors whether its map file is open, and sets process->file. An open file
 * is followed, so it is read even if its name is removed.
 */
static void perfmap_target_find_open(struct perfmap_target *target, int inotify, int from_start)
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
static bool is_ending(pid_t pid)
{
	struct process_info info;

	return process_info_read(pid, &info) || info.zombie || info.headless;
}

static bool has_ended(const struct perfmap_target *target)
{
	struct pollfd poll_fd = {.fd = target->pidfd, .events = POLLIN};

	return target->pidfd < 0 || poll(&poll_fd, 1, 0) > 0;
}

/* Its memory, as long as it runs the program that the code is of; NULL: not to be read. */
static struct space *target_space(struct perfmap_target *target)
{
	if (!target || target->space || has_ended(target))
		return target ? target->space : NULL;
	/* If it has not ended by now, the memory is not that of another process with its id. */
	if (!space_open(&target->space, target->pid) && has_ended(target))
		target_space_close(target);
	return target->space;
}

/* Writes the older functions in a range to the jitdump once more. */
static void code_repeat(struct perfmap_session *session, struct perfmap_target *target,
			struct perfmap_range range, uint64_t time_ns)
{
	const struct perfmap_table *table = target->process->table;
	const struct perfmap_entry *entry = perfmap_table_after(table, range.start);

	for (; entry && entry->start < range.end; entry = perfmap_table_after(table, entry->end)) {
		struct jitdump_code code = {.address = entry->start,
					    .bytes = entry->end - entry->start,
					    .time_ns = time_ns,
					    .name = perfmap_table_name(table, entry)};

		code.name_bytes = strlen(code.name);
		if (entry->time_ns < time_ns)
			jitdump_out_add(session->jitdump, target->pid, target_space(target), &code);
	}
}

/* Is a range inside of one of the target's executable mappings, as of the last look? */
static bool is_known_code(const struct perfmap_target *target, struct perfmap_range range)
{
	size_t at = SORTED_ABOVE(target->code, target->code_count, end, range.start);

	return at < target->code_count && target->code[at].start <= range.start &&
	       target->code[at].end >= range.end;
}

/*
 * perf gets an event of a whole mapping when a part of it is mapped or becomes executable, and
 * forgets the functions that were there. So where a mapping has grown, its functions are written
 * once more, with the time of the newest one that was outside of the known mappings: the last event
 * was before. 0, -ENOMEM.
 */
static int code_look(struct perfmap_session *session, struct perfmap_target *target,
		     const struct process_maps *maps)
{
	uint64_t time_ns = target->outside_ns ?: clock_ns(CLOCK_MONOTONIC);
	struct perfmap_range *code = malloc((maps->count + 1) * sizeof(*code));
	size_t count = 0;

	if (!code)
		return -ENOMEM;
	for (size_t i = 0; i < maps->count; i++) {
		struct perfmap_range range = {maps->entries[i].start, maps->entries[i].end};

		if (!maps->entries[i].executable)
			continue;
		code[count++] = range;
		/* perf sees the mappings of the first look as they are. */
		if (target->code && !is_known_code(target, range))
			code_repeat(session, target, range, time_ns);
	}
	free(target->code);
	target->code = code;
	target->code_count = count;
	target->outside_ns = 0;
	return 0;
}

static int perfmap_target_scan(struct perfmap_session *session, struct perfmap_target *target,
			       enum perfmap_expiry expiry)
{
	struct perfmap_range *ranges;
	struct process_maps maps;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	size_t count = 0;
	int err = 0;

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
			jitdump_find(target, map, session->inotify);
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
	if (session->jitdump)
		err = code_look(session, target, &maps);
	free(ranges);
	process_maps_free(&maps);
	target->scanned_ns = clock_ns(CLOCK_MONOTONIC);
	target->scan_cost_ns = target->scanned_ns - start_ns;
	return err;
}

/* Reads what was appended to its files, at most about limit bytes of each. 0, -ENOMEM. */
static int perfmap_target_read(struct perfmap_target *target, uint64_t limit)
{
	int err = 0;

	for (size_t i = 0; i < target->follow_count && !err; i++)
		err = perfmap_follow_read(target->follows[i], target->process, limit);
	return err;
}

/*
 * Reads all that the process has written so far; it ends, forks or executes a program. 0, -ENOMEM.
 */
static int perfmap_target_settle(struct perfmap_target *target, int inotify)
{
	int err = 0;

	perfmap_target_find_files(target, inotify, 1);
	for (size_t i = 0; i < target->follow_count && !err; i++)
		err = perfmap_follow_finish(target->follows[i], target->process);
	return err;
}

/*
 * Installs its map, as perfmap_install(); what it appends is not read again as the process's own.
 */
static int perfmap_target_install(struct perfmap_target *target, int inotify)
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

/*
 * A process has the memory of the one that forked it, and its functions: reads what that has
 * written, and those before it. Before its own files, which are newer. 0, -ENOMEM.
 */
static int perfmap_target_read_ancestors(struct perfmap_target *target)
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

/* The file with this inotify watch has grown. */
static void perfmap_target_mark(struct perfmap_target *target, int watch)
{
	for (size_t i = 0; i < target->follow_count; i++)
		if (target->follows[i]->watch == watch)
			target->follows[i]->dirty = 1;
}

/*
 * Order matters, so that no entry is missed: probes are placed, then the process becomes a target,
 * then its existing files and images are read. Events that happen meanwhile stay in the ring buffer
 * and are handled after that, so that the newest entry wins.
 */

#define DRAIN_BATCH (1u << 16)
#define READ_BATCH  (8u << 20) /* bytes of a file at once */
/* Mappings are read this often, for at most 1/50 of the time. */
#define SCAN_PERIOD_NS 500000000ull
#define SCAN_FIRST_NS  20000000ull
#define SCAN_SHARE     50
#define YOUNG_NS       1000000000ull

static int record_handle(void *context, void *record, size_t size)
{
	struct perfmap_session *session = context;
	int err = perfmaps_feed(session->maps, record, size);

	return err == -ENOMEM ? err : 0;
}

static int target_add(struct perfmap_session *session, struct perfmap_process *process, pid_t pid,
		      struct perfmap_target **out)
{
	struct perfmap_target *target;
	int err = ARRAY_RESERVE(NULL, session, targets, count, capacity, 1);

	if (err)
		return err;
	target = calloc(1, sizeof(*target));
	if (!target)
		return -ENOMEM;
	target->pid = pid;
	target->process = process;
	process->user = target;
	session->targets[session->count++] = target;
	*out = target;
	return perfmap_target_open(target);
}

/*
 * The page of the name was not resident when the call was made. The string may have changed since,
 * but no other source exists.
 */
static int name_read(void *context, struct perfmap_process *process, uint64_t address,
		     struct buffer *name)
{
	char piece[64];

	(void)context;
	while (name->size < PERFMAP_NAME_MAX) {
		/* Not across a page boundary: the next page may not be mapped. */
		size_t capacity = 4096 - address % 4096,
		       bytes = capacity < sizeof(piece) ? capacity : sizeof(piece), length;
		int err = memory_read(process->tgid, address, piece, bytes);

		if (err)
			return err;
		length = strnlen(piece, bytes);
		err = buffer_append(name, piece, length);
		if (err || length < bytes)
			return err;
		address += bytes;
	}
	name->size = PERFMAP_NAME_MAX;
	return 0;
}

static int image_read(void *context, struct perfmap_process *process, uint64_t address,
		      uint64_t bytes, struct buffer *image)
{
	int err = buffer_reserve(image, bytes);

	(void)context;
	if (!err)
		err = memory_read(process->tgid, address, image->data, bytes);
	if (!err)
		image->size = bytes;
	return err;
}

/* A forked child copies its parent's map, that is, our table of the parent; or it copies a file. */
static int file_copy(void *context, struct perfmap_process *process, const char *name, size_t bytes)
{
	struct perfmap_process *parent = process->parent;
	struct perfmap_target *target = process->user, *of = parent ? parent->user : NULL;
	char path[64], expected[64];
	struct perfmap_follow *follow;
	int fd, err;

	(void)context;
	snprintf(path, sizeof(path), "%.*s", (int)bytes, name);
	snprintf(expected, sizeof(expected), "/tmp/perf-%d.map", of ? of->ns_pid : -1);
	if (of && !strcmp(path, expected))
		return perfmap_process_copy(process, parent);
	/* Another file: only in its /tmp, where its owner and type can be checked. */
	if (!target || target->places.target < 0 || bytes >= sizeof(path) ||
	    strncmp(path, "/tmp/", 5) || strchr(path + 5, '/') || !path[5])
		return -EINVAL;
	fd = tmp_dir_file(target->places.at[target->places.target].directory, path + 5, target->uid,
			  O_RDONLY);
	if (fd < 0)
		return fd;
	err = perfmap_follow_new(&follow, fd, 0, -1);
	if (err)
		return err;
	err = perfmap_follow_read(follow, process, UINT64_MAX);
	err = err ?: follow->failed;
	perfmap_follow_free(follow, -1);
	return err;
}

static void code_added(void *context, struct perfmap_process *process,
		       const struct jitdump_code *code)
{
	struct perfmap_session *session = context;
	struct perfmap_target *target = process->user;

	jitdump_out_add(session->jitdump, (pid_t)process->tgid, target_space(target), code);
	if (target && code->time_ns > target->outside_ns &&
	    !is_known_code(target, (struct perfmap_range){code->address, code->address + 1}))
		target->outside_ns = code->time_ns;
}

static void process_changes(void *context, struct perfmap_process *process)
{
	struct perfmap_session *session = context;

	if (process->user)
		perfmap_target_settle(process->user, session->inotify);
}

static void child_add(struct perfmap_session *session, struct perfmap_process *process)
{
	struct perfmap_target *parent = process->parent ? process->parent->user : NULL, *target;
	int gone = target_add(session, process, process->tgid, &target);

	target = process->user;
	if (!target)
		return;
	/* A child that is gone cannot be inspected: its map is installed as its parent's. */
	if (gone && parent)
		perfmap_target_inherit(target, parent);
	else
		perfmap_rivals_find(session, target);
	target->python = parent && parent->python;
	target->advice = parent ? parent->advice : NULL;
	target->probed = parent ? parent->probed : 0;
}

static void target_finish(struct perfmap_session *session, struct perfmap_target *target)
{
	if (!target->finished)
		perfmap_target_settle(target, session->inotify);
	target_space_close(target);
	target->finished = 1;
}

static void process_changed(void *context, struct perfmap_process *process, uint32_t type)
{
	struct perfmap_session *session = context;
	struct perfmap_target *target = process->user;

	if (type == EVENT_FORK && !target)
		child_add(session, process);
	else if (type == EVENT_EXIT && target)
		target_finish(session, target);
	/* Privileges for new probes were dropped; files that are probed need none. */
	else if (type == EVENT_EXEC && target && !perfmap_target_renew(target, session->inotify) &&
		 perfmap_probe(session, target))
		log_info("PID %d runs another program now, in which no probe can be placed",
			 target->pid);
}

int perfmap_session_new(struct perfmap_session **out, const struct perfmap_session_opts *opts,
			const char **remedy)
{
	struct perfmap_session *session = calloc(1, sizeof(*session));
	struct perfmaps_hooks hooks = {.name_read = name_read,
				       .image_read = image_read,
				       .file_copy = file_copy,
				       .process_changes = process_changes,
				       .process_changed = process_changed,
				       .code_added = opts->jitdump ? code_added : NULL,
				       .context = session};
	struct perfmap_attach_opts attach = {
		.ring_bytes = opts->ring_bytes, .record = record_handle, .context = session};
	int err;

	error_clear();
	*remedy = NULL;
	if (!session)
		return -ENOMEM;
	session->opts = *opts;
	/* Without inotify, all files are read at every drain. */
	session->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	links_silence_libbpf();
	err = features_probe(&session->features)
			?: features_check(&session->features, remedy)
			?: perfmaps_new(&session->maps, &hooks);
	if (!err)
		perfmaps_budget(session->maps, opts->budget);
	if (!err)
		err = perfmap_attach_new(&session->attach, &session->features, &attach);
	/* features_check() has explained its own errors. */
	if (err && session->maps)
		hint_explain(HINT_LOAD, err, remedy);
	if (!err && opts->jitdump)
		err = jitdump_out_new(&session->jitdump, opts->jitdump, opts->replace);
	if (err) {
		perfmap_session_free(session);
		return err;
	}
	*out = session;
	return 0;
}

void perfmap_session_free(struct perfmap_session *session)
{
	if (!session)
		return;
	perfmap_attach_free(session->attach);
	for (size_t i = 0; i < session->count; i++)
		perfmap_target_close(session->targets[i], session->inotify);
	for (size_t i = 0; i < session->file_count; i++)
		elf_file_close(session->files[i].file);
	if (session->inotify >= 0)
		close(session->inotify);
	free(session->targets);
	free(session->files);
	perfmaps_free(session->maps);
	jitdump_out_free(session->jitdump);
	free(session);
}

int perfmap_session_add(struct perfmap_session *session, pid_t pid)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct perfmap_process *process;
	struct perfmap_target *target;
	int err;

	error_clear();
	err = perfmaps_add(session->maps, pid, &process);
	target = err ? NULL : process->user;
	/* A command that is started may exec more than once. */
	if (!err)
		err = target ? perfmap_target_renew(target, session->inotify)
			     : target_add(session, process, pid, &target);
	if (err)
		return err;
	target->named = 1;
	/* From here on records are kept; only files shared with other processes have probes yet. */
	err = perfmap_attach_target(session->attach, pid);
	if (err)
		return err;
	err = perfmap_probe(session, target);
	if (err)
		return hint_tell(HINT_PROBE, err);
	perfmap_rivals_find(session, target);
	if (session->opts.merge)
		err = perfmap_target_read_ancestors(target);
	perfmap_target_find_open(target, session->inotify, session->opts.merge);
	perfmap_target_find_files(target, session->inotify, session->opts.merge);
	if (!err)
		err = perfmap_target_read(target, UINT64_MAX)
				?: perfmap_target_scan(session, target,
					PERFMAP_EXPIRE_ALL)
				?: perfmap_target_read(target, UINT64_MAX);
	if (err)
		return err;
	if (target->files_refused)
		log_info("PID %d: its map file is not read: %s", pid, target->file_reason);
	log_info("attached to PID %d (%s): %d probes, perf map functions of CPython: %s; %zu "
		 "entries to begin with; %llu ms",
		 pid, target->name, target->probed, target->python ? "yes" : "no",
		 perfmap_table_count(process->table),
		 (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start) / 1000000));
	/* A command that is started has run nothing yet. */
	if (target->advice && process->file != PERFMAP_FILE_OPEN && !target->follow_count &&
	    process_age_ns(pid) > YOUNG_NS)
		perfmap_session_advise(target);
	return 0;
}

void perfmap_session_advise(struct perfmap_target *target)
{
	const struct perfmap_process *process = target->process;

	if (target->advised || perfmap_table_count(process->table) || process->expired ||
	    process->refused || process->missed || process->execs)
		return;
	target->advised = 1;
	log_info("PID %d has no entries: %s", target->pid,
		 target->advice ?: "nothing in it is known to name code (--perf-map-symbol)");
}

static void growth_take(struct perfmap_session *session)
{
	_Alignas(struct inotify_event) char events[4096];
	ssize_t bytes;

	while (session->inotify >= 0 &&
	       (bytes = read(session->inotify, events, sizeof(events))) > 0)
		for (ssize_t at = 0; at < bytes;) {
			const struct inotify_event *event = (void *)(events + at);

			for (size_t i = 0; i < session->count; i++)
				perfmap_target_mark(session->targets[i], event->wd);
			at += sizeof(*event) + event->len;
		}
}

static void ends_watch(struct perfmap_session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		struct perfmap_target *target = session->targets[i];

		if (target->pidfd < 0 || !has_ended(target))
			continue;
		/* Its last records are in the ring buffer by now. */
		while (stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH) >=
		       (int)DRAIN_BATCH)
			;
		target->process->exited = 1;
		target_finish(session, target);
		close(target->pidfd);
		target->pidfd = -1;
	}
}

/* More often at first, so that the jitdump of a program that ends soon is found. */
static uint64_t scan_period_ns(uint64_t age_ns)
{
	return age_ns / 4 < SCAN_FIRST_NS    ? SCAN_FIRST_NS
	       : age_ns / 4 < SCAN_PERIOD_NS ? age_ns / 4
					     : SCAN_PERIOD_NS;
}

static int scan_when_due(struct perfmap_session *session, uint64_t now)
{
	int err = 0;

	for (size_t i = 0; i < session->count && !err; i++) {
		struct perfmap_target *target = session->targets[i];
		uint64_t pause = target->scan_cost_ns * SCAN_SHARE,
			 period = target->outside_ns ? 0 : scan_period_ns(now - target->opened_ns);

		if (now - target->scanned_ns < (pause < period ? period : pause))
			continue;
		target->scanned_ns = now;
		perfmap_target_find_files(target, session->inotify, 1);
		/* A program that ends frees its code first: names are kept for a while. */
		err = perfmap_target_scan(session, target,
					  now - target->expired_ns >= SCAN_PERIOD_NS
						  ? PERFMAP_EXPIRE_LATE
						  : PERFMAP_EXPIRE_NONE);
	}
	return err;
}

int perfmap_session_drain(struct perfmap_session *session)
{
	int count = stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH), err = 0;

	if (count < 0)
		return count;
	err = perfmap_attach_check(session->attach);
	growth_take(session);
	for (size_t i = 0; i < session->count && !err; i++)
		err = perfmap_target_read(session->targets[i], READ_BATCH);
	if (!err && count < (int)DRAIN_BATCH) {
		ends_watch(session);
		err = scan_when_due(session, clock_ns(CLOCK_MONOTONIC));
	}
	return err ?: count;
}

int perfmap_session_refresh(struct perfmap_session *session)
{
	int err = 0;

	while (stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH) >=
	       (int)DRAIN_BATCH)
		;
	ends_watch(session);
	growth_take(session);
	for (size_t i = 0; i < session->count && !err; i++) {
		struct perfmap_target *target = session->targets[i];

		perfmap_target_find_files(target, session->inotify, 1);
		err = perfmap_target_read(target, UINT64_MAX)
				?: perfmap_target_scan(session, target,
					PERFMAP_EXPIRE_ALL)
				?: perfmap_target_read(target, UINT64_MAX);
	}
	return err;
}

int perfmap_session_install(struct perfmap_session *session, struct perfmap_target *target)
{
	/* There are no entries: do not replace a map file that it may have. */
	if (!perfmap_table_count(target->process->table) && target->places.version == UINT64_MAX)
		return 0;
	if (target->process->evicted) /* its table was freed; the installed map is complete */
		return 0;
	return perfmap_target_install(target, session->inotify);
}

size_t perfmap_session_running(const struct perfmap_session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += session->targets[i]->named && session->targets[i]->pidfd >= 0;
	return running;
}

size_t perfmap_session_count(const struct perfmap_session *session)
{
	return session->count;
}

struct perfmap_target *perfmap_session_at(const struct perfmap_session *session, size_t index)
{
	return session->targets[index];
}

size_t perfmap_session_poll_fds(const struct perfmap_session *session, int *fds, size_t capacity)
{
	size_t count = 0;

	if (session->inotify >= 0 && count < capacity)
		fds[count++] = session->inotify;
	for (size_t i = 0; i < session->count && count < capacity; i++)
		if (session->targets[i]->pidfd >= 0)
			fds[count++] = session->targets[i]->pidfd;
	return count;
}

const struct jitdump_out *perfmap_session_jitdump(const struct perfmap_session *session)
{
	return session->jitdump;
}

int perfmap_session_loss(const struct perfmap_session *session, __u64 counts[LOSS_COUNT])
{
	return stream_loss(perfmap_attach_stream(session->attach), counts);
}
