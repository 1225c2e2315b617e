/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot with a few traces, and the text of its report. */
#pragma once

#include <stdio.h>

#include "report/report.h"
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static inline int setup(void **state)
{
	struct builder builder;

	if (builder_begin(&builder))
		return -1;
	builder.snapshot->meta = (struct snapshot_meta){.pid = 1234,
							.name = "py\033[31m",
							.python_version = 0x030b07f0,
							.traceback_limit = 16,
							.mode = "exact",
							.moment = "running",
							.duration_ns = 12345678901,
							.peak_bytes = 2097152};
	snapshot_add(&builder, FRAMES({"app.py", "f", 12}, {"main.py", "<module>", 3}), 5, 0, 1049,
		     1000);
	snapshot_add(&builder, FRAMES({"b\nad.py", "g", 1}), 1, 0, 10, 1);
	snapshot_add(&builder, FRAMES({"c\xed\xb3\xbf\xff.py", "h", 2}), 1, 0, 5, 1);
	*state = builder_finish(&builder);
	return 0;
}

static inline int teardown(void **state)
{
	snapshot_free(*state);
	return 0;
}

/* The caller frees it. */
static inline char *report(const struct snapshot *snapshot, struct report_opts opts,
			   int (*write)(const struct snapshot *, const struct report_opts *,
					FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(write(snapshot, &opts, out), 0);
	assert_int_equal(fclose(out), 0);
	return text;
}

static inline void contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static inline void lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in:\n%s", part, text);
}
