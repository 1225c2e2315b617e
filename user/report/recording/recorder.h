/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends snapshots to a recording. The profile that the next one is packed against is kept in a
 * file in memory, so that a process that is forked for each snapshot can append it
 * (session/ctl/saver.h).
 */
#pragma once

#include "report/recording/record_file.h"
#include "snapshot/snapshot.h"

/* Descriptors, borrowed. */
struct recorder {
	int file; /* the recording, which is written at `end` */
	int last; /* a file in memory, recorder_last and the profile before; empty: there is none */
	uint64_t end;
	uint64_t since_ns, memory_left; /* as in struct record_header */
};

struct recorder_last {
	uint64_t run;  /* bytes of the profiles from the last whole record on */
	uint64_t seed; /* of pprof_write_unpacked() */
};

/* Writes the header of a new recording to an empty file. 0, -errno. */
int recorder_begin(int file, uint64_t begin_realtime_ns);
/*
 * Appends the snapshot with one write. 0, -errno (error_set); then, or if it was killed, the caller
 * cuts the recording at `end` and empties `last`.
 */
int recorder_append(const struct recorder *recorder, const struct snapshot *snapshot);
