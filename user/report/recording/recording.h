/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a recording (record_file.h), snapshot by snapshot. The file is hostile input: memory is in
 * proportion to what was read of it. What is damaged or missing at the end does not hide what comes
 * before it.
 */
#pragma once

#include "snapshot/snapshot.h"
#include "util/infile.h"

struct recording;

struct recording_moment {
	size_t index;      /* of the snapshot, from 0 */
	uint64_t since_ns; /* since the recording began */
	uint64_t realtime_ns;
	/* as in struct record_header */
	uint64_t memory_left;
};

/* Does the file, of which at least 8 bytes or all are buffered, begin as a recording does? */
int recording_is(const struct infile *file);
/*
 * Begins to read a file at its beginning; it is borrowed until recording_free(). 0; -EBADMSG
 * (error_set): no recording, or of another version; -errno.
 */
int recording_new(struct recording **out, struct infile *file);
void recording_free(struct recording *recording); /* NULL is legal */
/*
 * Advances to the next snapshot that was taken until until_ns (since the beginning). 1 and
 * *moment; 0: there is none; -ENOMEM, -errno.
 */
int recording_next(struct recording *recording, uint64_t until_ns, struct recording_moment *moment);
/*
 * What of the file is not whole, after recording_next() returned 0 or recording_snapshot()
 * -EBADMSG: "" or a text such as "its last 112 bytes are not a whole snapshot". Borrowed.
 */
const char *recording_damage(const struct recording *recording);
/* Sets the error that no snapshot can be read. -EBADMSG. */
int recording_none(const struct recording *recording);
/*
 * The snapshot that was advanced to. 0; -EBADMSG (error_set): it is damaged, and none after it can
 * be read; -EFBIG (error_set); -ENOMEM. Caller frees.
 */
int recording_snapshot(struct recording *recording, struct snapshot **out);

struct recording_bounds {
	size_t count;                        /* snapshots, at least one */
	uint64_t begin_realtime_ns, last_ns; /* last_ns: of the last one, since the beginning */
};
/* 0; -EBADMSG (error_set): no recording, or without a snapshot; -errno, -ENOMEM. */
int recording_bounds(const char *path, struct recording_bounds *out);
/* The same of a file at its beginning, which is read to its end. */
int recording_bounds_of(struct infile *file, struct recording_bounds *out);
