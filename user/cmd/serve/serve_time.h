/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that tracer serve shows over time. It is in memory, packed as in its file, since the
 * server opens no file: it is shown as it was then, even if it grows meanwhile.
 */
#pragma once

#include <stddef.h>

#include "util/buffer.h"

struct json;

struct serve_recording {
	struct buffer file; /* empty: it is none */
	size_t snapshots;
	struct buffer series; /* what tracer timeline --format json prints of it */
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
