/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moments of a recording as users name them, and the snapshot of one.
 *
 *     start, end       the first snapshot, the last one
 *     90, 90s, 1h30m   after the beginning of the recording; units d, h, m, s
 *     -5m              before its last snapshot
 *     02:10, 02:10:30  the last such time of day in the recording, local time
 *     2026-11-24T02:10 local time; also with seconds
 *
 * T1..T2, a range of two of them, means the snapshot with the highest total of those from T1 until
 * T2. T1 may be missing (start), and T2 (end).
 */
#pragma once

#include "report/recording/recording.h"

struct recording_time {
	enum {
		RECORDING_START,
		RECORDING_END,
		RECORDING_SINCE,      /* ns since the beginning */
		RECORDING_BEFORE_END, /* ns before the last snapshot */
		RECORDING_DAYTIME,    /* ns since midnight, local time */
		RECORDING_REALTIME    /* ns */
	} kind;
	uint64_t ns;
};

/* 0; -EINVAL (error_set). */
int recording_time_parse(const char *text, struct recording_time *out);
/*
 * The time since the recording's beginning. last: the time of its last snapshot. 0; -ERANGE
 * (error_set): before the beginning.
 */
int recording_time_resolve(const struct recording_time *time, uint64_t begin_realtime_ns,
			   uint64_t last_ns, uint64_t *since_ns);

#define RECORDING_RANGE ".."

/* Is the text a range, right or wrong, and not a time? */
int recording_is_range(const char *text);
/*
 * A range. Ends that no snapshot can have are those of the recording. 0; -EINVAL: no range, or it
 * ends before it begins (error_set); -ERANGE: it ends before the recording begins (error_set).
 */
int recording_range_resolve(const char *text, uint64_t begin_realtime_ns, uint64_t last_ns,
			    uint64_t *from_ns, uint64_t *until_ns);

/* Which snapshot of a recording. Zero-initialised with layer -1: the last one. */
struct recording_choice {
	const char *time; /* NULL: the last one */
	/* of a range: whose totals are compared */
	int layer;            /* enum event_layer; -1: of each process the first one */
	const uint32_t *pids; /* the processes; borrowed; none: all */
	size_t pid_count;
};

/*
 * Takes the snapshot that was advanced to in place of *best, if its chosen processes hold more than
 * *most bytes, or *best is NULL. One that lacks a process weighs nothing. 1: taken; 0: not; errors
 * of statistics_compute().
 */
int recording_heavier(struct recording *recording, const struct recording_choice *choice,
		      uint64_t *most, struct snapshot **best);

#define RECORDING_NOTE_BYTES 448

/*
 * The last snapshot at or before a time, or the one with the highest total in a range (the first of
 * several), of a file that was just opened at path. note: which one it is, and what of the file is
 * not whole; for users. 0; -EINVAL: no time; -ERANGE: before the first snapshot, or no snapshot is
 * in the range; otherwise as recording_new(), recording_next(), recording_snapshot() and
 * statistics_compute() (error_set). Caller frees.
 */
int recording_load(struct infile *file, const char *path, const struct recording_choice *choice,
		   char note[RECORDING_NOTE_BYTES], struct snapshot **out);

/* "1 h 2 min 3 s", "2.5 s". Returns text. */
#define RECORDING_DURATION_BYTES 48
char *recording_duration_text(char text[RECORDING_DURATION_BYTES], uint64_t ns);
/* "2026-11-24 02:10:03", local time. Returns text. */
char *recording_clock_text(char text[RECORDING_DURATION_BYTES], uint64_t realtime_ns);
