/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf knows addresses, a snapshot {file, function, line}. Each distinct frame gets a slot in the
 * image, and thus an address. Slots are sorted by file, function and line, so that the slots of a
 * function are contiguous (one symbol), and so are the functions of a file (one entry of the line
 * table).
 */
#pragma once

#include "snapshot/snapshot.h"

struct perf_frames {
	const struct strings *strings; /* the snapshot's */
	struct snapshot_frame *frames; /* by slot */
	uint32_t count;
	uint32_t *slots; /* slots, by index in the snapshot's frames */
};

/* 0, -ENOMEM. Borrows the snapshot's strings; perf_frames_free() releases. */
int perf_frames_new(struct perf_frames *out, const struct snapshot *snapshot);
void perf_frames_free(struct perf_frames *frames);

/* The end of the run of slots that have the same function as slot `first`. */
uint32_t perf_frames_function_end(const struct perf_frames *frames, uint32_t first);

struct buffer;
/*
 * Appends a name without NUL as ASCII, encoded like Python's "backslashreplace"; control characters
 * and the character `also` (0: none) are replaced in the same way. perf 6.12 loses the lines of all
 * frames if addr2line prints one name that is not ASCII. An empty name is written as "<unknown>". A
 * name longer than PERF_NAME_MAX is cut and ends in "...", because perf has 16 bits for the length
 * of a name. 0, -ENOMEM.
 */
#define PERF_NAME_MAX 16384u
int perf_name_append(struct buffer *out, const char *name, char also);
