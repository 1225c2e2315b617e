/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording of a session (report/recording/recorder.h): a snapshot at an interval, and a last
 * one. The file appears under its name with its first snapshot, and then grows in place.
 */
#pragma once

#include <stdint.h>

#include "session/ctl/saver.h"
#include "session/session.h"
#include "util/outfile.h"

/* Zero-initialise; then no function does anything. */
struct record {
	struct session *session; /* borrowed; NULL: nothing is recorded */
	struct outfile *file;    /* owned, until its first snapshot; then NULL */
	const char *name;        /* borrowed */
	struct saver *saver;     /* appends the current snapshot */
	struct recorder recorder;
	uint64_t every_ns, begin_ns, next_ns;
	int failed; /* the last attempt */
};

/* Takes ownership of the file. 0; -errno after a message. */
int record_begin(struct record *record, struct session *session, struct outfile *file,
		 const char *name, uint64_t every_ns);
/* Begins and ends snapshots that are due; between two drains. */
void record_step(struct record *record);
/* Readable when the current snapshot is appended; -1: there is none. */
int record_poll_fd(const struct record *record);
/* Waits until the current snapshot is appended. */
void record_wait(struct record *record);
/* Appends the last snapshot. 0; -errno after a message. */
int record_last(struct record *record, const struct snapshot *snapshot);
void record_end(struct record *record);
