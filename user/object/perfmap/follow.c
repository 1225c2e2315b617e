/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/follow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

#define PIECE_BYTES 65536

int perfmap_follow_new(struct perfmap_follow **out, int fd, int is_jitdump, int inotify)
{
	struct perfmap_follow *follow = calloc(1, sizeof(*follow));
	struct stat st;
	char path[40];

	if (!follow || regular_stat(fd, &st)) {
		int err = follow ? error_errno() : -ENOMEM;

		free(follow);
		close(fd);
		return err;
	}
	follow->fd = fd;
	follow->dirty = 1;
	follow->is_jitdump = is_jitdump;
	follow->device = st.st_dev;
	follow->inode = st.st_ino;
	/* Watches the inode, whatever its current name is. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	follow->watch = inotify < 0 ? -1 : inotify_add_watch(inotify, path, IN_MODIFY);
	*out = follow;
	return 0;
}

void perfmap_follow_free(struct perfmap_follow *follow, int inotify)
{
	if (!follow)
		return;
	if (follow->watch >= 0)
		inotify_rm_watch(inotify, follow->watch);
	close(follow->fd);
	free(follow);
}

struct read_context {
	struct perfmap_process *process;
	uint64_t time_ns, until_ns;
	int mapped_only;
};

static int line_take(void *context, uint64_t start, uint64_t size, const char *name,
		     size_t name_bytes)
{
	struct read_context *to = context;
	const struct perfmap_entry *known = perfmap_table_find(to->process->table, start);
	struct perfmap_entry entry = {.time_ns = to->time_ns, .mapped = to->mapped_only};

	/* The call that wrote this line was recorded: its name is not cut at a line end. Or its
	 * image is in memory. */
	if (known && (known->called || known->origin) && known->start == start &&
	    known->end - known->start == size)
		return 0;
	return perfmap_process_add(to->process, start, size, name, name_bytes, &entry);
}

static int code_take(void *context, const struct jitdump_code *code)
{
	struct read_context *to = context;
	struct jitdump_code past = *code;

	/* Another clock, or a lie. */
	if (past.time_ns > to->time_ns || !past.time_ns)
		past.time_ns = to->time_ns;
	if (past.time_ns > to->until_ns)
		return 0;
	return perfmap_process_jitdump(to->process, &past);
}

static void follow_restart(struct perfmap_follow *follow)
{
	follow->offset = 0;
	follow->tail_bytes = 0;
	if (follow->is_jitdump)
		memset(&follow->jitdump, 0, sizeof(follow->jitdump));
	else
		memset(&follow->text, 0, sizeof(follow->text));
}

/*
 * Whether the file was truncated since the last read, even if it has grown to the same length
 * again.
 */
static bool was_truncated(const struct perfmap_follow *follow)
{
	char now[sizeof(follow->tail)];
	struct stat st;

	if (!fstat(follow->fd, &st) && (uint64_t)st.st_size < follow->offset)
		return 1;
	return follow->tail_bytes &&
	       (pread(follow->fd, now, follow->tail_bytes, follow->offset - follow->tail_bytes) !=
			(ssize_t)follow->tail_bytes ||
		memcmp(now, follow->tail, follow->tail_bytes));
}

static void tail_keep(struct perfmap_follow *follow, const char *piece, size_t bytes)
{
	follow->tail_bytes = bytes < sizeof(follow->tail) ? bytes : sizeof(follow->tail);
	memcpy(follow->tail, piece + bytes - follow->tail_bytes, follow->tail_bytes);
}

int perfmap_follow_read(struct perfmap_follow *follow, struct perfmap_process *process,
			uint64_t limit)
{
	struct read_context context = {.process = process,
				       .time_ns = clock_ns(CLOCK_MONOTONIC),
				       .until_ns = follow->until_ns ?: UINT64_MAX,
				       .mapped_only = follow->mapped_only};
	char piece[PIECE_BYTES];
	ssize_t n = 1;
	int err = 0;

	if (follow->failed || (!follow->dirty && follow->watch >= 0))
		return 0;
	follow->dirty = 0;
	if (was_truncated(follow))
		follow_restart(follow);
	for (uint64_t done = 0; !err && done < limit; done += n) {
		size_t bytes = limit - done < sizeof(piece) ? limit - done : sizeof(piece);

		n = pread(follow->fd, piece, bytes, follow->offset);
		if (n <= 0)
			break;
		if (follow->offset >= PERFMAP_FILE_MAX)
			err = -EFBIG;
		follow->offset += n;
		tail_keep(follow, piece, n);
		if (!err)
			err = follow->is_jitdump ? jitdump_read(&follow->jitdump, piece, n,
								code_take, &context)
						 : perfmap_text_read(&follow->text, piece, n,
								     line_take, &context);
	}
	follow->dirty = n > 0;
	follow->mapped_only &= n > 0;
	if (n < 0 && !err)
		err = error_errno();
	if (err && err != -ENOMEM) {
		follow->failed = err;
		err = 0;
	}
	return err;
}

int perfmap_follow_finish(struct perfmap_follow *follow, struct perfmap_process *process)
{
	if (was_truncated(follow))
		return 0;
	follow->dirty = 1;
	return perfmap_follow_read(follow, process, UINT64_MAX);
}

int perfmap_follow_skip(struct perfmap_follow *follow, struct perfmap_process *process,
			uint64_t start, uint64_t end)
{
	int err = 0;

	follow->dirty = 1;
	if (follow->offset < start)
		err = perfmap_follow_read(follow, process, start - follow->offset);
	if (!err && follow->offset == start && !was_truncated(follow)) {
		follow->offset = end;
		follow->tail_bytes = 0;
	}
	follow->dirty = 1;
	return err;
}
