/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends snapshots to a recording. What the next snapshot is compared with is kept in a file in
 * memory, so that a process that is forked for each snapshot can append it (session/ctl/saver.h).
 */
#pragma once

#include "report/recording/record_file.h"
#include "snapshot/snapshot.h"

/* Descriptors, all borrowed. */
struct recorder {
	int file;  /* the recording, which is written at `end` */
	int state; /* what the snapshot before was; -1 or an empty file: there is none */
	int next;  /* an empty file: becomes the state of this snapshot */
	uint64_t end;
	uint64_t since_ns, memory_left; /* as in struct record_header */
};

/* Writes the header of a new recording to an empty file. 0, -errno. */
int recorder_begin(int file, uint64_t begin_realtime_ns);
/*
 * Appends the snapshot with one write. 0, -errno (error_set); then the caller cuts the file at
 * `end`, and the state stays as it was.
 */
int recorder_append(const struct recorder *recorder, const struct snapshot *snapshot);
