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

struct recording_span {
	size_t count; /* snapshots in it, both ends included */
	struct recording_moment from_at, to_at, peak_at;
	/* peak: the one with the highest total, the first of several, as of recording_load() */
	struct snapshot *from, *to, *peak;
	struct snapshot *young; /* of to: what was allocated in the range; NULL: no ages */
	uint64_t peak_bytes;
};

/*
 * Reads it, from a file that was just opened. first, last: numbers of snapshots. 0; -EINVAL
 * (error_set): it ends before it begins; -ERANGE (error_set): there is no such snapshot; otherwise
 * as recording_load(). recording_span_free() releases.
 */
int recording_span_load(struct infile *file, size_t first, size_t last, struct recording_span *out);
void recording_span_free(struct recording_span *span); /* also valid when zero-initialised */

/*
 * Its figures as one object of JSON (docs/json.md, serve), with at most that many stacks, those
 * with the highest figures. 0, errors of statistics_compute().
 */
int recording_span_json(struct json *json, const struct recording_span *span, size_t stacks_max);
