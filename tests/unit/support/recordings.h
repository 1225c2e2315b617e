/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings for tests: a program with many lines, of which some grow. */
#ifndef TEST_RECORDINGS_H
#define TEST_RECORDINGS_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "report/recording/recorder.h"
#include "snapshots.h"

#define RECORDING_SECOND 1000000000ull
#define RECORDING_BEGIN  1700000000000000000ull
#define RECORDING_FRAMES 12u

/* What is recorded: blocks of line i of app.py at snapshot `at`. Below 1: none. */
typedef int64_t (*recording_count_fn)(unsigned int line, unsigned int at);

static inline struct snapshot *recording_state(recording_count_fn count, unsigned int lines,
					       unsigned int at)
{
	struct frame_text frames[RECORDING_FRAMES + 1];
	struct builder builder;
	char names[RECORDING_FRAMES][32];

	if (builder_begin(&builder))
		return NULL;
	builder.snapshot->meta.traceback_limit = 16;
	builder.snapshot->meta.pid = 4242;
	strcpy(builder.snapshot->meta.mode, "exact");
	strcpy(builder.snapshot->meta.name, "python3");
	builder.snapshot->meta.rss_bytes = 1000000 + at * 1000;
	builder.snapshot->meta.taken_realtime_ns = RECORDING_BEGIN + at * RECORDING_SECOND;
	builder.snapshot->meta.duration_ns = at * RECORDING_SECOND;
	memset(frames, 0, sizeof(frames));
	for (unsigned int line = 0; line < lines; line++) {
		int64_t blocks = count(line, at);

		for (unsigned int i = 0; i < RECORDING_FRAMES; i++) {
			snprintf(names[i], sizeof(names[i]), "function_%u", line % (50 * i + 1));
			frames[i] = (struct frame_text){i ? "/srv/app/lib.py" : "/srv/app/app.py",
							names[i], i ? line % (97 * i) : line + 1};
		}
		if (blocks > 0 && snapshot_add(&builder, frames, RECORDING_FRAMES, 0,
					       16 + 16 * (line % 20), (uint64_t)blocks)) {
			builder_abort(&builder);
			return NULL;
		}
	}
	return builder_finish(&builder);
}

/* Where each snapshot of a recording ends. */
struct recording_made {
	off_t ends[64];
	unsigned int count;
};

/* Appends snapshot `at` to a recording. last: as in struct recorder. 0, -1. */
static inline int recording_add(int file, int last, recording_count_fn blocks, unsigned int lines,
				unsigned int at)
{
	struct snapshot *snapshot = recording_state(blocks, lines, at);
	const struct recorder recorder = {.file = file,
					  .last = last,
					  .end = (uint64_t)lseek(file, 0, SEEK_END),
					  .since_ns = at * RECORDING_SECOND,
					  .memory_left = UINT64_MAX};
	int err = snapshot ? recorder_append(&recorder, snapshot) : -1;

	snapshot_free(snapshot);
	return err;
}

/* Records `count` snapshots, one a second, into the file at path. 0, -1. */
static inline int recording_make(const char *path, recording_count_fn blocks, unsigned int lines,
				 unsigned int count, struct recording_made *made)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600),
	    last = memfd_create("last", MFD_CLOEXEC), err;

	err = file < 0 || last < 0 ? -1 : recorder_begin(file, RECORDING_BEGIN);
	made->count = count;
	for (unsigned int at = 0; !err && at < count; at++) {
		err = recording_add(file, last, blocks, lines, at);
		made->ends[at] = lseek(file, 0, SEEK_END);
	}
	close(last);
	close(file);
	return err;
}

#endif
