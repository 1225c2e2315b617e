/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/events.h"
#include "place.h"
#include "trace/capture.h"
#include "util/outfile.h"

#define RECORDS 100000u

static int count_record(const void *record, size_t size, void *context)
{
	const struct event_alloc *event = record;
	uint64_t *next = context;

	assert_int_equal((uintptr_t)record % 8, 0);
	assert_int_equal(size, sizeof(*event));
	assert_int_equal(event->address, (*next)++);
	return event->bytes ? -ECANCELED : 0;
}

static void capture_write(const char *path, uint32_t records, uint64_t stop_at)
{
	struct outfile *file;

	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(capture_begin(file), 0);
	for (uint32_t i = 0; i < records; i++) {
		struct event_alloc event = {.header = {.type = EVENT_ALLOC, .size = sizeof(event)},
					    .address = i,
					    .bytes = i == stop_at};
		assert_int_equal(capture_record(file, &event, sizeof(event)), 0);
	}
	assert_int_equal(outfile_commit(file), 0);
}

static void test_round_trip(void **state)
{
	struct place *place = *state;
	uint64_t next = 0;
	size_t records;

	capture_write(place->path, RECORDS, UINT64_MAX); /* several windows of the reader */
	assert_int_equal(capture_read(place->path, count_record, &next, &records), 0);
	assert_int_equal(records, RECORDS);
	assert_int_equal(next, RECORDS);
}

static void test_stop(void **state)
{
	struct place *place = *state;
	uint64_t next = 0;
	size_t records;

	capture_write(place->path, 10, 3);
	assert_int_equal(capture_read(place->path, count_record, &next, &records), -ECANCELED);
	assert_int_equal(records, 3);
}

static void test_cut_short(void **state)
{
	struct place *place = *state;
	struct stat stat_buf;
	uint64_t next = 0;
	size_t records;

	capture_write(place->path, 10, UINT64_MAX);
	assert_int_equal(stat(place->path, &stat_buf), 0);
	for (int cut = 1; cut < (int)sizeof(struct event_alloc); cut += 9) {
		next = 0;
		assert_int_equal(truncate(place->path, stat_buf.st_size - cut), 0);
		assert_int_equal(capture_read(place->path, count_record, &next, &records),
				 -ENODATA);
		assert_int_equal(records, 9);
	}
	assert_int_equal(
		truncate(place->path, stat_buf.st_size - (off_t)sizeof(struct event_alloc)), 0);
	next = 0;
	assert_int_equal(capture_read(place->path, count_record, &next, &records), 0);
	assert_int_equal(truncate(place->path, 15), 0);
	assert_int_equal(capture_read(place->path, count_record, &next, &records), -EBADMSG);
}

static void bytes_check(const char *path, size_t at, uint32_t value, int expected)
{
	uint64_t next = 0;
	size_t records;
	FILE *file;

	capture_write(path, 2, UINT64_MAX);
	file = fopen(path, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
	assert_int_equal(fwrite(&value, sizeof(value), 1, file), 1);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(capture_read(path, count_record, &next, &records), expected);
	assert_int_equal(records, at > 16 && expected == -EBADMSG);
}

static void test_corrupt(void **state)
{
	struct place *place = *state;
	const size_t second_size =
		16 + sizeof(struct event_alloc) + offsetof(struct event_header, size);

	bytes_check(place->path, 0, 0, -EBADMSG);
	bytes_check(place->path, 8, 2, -EBADMSG);
	bytes_check(place->path, second_size, 0, -EBADMSG);
	bytes_check(place->path, second_size, 25, -EBADMSG);
	bytes_check(place->path, second_size, (1u << 20) + 8, -EBADMSG);
}

static void test_absent(void **state)
{
	struct place *place = *state;
	size_t records;

	assert_int_equal(capture_read(place->path, count_record, NULL, &records), -ENOENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_round_trip), TEST(test_stop),   TEST(test_cut_short),
		TEST(test_corrupt),    TEST(test_absent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
