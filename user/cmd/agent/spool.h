/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of requests that wait to be sent, as files in a folder. A body is there completely or not
 * at all, and stays until it is removed: over restarts, kills and a clock that is set. Files are
 * numbered in the order in which they were made, NUMBER.KIND. The folder is bounded in bytes and in
 * files: the oldest make room for a new one. One process at a time uses it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/buffer.h"

#define SPOOL_KINDS 2u
#define SPOOL_FILES 10000u

struct spool_item {
	uint64_t number, bytes;
	unsigned int kind; /* below SPOOL_KINDS */
};

/* Of the files of one kind. */
struct spool_sum {
	uint64_t files, bytes;
	uint64_t dropped; /* files that made room, since the spool was opened */
};

struct spool {
	int folder; /* -1: not open */
	const char *path;
	uint64_t space;
	struct spool_item *items; /* the oldest first */
	size_t count, capacity;
	uint64_t bytes, next; /* of all; the next number */
	struct spool_sum sums[SPOOL_KINDS];
};

/*
 * Makes the folder if need be, removes what a killed process has left half written, and drops the
 * oldest bodies beyond space. path is borrowed. 0; -EBUSY another process uses it; -ENOTDIR;
 * -ELOOP; -EPERM it is not our user's alone; -errno (error_set).
 */
int spool_open(struct spool *spool, const char *path, uint64_t space);
void spool_close(struct spool *spool);
/*
 * Adds a body. 0; -EFBIG: it is larger than all of the space (it is counted as dropped); -ENOSPC
 * and others: it could not be written (error_set).
 */
int spool_put(struct spool *spool, unsigned int kind, const struct buffer *body);
/* The oldest of a kind; NULL: there is none. Valid until the spool changes. */
const struct spool_item *spool_oldest(const struct spool *spool, unsigned int kind);
/* Reads a body in place of the buffer's content. 0; -ENOENT; -errno. */
int spool_read(const struct spool *spool, const struct spool_item *item, struct buffer *out);
/* Removes a body; of an item of the spool. */
void spool_remove(struct spool *spool, const struct spool_item *item);
