/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which frames of a traceback belong to the application, so that a block can be charged to
 * the application's line instead of the library's that allocated it. Only file names matter, so the
 * result does not depend on the machine that reads the snapshot.
 *
 * Without patterns, the application is every file except the standard library and installed
 * packages: lib/pythonX.Y (also lib64 and zip files), site-packages, dist-packages and <frozen
 * ...>; for native code, except the interpreter, shared libraries, /usr/include and sources shipped
 * with a compiler. In a traceback without such a file, native sources count. A cell of a notebook
 * (<ipython-input-1-…>) is like a file. Other code without a file (<string>, <stdin>) counts if the
 * program itself is such code (python3 -c), so that it is the oldest frame; otherwise a library
 * generated it (dataclasses, attrs).
 */
#pragma once

#include "snapshot/snapshot.h"
#include "util/pattern.h"

/* The user's choice. Zero-initialised: off, blocks are charged to their most recent frame. */
struct app {
	int asked;
	struct pattern **patterns; /* owned; files that match one of these are the application */
	size_t count, capacity;
};

/*
 * Adds a shell pattern for the application's files, with the syntax of filters (pattern.h). 0,
 * -ENOMEM.
 */
int app_add(struct app *app, const char *pattern);
void app_free(struct app *app);

/*
 * How strongly a frame indicates the application. In a traceback the frames of the highest rank
 * count.
 */
enum app_rank {
	APP_NOT = 1,
	APP_NATIVE,
	APP_NO_FILE, /* counts as APP_NOT unless it is the oldest frame, see app_run_find() */
	APP_FILE,
};

/* The choice applied to one snapshot; the rank of each file name is cached. */
struct app_run {
	const struct app *app;
	const struct snapshot *snapshot;
	struct pattern **patterns; /* of files that are not the application */
	unsigned char *ranks;      /* by file name; 0: not computed yet. NULL: off */
};

/* app NULL: off. 0, -ENOMEM. */
int app_run_begin(struct app_run *run, const struct app *app, const struct snapshot *snapshot);
/* Also valid after a failed app_run_begin() or on a zero-initialised structure. */
void app_run_end(struct app_run *run);
/* enum app_rank of a frame; -ENOMEM. */
int app_run_rank(struct app_run *run, const struct snapshot_frame *frame);
/*
 * Returns the highest rank in a traceback, and in *first the most recent frame with that rank.
 * APP_NOT: no frame belongs to the application, *first is 0. -ENOMEM.
 */
int app_run_find(struct app_run *run, const struct snapshot_traceback *traceback, uint32_t *first);
