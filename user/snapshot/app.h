/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which frames of a traceback are the application's, so that a block can be charged to the line of
 * the application that led to it and not to the library's that asked for it. Only file names
 * decide, so that a snapshot tells the same wherever it is read.
 *
 * Without patterns the application is every file but the standard library and what is installed
 * beside it: lib/pythonX.Y (and lib64, and a standard library in a zip file), site-packages,
 * dist-packages, <frozen ...>; of native code the interpreter, shared libraries, /usr/include and
 * the sources that come with a compiler. In a traceback without such a file native sources count;
 * and code of no file (<string>, <stdin>) if the program itself is that (python3 -c), which is then
 * the oldest frame: else a library has made it (dataclasses, attrs).
 */
#ifndef TRACER_SNAPSHOT_APP_H
#define TRACER_SNAPSHOT_APP_H

#include "base/pattern.h"
#include "snapshot/snapshot.h"

/* What is asked for. Zero-initialised: nothing, and blocks stay with their most recent frame. */
struct app {
	int asked;
	struct pattern **mine; /* owned; the application is what matches one of these */
	size_t count, room;
};

/* Adds a shell pattern of the application's files, as those of filters (pattern.h). 0, -ENOMEM. */
int app_add(struct app *app, const char *pattern);
void app_free(struct app *app);

/* How much a frame says of the application: of a traceback those count that say the most. */
enum app_rank {
	APP_NOT = 1,
	APP_NATIVE,
	APP_NO_FILE, /* alone it says as much as APP_NOT, see app_run_find() */
	APP_FILE,
};

/* The question at work on one snapshot: a file name is asked about once. */
struct app_run {
	const struct app *app;
	const struct snapshot *snapshot;
	struct pattern **patterns; /* of what is not the application */
	unsigned char *ranks;      /* by file name; 0: not asked yet. NULL: nothing is asked for */
};

/* app: NULL: nothing is asked for. 0, -ENOMEM. */
int app_run_begin(struct app_run *run, const struct app *app, const struct snapshot *snapshot);
/* Also after a failed app_run_begin(), and of a zero-initialised one. */
void app_run_end(struct app_run *run);
/* enum app_rank of a frame; -ENOMEM. */
int app_run_rank(struct app_run *run, const struct snapshot_frame *frame);
/*
 * The highest rank in a traceback, and in *first the most recent frame that has it. APP_NOT: it has
 * no frame of the application, *first is 0. -ENOMEM.
 */
int app_run_find(struct app_run *run, const struct snapshot_traceback *traceback, uint32_t *first);

#endif
