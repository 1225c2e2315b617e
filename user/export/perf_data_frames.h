/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf knows addresses, a snapshot {file, function, line}: each distinct frame gets a place, and by
 * its place an address. Places are in the order of file, function and line, so that a function's
 * places are a run (one symbol) and a file's functions are, too (one entry of the line table).
 */
#ifndef TRACER_EXPORT_PERF_DATA_FRAMES_H
#define TRACER_EXPORT_PERF_DATA_FRAMES_H

#include "snapshot/snapshot.h"

struct perf_frames {
	const struct strings *strings; /* the snapshot's */
	struct snapshot_frame *frames; /* by place */
	uint32_t count;
	uint32_t *places; /* by index in the snapshot's frames */
};

/* 0, -ENOMEM. Borrows the snapshot's strings; perf_frames_free() releases. */
int perf_frames_new(struct perf_frames *out, const struct snapshot *snapshot);
void perf_frames_free(struct perf_frames *frames);

/* The end of the run of places of the same function as that of first. */
uint32_t perf_frames_function_end(const struct perf_frames *frames, uint32_t first);

struct buffer;
/*
 * Appends a name, without NUL, in the ASCII that Python's "backslashreplace" makes of it; control
 * characters and the character also (0: none) are replaced in the same way. perf 6.12 loses the
 * lines of all frames when addr2line tells it one name that is not ASCII. "<unknown>" stands for an
 * empty name; what is longer than PERF_NAME_MAX is cut and ends in "...", as perf counts the length
 * of names in 16 bits. 0, -ENOMEM.
 */
#define PERF_NAME_MAX 16384u
int perf_name_append(struct buffer *out, const char *name, char also);

#endif
