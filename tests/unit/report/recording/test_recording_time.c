/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "place.h"
#include "recordings.h"
#include "report/recording/recording_load.h"
#include "report/tracemalloc/snapshot_file.h"

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
	const struct recording_choice choice = {.time = time, .layer = -1};
	struct snapshot *snapshot;
	uint64_t sum = 0;

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	int err = snapshot_load_at(name, &choice, note, &snapshot);
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

/* The range in seconds after the beginning, as "from until"; "": -EINVAL, "-": -ERANGE. */
static const char *range(const char *text)
{
	static char said[64];
	uint64_t from, until;
	int err = recording_range_resolve(text, BEGIN, LAST, &from, &until);

	if (err)
		return err == -ERANGE ? "-" : "";
	snprintf(said, sizeof(said), until == UINT64_MAX ? "%llu end" : "%llu %llu",
		 (unsigned long long)(from / SECOND), (unsigned long long)(until / SECOND));
	return said;
}

static void test_ranges(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	assert_true(recording_is_range("1..2") && recording_is_range(".."));
	assert_false(recording_is_range("1.5") || recording_is_range("end"));
	assert_string_equal(range("1m..2m"), "60 120");
	assert_string_equal(range(".."), "0 end");
	assert_string_equal(range("start..end"), "0 end");
	assert_string_equal(range("1.5m.."), "90 end");
	assert_string_equal(range("..1.5m"), "0 90");
	assert_string_equal(range("-10m..-5m"), "1200 1500");
	assert_string_equal(range("23:55..00:10:30"), "300 1230");
	assert_string_equal(range("2026-11-24T00:00..2026-11-24T00:10"), "600 1200");
	/* It may begin before the recording does, but not end there. */
	assert_string_equal(range("-1h..1m"), "0 60");
	assert_string_equal(range("2026-11-23T00:00..2026-11-24T00:00"), "0 600");
	assert_string_equal(range("2026-11-22T00:00..2026-11-23T00:00"), "-");
	assert_string_equal(range("5m"), "");
	assert_string_equal(range("2m..1m"), "");
	assert_string_equal(range("x..1m"), "");
	assert_string_equal(range("1m..x"), "");
	assert_string_equal(range("1m...2m"), "");
	assert_string_equal(range("1m..2m..3m"), "");
	assert_string_equal(range("000000000000000000000000000000000000000000000000000001.."), "");
}

/* 2 blocks at first, a peak at 3 s and a higher one at 7 s, of which the next snapshot is equal. */
static int64_t peaks(unsigned int line, unsigned int at)
{
	static const int64_t held[] = {2, 4, 5, 9, 3, 3, 11, 20, 20, 6};

	(void)line;
	return held[at];
}

static void test_peak_of_range(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	char note[RECORDING_NOTE_BYTES];
	struct snapshot *snapshot;
	uint32_t pid = 4242, other = 4243;
	struct recording_choice choice = {
		.time = "1..5", .layer = -1, .pids = &pid, .pid_count = 1};

	assert_int_equal(recording_make(place->path, peaks, 1, 10, &made), 0);
	assert_int_equal(blocks(place->path, "", "0..5"), 9);
	assert_int_equal(blocks(place->path, "", "..2.5s"), 5);
	assert_int_equal(blocks(place->path, "", "3..3"), 9);
	assert_int_equal(blocks(place->path, "", "4s.."), 20);
	assert_int_equal(blocks(place->path, "", "end.."), 6);
	assert_int_equal(blocks(place->path, "@-1..", NULL), 20);
	assert_int_equal(blocks(place->path, "@..", NULL), 20);
	assert_int_equal(blocks(place->path, "", "1h.."), (uint64_t)-ERANGE);
	assert_int_equal(blocks(place->path, "", "3.1s..3.9s"), (uint64_t)-ERANGE);
	assert_int_equal(blocks(place->path, "@5..3", NULL), (uint64_t)-EINVAL);
	/* Of several that hold as much, the first; the note says of how many. */
	choice.time = "..";
	assert_int_equal(snapshot_load_at(place->path, &choice, note, &snapshot), 0);
	assert_non_null(strstr(note, "snapshot 8 of the recording"));
	assert_non_null(strstr(note, "with the highest total of the 10 in the range"));
	snapshot_free(snapshot);
	/* What is compared is the total of one layer, of some processes: here nothing, so that the
	   first one is as good as any. */
	choice.layer = EVENT_LAYER_NATIVE;
	assert_int_equal(snapshot_load_at(place->path, &choice, note, &snapshot), 0);
	assert_non_null(strstr(note, "snapshot 1 of the recording"));
	snapshot_free(snapshot);
	choice.layer = -1;
	choice.pids = &other;
	assert_int_equal(snapshot_load_at(place->path, &choice, note, &snapshot), 0);
	assert_non_null(strstr(note, "snapshot 1 of the recording"));
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test_setup_teardown(test_peak_of_range, place_setup, place_teardown),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_refused),
		cmocka_unit_test_setup_teardown(test_loaded_moments, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
