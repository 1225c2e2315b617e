/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native tracebacks as people read them. Snapshots hold whole stacks and whole names; a view of one
 * begins each traceback at the program's own function, and shortens the names of C++ and Rust.
 *
 * Skipped are native frames at the top of a traceback, as long as they belong to a library
 * (library.h) or match a pattern of the user. So are functions of the same file without a name that
 * an allocator's wrapper calls: in a stripped program they are its inner ones. If that would leave
 * no frame, the traceback is shown as it is. Python's frames are never skipped and never shortened.
 */
#pragma once

#include "snapshot/snapshot.h"
#include "util/pattern.h"

/* The user's choice. Zero-initialised: the default. */
struct view_choice {
	int no_skip, full_names;
	struct pattern **wrappers; /* owned; functions that are skipped, too */
	size_t count, capacity;
};

/* Adds a pattern of a function's name, whole or short (pattern.h). 0, -ENOMEM. */
int view_add_wrapper(struct view_choice *view, const char *pattern);
void view_free(struct view_choice *view);

/*
 * A view of a snapshot. It has the same traces and tracebacks, by the same indices, and as many
 * frames at the end of each; it borrows from the snapshot.
 */
struct shown {
	struct snapshot snapshot;
	int is_changed; /* then it owns its frames, tracebacks and strings */
};

/* view NULL: the snapshot as it is. 0, -ENOMEM, -EDQUOT. shown_free() releases. */
int view_apply(const struct view_choice *view, const struct snapshot *snapshot, struct shown *out);
void shown_free(struct shown *shown); /* also valid when zero-initialised */
