/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/memory_headroom.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/container/cgroup.h"
#include "proc/container/memory_files.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/sorted.h"

#define LEVELS_MAX 16 /* nested cgroups with a limit that are considered */
#define MACHINE    "/proc"

struct headroom_level {
	char *directory;
	size_t mount_bytes; /* length of the mount point, a prefix of directory */
	int limited;
	struct memory_left left;
	int64_t taken;
};

struct process {
	pid_t pid;
	uint32_t levels[LEVELS_MAX + 1];
	size_t count;
};

struct memory_headroom {
	struct headroom_level *levels; /* the first is the machine */
	size_t level_count, level_capacity;
	struct process *processes; /* sorted by pid */
	size_t process_count, process_capacity;
};

static uint64_t unused(const struct memory_level *level, uint64_t used, uint64_t reclaimable)
{
	used = used > reclaimable ? used - reclaimable : 0;
	return level->limit > used ? level->limit - used : 0;
}

struct memory_left memory_level_left(const struct memory_level *level)
{
	const int may_recur = level->peak > level->used && level->peak <= level->limit;

	return (struct memory_left){
		.now = unused(level, level->used, level->reclaimable),
		.at_peak = unused(level, may_recur ? level->peak : level->used, level->reclaimable),
		.last = unused(level, level->used, level->reclaimable_last),
	};
}

/* The names of a limit's files. Kernels before 5.19 have no memory.peak. */
struct limit_files {
	const char *limit, *usage, *peak;
};

/* What is left of one limit. Returns 0 if there is no limit. */
static int limit_left(const char *directory, const struct limit_files *files,
		      struct memory_level memory, struct memory_left *left)
{
	memory.limit = memory_number_read(directory, files->limit);
	if (memory.limit == UINT64_MAX)
		return 0;
	memory.used = memory_number_read(directory, files->usage);
	if (memory.used == UINT64_MAX)
		return 0;
	memory.peak = memory_number_read(directory, files->peak);
	*left = memory_level_left(&memory);
	return 1;
}

/* Sets what of the cgroup's memory can be reclaimed. */
static void reclaimable_read(const char *directory, struct memory_level *level)
{
	char stat[MEMORY_FILE_BYTES];

	memory_text_read(directory, "memory.stat", stat, sizeof(stat));
	/* v1 counts descendant cgroups in separate fields. */
	uint64_t inactive = memory_stat_value(stat, "total_inactive_file")
				    ?: memory_stat_value(stat, "inactive_file");
	uint64_t active = memory_stat_value(stat, "total_active_file")
				  ?: memory_stat_value(stat, "active_file");
	uint64_t kernel = memory_number_read(directory, "memory.kmem.usage_in_bytes");
	uint64_t slab = kernel == UINT64_MAX ? memory_stat_value(stat, "slab_reclaimable") : kernel;
	level->reclaimable = inactive + active / 2;
	level->reclaimable_last = inactive + active + slab;
}

int memory_directory_left(const char *directory, struct memory_left *left)
{
	static const struct limit_files files[] = {
		{"memory.max", "memory.current", "memory.peak"},
		{"memory.high", "memory.current", "memory.peak"},
		{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"},
		{"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes",
		 "memory.memsw.max_usage_in_bytes"},
	};
	struct memory_left least = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, one;
	struct memory_level level = {0};
	int limited = 0;

	reclaimable_read(directory, &level);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (!limit_left(directory, &files[i], level, &one))
			continue;
		least.now = lesser(least.now, one.now);
		least.at_peak = lesser(least.at_peak, one.at_peak);
		/* memory.high slows down, and kills nothing. */
		if (strcmp(files[i].limit, "memory.high") != 0)
			least.last = lesser(least.last, one.last);
		limited = 1;
	}
	if (limited)
		*left = least;
	return limited;
}

static void machine_read(struct headroom_level *level)
{
	level->left.now = memory_machine_read("MemAvailable:");
	level->limited = level->left.now != UINT64_MAX;
	level->left.at_peak = level->left.last = level->left.now;
}

/* Takes ownership of directory. Returns the level's index, or -ENOMEM. */
static int level_of(struct memory_headroom *headroom, char *directory, size_t mount_bytes)
{
	for (size_t i = 0; i < headroom->level_count && directory; i++)
		if (!strcmp(headroom->levels[i].directory, directory)) {
			free(directory);
			return (int)i;
		}
	if (!directory ||
	    ARRAY_GROW(headroom->levels, headroom->level_capacity, headroom->level_count)) {
		free(directory);
		return -ENOMEM;
	}
	struct headroom_level *level = &headroom->levels[headroom->level_count];
	*level = (struct headroom_level){.directory = directory, .mount_bytes = mount_bytes};
	if (headroom->level_count)
		level->limited = memory_directory_left(level->directory, &level->left);
	else
		machine_read(level);
	return (int)headroom->level_count++;
}

int memory_headroom_new(struct memory_headroom **out)
{
	struct memory_headroom *headroom = calloc(1, sizeof(*headroom));

	if (!headroom || level_of(headroom, strdup(MACHINE), 0) < 0) {
		memory_headroom_free(headroom);
		return -ENOMEM;
	}
	*out = headroom;
	return 0;
}

void memory_headroom_free(struct memory_headroom *headroom)
{
	if (!headroom)
		return;
	for (size_t i = 0; i < headroom->level_count; i++)
		free(headroom->levels[i].directory);
	free(headroom->levels);
	free(headroom->processes);
	free(headroom);
}

/* Adds a cgroup and all its visible ancestors. */
static int levels_add(struct memory_headroom *headroom, struct process *process,
		      const struct cgroup_line *line)
{
	size_t mount_bytes, bytes;
	_cleanup_free_ char *directory = cgroup_directory(line, line->path_bytes, &mount_bytes);
	int err = 0;

	bytes = directory ? strlen(directory) : 0;
	while (directory && err >= 0 && bytes >= mount_bytes && bytes) {
		err = level_of(headroom, strndup(directory, bytes), mount_bytes);
		if (err > 0 && headroom->levels[err].limited && process->count <= LEVELS_MAX)
			process->levels[process->count++] = (uint32_t)err;
		while (bytes && directory[--bytes] != '/')
			;
	}
	return err < 0 ? err : 0;
}

static int process_read(struct memory_headroom *headroom, struct process *process)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_line line;
	const char *next;
	int err = process_file_read(process->pid, "cgroup", CGROUP_TEXT_MAX, &text);

	process->levels[process->count++] = 0;
	for (next = err ? "" : (const char *)text.data; !err && cgroup_next(&next, &line);)
		if (memory_line_counts(&line))
			err = levels_add(headroom, process, &line);
	return err;
}

/* The process's index, or the index at which to insert it. */
static size_t process_index(const struct memory_headroom *headroom, pid_t pid)
{
	size_t low = 0, high = headroom->process_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (headroom->processes[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int memory_headroom_take(struct memory_headroom *headroom, pid_t pid, int64_t bytes)
{
	size_t at = process_index(headroom, pid);
	struct process process = {.pid = pid};

	if (at == headroom->process_count || headroom->processes[at].pid != pid) {
		int err = process_read(headroom, &process)
				  ?: ARRAY_GROW(headroom->processes, headroom->process_capacity,
						headroom->process_count);
		if (err)
			return err;
		memmove(&headroom->processes[at + 1], &headroom->processes[at],
			(headroom->process_count - at) * sizeof(*headroom->processes));
		headroom->processes[at] = process;
		headroom->process_count++;
	}
	for (size_t i = 0; i < headroom->processes[at].count; i++)
		headroom->levels[headroom->processes[at].levels[i]].taken += bytes;
	return 0;
}

int memory_headroom_left(const struct memory_headroom *headroom, uint64_t *left)
{
	int limited = 0;

	/* The first level is the machine. */
	for (size_t i = 1; i < headroom->level_count; i++) {
		const struct headroom_level *level = &headroom->levels[i];

		if (level->limited && (!limited || level->left.last < *left))
			*left = level->left.last;
		limited |= level->limited;
	}
	return limited;
}

bool memory_headroom_is_short(const struct memory_headroom *headroom, struct memory_short *out)
{
	for (size_t i = 0; i < headroom->level_count; i++) {
		const struct headroom_level *level = &headroom->levels[i];
		uint64_t taken = level->taken > 0 ? (uint64_t)level->taken : 0;
		const char *name = level->directory + level->mount_bytes;
		size_t bytes = strlen(name), most = sizeof(out->where) - sizeof("the cgroup ");

		if (!taken || !level->limited || taken + taken / 2 <= level->left.at_peak)
			continue;
		out->swings = taken + taken / 2 <= level->left.now;
		out->left = out->swings ? level->left.at_peak : level->left.now;
		out->wanted = taken + taken / 2;
		snprintf(out->where, sizeof(out->where), "%s%s", i ? "the cgroup " : "the machine",
			 !i       ? ""
			 : !bytes ? "/"
				  : name + (bytes > most ? bytes - most : 0));
		return 1;
	}
	return 0;
}
