/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/memory_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/cgroup.h"
#include "proc/container/memory_files.h"
#include "proc/container/memory_headroom.h"
#include "proc/process.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define LEVELS_MAX 16            /* nested cgroups whose limits are looked at */
#define NEAR       0.4           /* above that share, what can be reclaimed is subtracted */
#define LIMITS_NS  5000000000ull /* how often limits are read again: they may be changed */
#define MACHINE_NS 100000000ull  /* the machine's memory is read so often, for all watches */

struct watch_level {
	char *directory;
	size_t mount_bytes; /* length of the mount point, a prefix of directory */
	int usage;          /* the file with the bytes used; -1: it has none */
	uint64_t limit;     /* UINT64_MAX: none */
};

struct memory_watch {
	struct watch_level levels[LEVELS_MAX]; /* the process's own first */
	size_t count;
	int events;   /* the file that counts kills; -1: none, they are the machine's */
	int pressure; /* memory.pressure, which is in the v2 hierarchy; -1: none */
	char *path;   /* of the cgroup */
	uint64_t limits_ns, kills;
};

static int file_open(const char *directory, const char *name)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* A file's text from its beginning. */
static const char *text_again(int fd, char *text, size_t capacity)
{
	ssize_t bytes = fd < 0 ? 0 : pread(fd, text, capacity - 1, 0);

	text[bytes > 0 ? bytes : 0] = '\0';
	return text;
}

static void level_add(struct memory_watch *watch, char *directory, size_t mount_bytes)
{
	struct watch_level *level = &watch->levels[watch->count];

	if (!directory || watch->count == LEVELS_MAX) {
		free(directory);
		return;
	}
	*level = (struct watch_level){.directory = directory, .mount_bytes = mount_bytes};
	level->usage = file_open(directory, "memory.current");
	if (level->usage < 0)
		level->usage = file_open(directory, "memory.usage_in_bytes");
	watch->count++;
}

/* The cgroup of a line, and all above it. */
static void levels_add(struct memory_watch *watch, const struct cgroup_line *line)
{
	size_t mount_bytes, bytes;
	_cleanup_free_ char *directory = cgroup_directory(line, line->path_bytes, &mount_bytes);

	bytes = directory ? strlen(directory) : 0;
	while (directory && bytes >= mount_bytes && bytes) {
		level_add(watch, strndup(directory, bytes), mount_bytes);
		while (bytes && directory[--bytes] != '/')
			;
	}
	if (!watch->count)
		return;
	watch->path = strndup(line->path, line->path_bytes);
	watch->events = file_open(watch->levels[0].directory, "memory.events");
	if (watch->events < 0)
		watch->events = file_open(watch->levels[0].directory, "memory.oom_control");
}

/* The root's is the machine's. */
static int pressure_open(const struct cgroup_line *line)
{
	size_t mount_bytes;
	_cleanup_free_ char *directory =
		line->path_bytes > 1 ? cgroup_directory(line, line->path_bytes, &mount_bytes)
				     : NULL;

	return directory ? file_open(directory, "memory.pressure") : -1;
}

static void limits_read(struct memory_watch *watch)
{
	watch->limits_ns = clock_ns(CLOCK_MONOTONIC);
	for (size_t i = 0; i < watch->count; i++) {
		const char *directory = watch->levels[i].directory;
		uint64_t limit = memory_number_read(directory, "memory.max");

		if (limit == UINT64_MAX)
			limit = memory_number_read(directory, "memory.limit_in_bytes");
		watch->levels[i].limit = limit;
	}
}

/* Of the cgroup, all below it included in v2; of the machine if no cgroup counts them. */
static uint64_t kills_read(const struct memory_watch *watch)
{
	char text[MEMORY_FILE_BYTES];

	if (watch->events >= 0)
		return memory_stat_value(text_again(watch->events, text, sizeof(text)), "oom_kill");
	memory_text_read("/proc", "vmstat", text, sizeof(text));
	return memory_stat_value(text, "oom_kill");
}

int memory_watch_open(struct memory_watch **out, pid_t pid)
{
	struct memory_watch *watch = calloc(1, sizeof(*watch));
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_line line;
	int err = watch ? process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text) : -ENOMEM;

	if (err) {
		free(watch);
		return err;
	}
	watch->events = watch->pressure = -1;
	for (const char *next = (const char *)text.data;
	     !watch->count && cgroup_next(&next, &line);)
		if (memory_line_counts(&line))
			levels_add(watch, &line);
	for (const char *next = (const char *)text.data;
	     watch->pressure < 0 && cgroup_next(&next, &line);)
		if (!line.controllers_bytes)
			watch->pressure = pressure_open(&line);
	limits_read(watch);
	watch->kills = kills_read(watch);
	*out = watch;
	return 0;
}

void memory_watch_close(struct memory_watch *watch)
{
	if (!watch)
		return;
	for (size_t i = 0; i < watch->count; i++) {
		descriptor_close(watch->levels[i].usage);
		free(watch->levels[i].directory);
	}
	descriptor_close(watch->events);
	descriptor_close(watch->pressure);
	free(watch->path);
	free(watch);
}

/* The machine as a limit. One reading serves all watches for a moment. */
static void machine_read(struct memory_state *out)
{
	static uint64_t read_ns, total, available;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	if (!read_ns || now_ns - read_ns >= MACHINE_NS) {
		total = memory_machine_read("MemTotal:");
		available = memory_machine_read("MemAvailable:");
		total = available == UINT64_MAX ? 0 : total;
		read_ns = now_ns;
	}
	out->limit = total;
	out->used = total > available ? total - available : 0;
	snprintf(out->where, sizeof(out->where), "the machine");
}

/* What it uses of its limit. 0: it has none, or is gone. */
static int level_read(const struct watch_level *level, struct memory_state *out)
{
	struct memory_left left;
	char text[32];

	if (level->limit == UINT64_MAX || !level->limit)
		return 0;
	text_again(level->usage, text, sizeof(text));
	if (!text[0])
		return 0;
	out->limit = level->limit;
	out->used = strtoull(text, NULL, 10);
	if ((double)out->used > NEAR * (double)out->limit &&
	    memory_directory_left(level->directory, &left) && left.last <= out->limit)
		out->used = out->limit - left.last;
	return 1;
}

static double share_of(const struct memory_state *state)
{
	return state->limit ? (double)state->used / (double)state->limit : 0;
}

/* Of "some avg10=1.23 avg60=…": percent. */
static double pressure_of(const char *text)
{
	static const char begin[] = "some avg10=";

	return strncmp(text, begin, strlen(begin)) ? 0 : strtod(text + strlen(begin), NULL) / 100;
}

double memory_watch_pressure(const struct memory_watch *watch, bool machine)
{
	char text[256];
	double pressure = watch ? pressure_of(text_again(watch->pressure, text, sizeof(text))) : 0;

	if (!machine || !memory_text_read("/proc/pressure", "memory", text, sizeof(text)))
		return pressure;
	return fmax(pressure, pressure_of(text));
}

double memory_watch_machine(void)
{
	struct memory_state state;

	machine_read(&state);
	return share_of(&state);
}

void memory_watch_read(struct memory_watch *watch, bool machine, struct memory_state *out)
{
	struct memory_state one = {0};

	if (clock_ns(CLOCK_MONOTONIC) - watch->limits_ns >= LIMITS_NS)
		limits_read(watch);
	*out = (struct memory_state){0};
	if (machine)
		machine_read(out);
	for (size_t i = 0; i < watch->count; i++) {
		const struct watch_level *level = &watch->levels[i];
		const char *name = level->directory + level->mount_bytes;
		size_t bytes = strlen(name), most = sizeof(one.where) - sizeof("the cgroup ");

		if (!level_read(level, &one) || share_of(&one) <= share_of(out))
			continue;
		snprintf(one.where, sizeof(one.where), "the cgroup %s",
			 !bytes ? "/" : name + (bytes > most ? bytes - most : 0));
		*out = one;
	}
	out->share = share_of(out);
	uint64_t kills = kills_read(watch);
	out->kills = kills > watch->kills ? kills - watch->kills : 0;
}

int memory_watch_fd(const struct memory_watch *watch)
{
	return watch->events;
}

const char *memory_watch_cgroup(const struct memory_watch *watch)
{
	return watch->path ?: "";
}

const char *memory_watch_directory(const struct memory_watch *watch)
{
	return watch->count ? watch->levels[0].directory : NULL;
}
