/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "pickle/snapshot_file.h"
#include "place.h"
#include "recording/recording_load.h"
#include "recordings.h"

#define SECOND RECORDING_SECOND
/* 2026-11-23T23:50:00Z; the recording lasts for 30 minutes. */
#define BEGIN (1795477800ull * SECOND)
#define LAST  (1800 * SECOND)

/* Seconds after the beginning, or -errno. */
static int64_t since(const char *text)
{
	struct recording_time time;
	uint64_t ns;
	int err = recording_time_parse(text, &time);

	if (!err)
		err = recording_time_resolve(&time, BEGIN, LAST, &ns);
	return err ? err : ns == UINT64_MAX ? INT64_MAX : (int64_t)(ns / SECOND);
}

static void test_times(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	assert_int_equal(since("start"), 0);
	assert_int_equal(since("end"), INT64_MAX);
	assert_int_equal(since("90"), 90);
	assert_int_equal(since("90s"), 90);
	assert_int_equal(since("1h1m1s"), 3661);
	assert_int_equal(since("1.5m"), 90);
	assert_int_equal(since("-5m"), 1500);
	assert_int_equal(since("-31m"), -ERANGE);
	assert_int_equal(since("23:55"), 300);
	assert_int_equal(since("00:10:30"), 1230);
	assert_int_equal(since("12:00"), -ERANGE);
	assert_int_equal(since("2026-11-24T00:00"), 600);
	assert_int_equal(since("2026-11-24 00:00:01"), 601);
	assert_int_equal(since("2026-11-23T00:00"), -ERANGE);
	/* Not the recording's clock, but the reader's. */
	setenv("TZ", "UTC-2", 1);
	tzset();
	assert_int_equal(since("01:55"), 300);
	assert_int_equal(since("2026-11-24T02:00"), 600);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {"",
					    "x",
					    "5x",
					    "-",
					    "1h-5m",
					    "24:00",
					    "10:60",
					    "10:5x",
					    "1e9d",
					    "nan",
					    "1..5",
					    "2026-1-1",
					    "s",
					    "5 s",
					    "0x10",
					    "inf",
					    "2026-11-24T02:00:00x"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(since(texts[i]), -EINVAL);
}

static int64_t grows(unsigned int line, unsigned int at)
{
	return (int64_t)(line + at);
}

/* The blocks of the snapshot that the name means. */
static uint64_t blocks(const char *path, const char *suffix, const char *time)
{
	char name[128], note[RECORDING_NOTE_BYTES];
	struct snapshot *snapshot;
	uint64_t sum = 0;

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	int err = snapshot_load_at(name, time, note, &snapshot);
	if (err)
		return (uint64_t)err;
	for (size_t i = 0; i < snapshot->trace_count; i++)
		sum += snapshot->traces[i].count;
	snapshot_free(snapshot);
	assert_non_null(strstr(note, "of the recording"));
	return sum;
}

static void test_loaded_moments(void **state)
{
	struct place *place = *state;
	struct recording_made made;

	assert_int_equal(recording_make(place->path, grows, 1, 10, &made), 0);
	assert_int_equal(blocks(place->path, "", NULL), 9);
	assert_int_equal(blocks(place->path, "", "end"), 9);
	assert_int_equal(blocks(place->path, "", "4.5s"), 4);
	assert_int_equal(blocks(place->path, "@4", NULL), 4);
	assert_int_equal(blocks(place->path, "@-2", NULL), 7);
	assert_int_equal(blocks(place->path, "@1h", NULL), 9);
	assert_int_equal(blocks(place->path, "@-1h", NULL), (uint64_t)-ERANGE);
	assert_int_equal(blocks(place->path, "@later", NULL), (uint64_t)-EINVAL);
	assert_int_equal(blocks(place->path, "x@4", NULL), (uint64_t)-ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_refused),
		cmocka_unit_test_setup_teardown(test_loaded_moments, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
