/* SPDX-License-Identifier: Apache-2.0 */
/* Inlined frames in profiles: lines of one location, as pprof has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "place.h"
#include "report/pprof/pprof.h"
#include "report/pprof/pprof_format.h"
#include "report/tracemalloc/snapshot_file.h"
#include "snapshot/builder.h"
#include "snapshot/inlined.h"

/* pattern: a frame for each character, 'i' for an inlined one; its function's name is letter. */
static void traceback_add(struct builder *builder, const char *pattern, char letter)
{
	struct snapshot_frame frames[EVENT_MAX_FRAMES] = {0};
	struct strings *strings = builder->snapshot->strings;
	uint32_t nframe = (uint32_t)strlen(pattern);
	struct snapshot_trace trace = {.bytes = 8, .count = 1};

	for (uint32_t i = 0; i < nframe; i++) {
		frames[i].line = i + 1;
		frames[i].inlined = pattern[i] == 'i';
		assert_int_equal(strings_intern(strings, "a.c", 3, &frames[i].filename), 0);
		assert_int_equal(strings_intern(strings, &letter, 1, &frames[i].function), 0);
	}
	assert_int_equal(builder_traceback(builder, frames, nframe, nframe, &trace.traceback), 0);
	assert_int_equal(builder_trace(builder, &trace), 0);
}

/* What is read back of these tracebacks. */
static struct snapshot *written(const struct place *place, const char *const patterns[],
				size_t count)
{
	struct builder builder;
	struct snapshot *snapshot, *back;
	struct outfile *file;

	assert_int_equal(builder_begin(&builder), 0);
	strcpy(builder.snapshot->meta.mode, "exact");
	for (size_t i = 0; i < count; i++)
		traceback_add(&builder, patterns[i], 'f');
	snapshot = builder_finish(&builder);
	assert_int_equal(outfile_open(&file, place->path, OUTFILE_ANY), 0);
	assert_int_equal(pprof_write(snapshot, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	snapshot_free(snapshot);
	assert_int_equal(snapshot_load(place->path, &back), 0);
	assert_int_equal(back->traceback_count, count);
	return back;
}

static void expect(const struct snapshot *snapshot, size_t index, const char *pattern)
{
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[index];

	assert_int_equal(traceback->nframe, strlen(pattern));
	for (uint32_t i = 0; i < traceback->nframe; i++) {
		const struct snapshot_frame *frame = &snapshot->frames[traceback->first + i];

		assert_int_equal(frame->inlined, pattern[i] == 'i');
		assert_string_equal(strings_get(snapshot->strings, frame->function), "f");
	}
}

/* The same functions and lines, inlined into different ones. */
static const char *const patterns[] = {"oiioo", "ooooo", "iiooo", "iio", "ioo", "o", "iiiio"};
#define PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

static void round_trip(void **state)
{
	struct snapshot *back = written(*state, patterns, PATTERNS);

	for (size_t i = 0; i < PATTERNS; i++)
		expect(back, i, patterns[i]);
	assert_int_equal(back->frames[back->tracebacks[3].first + 2].line, 3);
	snapshot_free(back);
}

/* A location has a limited number of lines. All frames are kept; one is not marked any more. */
static void long_run(void **state)
{
	char run[PPROF_LINES_MAX + 20] = "", *const runs[] = {run};
	struct snapshot *back;

	memset(run, 'i', sizeof(run) - 2);
	run[sizeof(run) - 2] = 'o';
	back = written(*state, (const char *const *)runs, 1);
	run[PPROF_LINES_MAX - 1] = 'o';
	expect(back, 0, run);
	snapshot_free(back);
}

/* A traceback that was cut within inlined frames ends with one that is not marked. */
static void cut_within(void **state)
{
	static const char *const cut[] = {"oii"};
	struct snapshot *back = written(*state, cut, 1);

	expect(back, 0, "oio");
	snapshot_free(back);
}

static void dropped(void **state)
{
	struct snapshot *back = written(*state, patterns, PATTERNS);

	snapshot_inlined_drop(back);
	expect(back, 0, "ooo");
	expect(back, 1, "ooooo");
	expect(back, 2, "ooo");
	expect(back, 6, "o");
	assert_int_equal(back->tracebacks[0].total, 3);
	assert_int_equal(back->frames[back->tracebacks[2].first].line, 3);
	snapshot_free(back);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
	const struct CMUnitTest tests[] = {TEST(round_trip), TEST(long_run), TEST(cut_within),
					   TEST(dropped)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
