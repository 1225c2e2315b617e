/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/serve_time.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cmd/time/timeline_text.h"
#include "util/error.h"
#include "util/infile.h"
#include "util/sorted.h"

#define POINTS     240u /* as many as a chart can show apart */
#define LINES      20u
#define STACKS_MAX 20000u

/* All of the file, if it is a recording. 0, -errno. */
static int file_read(const char *path, struct buffer *out)
{
	struct infile file;
	struct stat st;
	int err;

	/* A pipe has been read by now. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	err = infile_open(&file, path);
	if (err)
		return err;
	err = infile_fill(&file, sizeof(uint64_t));
	if (!err && recording_is(&file))
		err = infile_fill(&file, (size_t)st.st_size)
			      ?: buffer_append(out, file.data, file.end);
	infile_close(&file);
	return err;
}

static struct infile recording_file(const struct serve_recording *recording)
{
	return infile_memory(recording->file.data, recording->file.size);
}

static void stops_choose(const struct series *series, struct serve_recording *recording)
{
	size_t last = series->moment_count - 1;

	recording->stop_count = lesser(series->moment_count, SERVE_STOPS);
	for (size_t i = 0; i < recording->stop_count; i++) {
		size_t at = i ? last * i / (recording->stop_count - 1) : 0;

		recording->stops[i] = series->moments[at].time.index;
	}
}

static int series_make(struct serve_recording *recording)
{
	const struct view_choice view = {0};
	const struct series_opts opts = {
		.statistics = {.by = GROUP_LINENO}, .view = &view, .layer = -1, .moments = POINTS};
	struct infile files[] = {recording_file(recording), recording_file(recording)};
	struct series series;
	const struct timeline timeline = {.series = &series, .by = GROUP_LINENO, .top = LINES};
	char *text = NULL;
	size_t bytes = 0;
	int err = series_read_files(&files[0], &files[1], &opts, &series);

	if (err)
		return err;
	FILE *out = open_memstream(&text, &bytes);
	err = out ? timeline_json(&timeline, out) : -ENOMEM;
	if (out && fclose(out) && !err)
		err = -ENOMEM;
	recording->series = (struct buffer){(unsigned char *)text, bytes, bytes};
	recording->snapshots = series.snapshots;
	stops_choose(&series, recording);
	series_free(&series);
	return err;
}

int serve_recording_read(const char *path, struct serve_recording *out)
{
	*out = (struct serve_recording){0};
	int err = file_read(path, &out->file);

	if (!err && out->file.size)
		err = series_make(out);
	if (err)
		serve_recording_free(out);
	return err;
}

void serve_recording_free(struct serve_recording *recording)
{
	buffer_free(&recording->file);
	buffer_free(&recording->series);
}

/* The range that is asked for, of those that are passed on. */
struct range_asked {
	size_t first, last;
	struct json *json;
};

static int range_print(const struct recording_span *span, void *context)
{
	const struct range_asked *asked = context;

	if (span->from_at.index != asked->first || span->to_at.index != asked->last)
		return 0;
	return recording_span_json(asked->json, span, STACKS_MAX);
}

int serve_range_print(const struct serve_recording *recording, size_t first, size_t last,
		      struct json *json)
{
	struct infile file = recording_file(recording);
	struct range_asked asked = {first, last, json};
	const size_t ends[] = {first, last};

	if (first > last)
		return error_set(-EINVAL, "the range ends before it begins");
	return recording_spans_read(&file, ends, first == last ? 1 : 2, range_print, &asked);
}

int serve_ranges_read(const struct serve_recording *recording, recording_span_fn take,
		      void *context)
{
	struct infile file = recording_file(recording);

	return recording_spans_read(&file, recording->stops, recording->stop_count, take, context);
}
