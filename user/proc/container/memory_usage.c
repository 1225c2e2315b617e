/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/memory_usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/container/cgroup.h"
#include "proc/container/memory_files.h"
#include "proc/process.h"
#include "util/sorted.h"

/* The lowest limit of a directory and those above it, up to the mount point. */
static uint64_t limit_find(char *directory, size_t mount_bytes)
{
	size_t bytes = strlen(directory);
	uint64_t limit = UINT64_MAX;

	while (bytes >= mount_bytes && bytes) {
		directory[bytes] = '\0';
		limit = lesser(limit, memory_number_read(directory, "memory.max"));
		limit = lesser(limit, memory_number_read(directory, "memory.limit_in_bytes"));
		while (bytes && directory[--bytes] != '/')
			;
	}
	return limit;
}

/* 0 if the directory has no account, as the root of v2. */
static int directory_read(const char *directory, struct memory_usage *out)
{
	char stat[MEMORY_FILE_BYTES];

	out->used = memory_number_read(directory, "memory.current");
	if (out->used == UINT64_MAX)
		out->used = memory_number_read(directory, "memory.usage_in_bytes");
	if (out->used == UINT64_MAX)
		return 0;
	memory_text_read(directory, "memory.stat", stat, sizeof(stat));
	out->anonymous = memory_stat_value(stat, "total_rss") ?: memory_stat_value(stat, "anon");
	out->file = memory_stat_value(stat, "total_cache") ?: memory_stat_value(stat, "file");
	out->kernel = memory_number_read(directory, "memory.kmem.usage_in_bytes");
	if (out->kernel == UINT64_MAX)
		out->kernel = memory_stat_value(stat, "kernel");
	return 1;
}

static int line_read(const struct cgroup_line *line, struct memory_usage *out)
{
	size_t mount_bytes, most = sizeof(out->path) - 1, cut;
	char *directory = cgroup_directory(line, line->path_bytes, &mount_bytes);
	int found = directory && directory_read(directory, out);

	if (found) {
		out->limit = limit_find(directory, mount_bytes);
		cut = line->path_bytes > most ? line->path_bytes - most : 0;
		snprintf(out->path, sizeof(out->path), "%.*s", (int)(line->path_bytes - cut),
			 line->path + cut);
	}
	free(directory);
	return found;
}

int memory_usage_read(pid_t pid, struct memory_usage *out)
{
	struct memory_usage usage = {0};
	struct buffer text = {0};
	struct cgroup_line line;
	int err = process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text), found = 0;

	for (const char *next = err ? "" : (const char *)text.data;
	     !err && !found && cgroup_next(&next, &line);)
		found = memory_line_counts(&line) && line_read(&line, &usage);
	buffer_free(&text);
	if (found)
		*out = usage;
	return err ?: (found ? 0 : -ENOENT);
}
