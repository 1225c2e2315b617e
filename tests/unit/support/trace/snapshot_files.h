/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots by way of a file, and their reports as CSV. Included after cmocka.h. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/pprof/pprof.h"
#include "report/report.h"
#include "report/tracemalloc/snapshot_file.h"
#include "util/outfile.h"

/* The snapshot, written to a file and read again. The caller's to snapshot_free(). */
static inline struct snapshot *snapshot_through_file(const struct snapshot *snapshot)
{
	char path[] = "/tmp/tracer-test-XXXXXX";
	struct snapshot *back;
	struct outfile *file;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(pprof_write(snapshot, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_int_equal(snapshot_load(path, &back), 0);
	unlink(path);
	return back;
}

static inline void check_report(const struct snapshot *snapshot, const struct report_opts *opts,
				const char *expected)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(report_csv(snapshot, opts, out), 0);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}
