/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that tracer serve shows over time. It is in memory, packed as in its file, since the
 * server opens no file: it is shown as it was then, even if it grows meanwhile.
 */
#pragma once

#include <stddef.h>

#include "report/recording/span.h"
#include "util/buffer.h"

struct json;

#define SERVE_STOPS 32u

struct serve_recording {
	struct buffer file; /* empty: it is none */
	size_t snapshots;
	struct buffer series; /* what tracer timeline --format json prints of it */
	/* some of the snapshots in that, evenly spread: the first and the last are among them */
	size_t stops[SERVE_STOPS], stop_count;
};

/*
 * Reads it; what is no recording, or no file, stays empty. 0; -errno (error_set) as series_read().
 * serve_recording_free() releases.
 */
int serve_recording_read(const char *path, struct serve_recording *out);
void serve_recording_free(struct serve_recording *recording);
/* The answer about a range of it, from one snapshot to another (report/recording/span.h). */
int serve_range_print(const struct serve_recording *recording, size_t first, size_t last,
		      struct json *json);
/* Passes on the ranges between the stops. As recording_spans_read(). */
int serve_ranges_read(const struct serve_recording *recording, recording_span_fn take,
		      void *context);
