/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "place.h"
#include "recordings.h"
#include "report/recording/record_file.h"
#include "report/recording/series.h"
#include "util/error.h"

#define LINES 30u

/* Line 3 begins at 5, line 4 ends at 5. */
static int64_t counts(unsigned int line, unsigned int at)
{
	if (line == 3)
		return at < 5 ? 0 : 7;
	if (line == 4)
		return at < 5 ? 7 : 0;
	return line + at;
}

static const struct series_opts by_line = {
	.statistics = {.by = GROUP_LINENO}, .layer = -1, .moments = 100};

static void test_figures(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	struct series series;

	assert_int_equal(recording_make(place->path, counts, LINES, 10, &made), 0);
	assert_int_equal(series_read(place->path, &by_line, &series), 0);
	assert_int_equal(series.snapshots, 10);
	assert_int_equal(series.moment_count, 10);
	assert_int_equal(series.line_count, LINES);
	assert_string_equal(series.damage, "");
	for (unsigned int at = 0; at < 10; at++) {
		uint64_t size = 0, count = 0;

		for (size_t i = 0; i < series.line_count; i++) {
			const struct series_line *line = &series.lines[i];
			uint64_t blocks = (uint64_t)counts(line->line - 1, at);

			assert_string_equal(line->filename, "/srv/app/app.py");
			assert_int_equal(line->at[at].count, blocks);
			assert_int_equal(line->at[at].size,
					 blocks * (16 + 16 * ((line->line - 1) % 20)));
			size += line->at[at].size;
			count += blocks;
		}
		assert_int_equal(series.moments[at].total.size, size);
		assert_int_equal(series.moments[at].total.count, count);
		assert_int_equal(series.moments[at].rss_bytes, 1000000 + at * 1000);
		assert_true(series_seconds(&series, at) > at - 0.001 &&
			    series_seconds(&series, at) < at + 0.001);
	}
	series_free(&series);
}

/* A long recording is thinned out; its first and its last snapshot stay. */
static void test_thinned(void **state)
{
	struct place *place = *state;
	struct recording_made made;

	assert_int_equal(recording_make(place->path, counts, 2, 31, &made), 0);
	for (size_t moments = 2; moments <= 33; moments++) {
		struct series_opts opts = by_line;
		struct series series;

		opts.moments = moments;
		assert_int_equal(series_read(place->path, &opts, &series), 0);
		assert_int_equal(series.snapshots, 31);
		assert_int_equal(series.moment_count, moments < 31 ? moments : 31);
		assert_int_equal(series.moments[0].time.index, 0);
		assert_int_equal(series.moments[series.moment_count - 1].time.index, 30);
		for (size_t i = 1; i < series.moment_count; i++) {
			size_t step =
				series.moments[i].time.index - series.moments[i - 1].time.index;

			assert_true(step >= 1 && step <= 30 / (moments - 1) + 1);
		}
		series_free(&series);
	}
}

static void test_cut(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	struct series series;

	assert_int_equal(recording_make(place->path, counts, 5, 4, &made), 0);
	assert_int_equal(truncate(place->path, made.ends[2] + 20), 0);
	assert_int_equal(series_read(place->path, &by_line, &series), 0);
	assert_int_equal(series.moment_count, 3);
	assert_non_null(strstr(series.damage, "not whole"));
	series_free(&series);
	assert_int_equal(truncate(place->path, made.ends[0] - 1), 0);
	assert_int_equal(series_read(place->path, &by_line, &series), -EBADMSG);
	assert_int_equal(truncate(place->path, 0), 0);
	assert_int_equal(series_read(place->path, &by_line, &series), -EBADMSG);
}

/* A record whose checksum is right and whose contents are not: there is no series of nothing. */
static void test_contents(void **state)
{
	struct place *place = *state;
	/* a frame of zstd: its magic number, two bytes, the last block, raw */
	const unsigned char packed[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 2, 0x11, 0, 0, 0xff, 0xff};
	struct record_header record = {.magic = RECORD_MAGIC,
				       .flags = RECORD_WHOLE,
				       .packed = sizeof(packed),
				       .unpacked = 2};
	struct recording_header header = {.version = RECORDING_VERSION};
	struct series series;
	FILE *file;

	record.checksum = (uint32_t)crc32(
		crc32(0, (const void *)&record, offsetof(struct record_header, checksum)), packed,
		sizeof(packed));
	memcpy(header.magic, RECORDING_MAGIC, sizeof(header.magic));
	file = fopen(place->path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(&header, sizeof(header), 1, file), 1);
	assert_int_equal(fwrite(&record, sizeof(record), 1, file), 1);
	assert_int_equal(fwrite(packed, sizeof(packed), 1, file), 1);
	fclose(file);
	assert_int_equal(series_read(place->path, &by_line, &series), -EBADMSG);
	assert_non_null(strstr(error_reason(-EBADMSG), "a snapshot is damaged"));
}

struct swap {
	const char *path, *shorter, *longer; /* `path` is one of both by turns, and always there */
	const char *next;
	_Atomic int ended;
};

static void *swap_run(void *data)
{
	struct swap *swap = data;

	for (int i = 0; !swap->ended; i++) {
		if (link(i % 2 ? swap->shorter : swap->longer, swap->next) ||
		    rename(swap->next, swap->path))
			return swap;
		usleep(200);
	}
	return NULL;
}

/* It is read twice, and may grow in between: another tracer is writing it. */
static void test_growing(void **state)
{
	struct place *place = *state;
	char shorter[PATH_MAX], longer[PATH_MAX], next[PATH_MAX];
	struct swap swap = {
		.path = place->path, .shorter = shorter, .longer = longer, .next = next};
	struct recording_made made;
	struct series series;
	pthread_t thread;
	void *failed;
	size_t most = 0;

	snprintf(shorter, sizeof(shorter), "%s.shorter", place->path);
	snprintf(longer, sizeof(longer), "%s.longer", place->path);
	snprintf(next, sizeof(next), "%s.next", place->path);
	assert_int_equal(recording_make(shorter, counts, 2, 2, &made), 0);
	assert_int_equal(recording_make(longer, counts, 2, 60, &made), 0);
	assert_int_equal(link(shorter, place->path), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap_run, &swap), 0);
	/* On a busy machine the other thread may not have its turn for many reads. */
	for (int i = 0; i < 500 || most < 60; i++) {
		assert_int_equal(series_read(place->path, &by_line, &series), 0);
		assert_true(series.moment_count <= series.snapshots);
		most = series.moment_count > most ? series.moment_count : most;
		series_free(&series);
	}
	swap.ended = 1;
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	unlink(next);
	unlink(shorter);
	unlink(longer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_figures, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_thinned, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_cut, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_contents, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_growing, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
