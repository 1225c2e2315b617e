/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of a recording, from one snapshot to another: what was allocated in it and is alive at
 * its end, what was freed in it, and what was alive at its highest moment; by stack.
 *
 * What is alive of the range is exact if the snapshots have ages (snapshot/ages.h); otherwise it is
 * what each stack has gained, and so it is at least that much. What was freed is what was allocated
 * and is not there more; where it is not counted what was allocated, it is what each stack has
 * lost, at least.
 */
#pragma once

#include "report/recording/recording.h"

struct json;
struct stop;
struct stops;

struct recording_span {
	size_t count; /* snapshots in it, both ends included */
	/* peak: the one with the highest total, the first of several, as of recording_load() */
	struct recording_moment from_at, to_at, peak_at;
	const struct stop *from, *to, *peak;
	struct stops *stops;
};

/* Takes a range, which is borrowed during the call. 0, or an error, which ends the reading. */
typedef int (*recording_span_fn)(const struct recording_span *span, void *context);

/*
 * Reads a file that was just opened, once, and passes on each range between two of the snapshots
 * with these numbers, which ascend: also those that begin and end with the same one; of those with
 * one end, short ones first. The figures of their stacks are in memory. 0; -ERANGE (error_set):
 * there is no such snapshot; what take() returns; otherwise as recording_load().
 */
int recording_spans_read(struct infile *file, const size_t *numbers, size_t count,
			 recording_span_fn take, void *context);

/*
 * Its figures as one object of JSON (docs/json.md, serve), with at most that many stacks, those
 * with the highest figures. 0, errors of recording_snapshot() and statistics_compute().
 */
int recording_span_json(struct json *json, const struct recording_span *span, size_t stacks_max);
