/* SPDX-License-Identifier: Apache-2.0 */
/* What tracer leaks says of a series. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "recordings.h"
#include "time_answers/leaks.h"

#define MOMENTS 40u
#define LINES   3u

/* Blocks of 1000 bytes of a line at a moment. */
typedef uint64_t (*blocks_fn)(unsigned int line, unsigned int at);

static int64_t one(unsigned int line, unsigned int at)
{
	(void)line;
	(void)at;
	return 1;
}

/* A series of lines a.py:1 to a.py:3, a second between two moments, of 100 s at the last one. */
struct world {
	struct series_moment moments[MOMENTS];
	struct series_figures figures[LINES][MOMENTS];
	struct series_line lines[LINES];
	struct series series;
};

static void world_make(struct world *world, blocks_fn blocks)
{
	*world = (struct world){.series = {.moments = world->moments,
					   .moment_count = MOMENTS,
					   .snapshots = MOMENTS,
					   .lines = world->lines,
					   .line_count = LINES,
					   .allocated_known = 1,
					   .last = recording_state(one, 1, 0)}};
	world->series.last->meta.pid = 4711;
	world->series.last->meta.python_version = 0x030b02f0;
	for (unsigned int line = 0; line < LINES; line++)
		world->lines[line] = (struct series_line){.filename = (char *)"a.py",
							  .function = (char *)"",
							  .line = line + 1,
							  .at = world->figures[line]};
	for (unsigned int at = 0; at < MOMENTS; at++) {
		struct series_moment *moment = &world->moments[at];

		moment->time = (struct recording_moment){.since_ns = at * 1000000000ull,
							 .realtime_ns = RECORDING_BEGIN,
							 .memory_left = UINT64_MAX};
		moment->rss_bytes = 10 << 20;
		for (unsigned int line = 0; line < LINES; line++) {
			struct series_figures *figures = &world->figures[line][at];

			figures->count = figures->allocated_count = blocks(line, at);
			figures->size = figures->allocated_size = 1000 * figures->count;
			moment->total.size += figures->size;
			moment->total.count += figures->count;
			moment->total.allocated_count += figures->count;
		}
		moment->rss_bytes += moment->total.size;
	}
}

static char *said(struct world *world, int (*print)(const void *, FILE *))
{
	struct leaks leaks;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(leaks_find(&world->series, &leaks), 0);
	leaks.name = "x.rec";
	leaks.by = GROUP_LINENO;
	assert_int_equal(print(&leaks, out), 0);
	fclose(out);
	leaks_free(&leaks);
	print_message("%s\n", text);
	return text;
}

static void world_end(struct world *world, char *text)
{
	snapshot_free(world->series.last);
	free(text);
}

static uint64_t nothing(unsigned int line, unsigned int at)
{
	(void)at;
	return line;
}

static void test_idle(void **state)
{
	struct world world;
	char *text;

	(void)state;
	world_make(&world, nothing);
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "\nNothing was allocated in 39.0 s: too short to tell"));
	assert_null(strstr(text, "heap diff"));
	free(text);
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"idle\": true"));
	world_end(&world, text);
	/* It is no idle process whose blocks replace each other. */
	world_make(&world, nothing);
	world.moments[MOMENTS - 1].total.allocated_count += 1000;
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "\nNo line grows over the whole time"));
	world_end(&world, text);
}

/* The first line grows late, the second one all the time. */
static uint64_t late(unsigned int line, unsigned int at)
{
	return line == 0 ? (at < 30 ? 5 : 5 + 100 * (at - 29)) : line == 1 ? 10 * at : 7;
}

static void test_late(void **state)
{
	struct world world;
	char *text;

	(void)state;
	world_make(&world, late);
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "\n1 line grows over the whole time (95 % interval), and 1 more may:\n"));
	assert_non_null(strstr(text, "\n  a.py:2: +586 KiB/min (+586 KiB to +586 KiB)\n"));
	assert_non_null(strstr(text, "\n  a.py:1: +977 KiB since 20"));
	assert_non_null(strstr(text, "now 981 KiB in 1005 blocks"));
	assert_non_null(strstr(text, "\nTotal: 11.7 KiB, then 1369 KiB: "));
	assert_non_null(strstr(text, "; RSS: 10.0 MiB, then 11.3 MiB: "));
	assert_non_null(strstr(text, "tracer heap -p 4711 -o a.dump, "));
	free(text);
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"grows_since\": 29"));
	assert_non_null(strstr(text, "\"total\": {\"first\": 12000, \"last\": 1402000, "));
	world_end(&world, text);
}

/* What may grow is never beside "0 lines grow". */
static uint64_t slows(unsigned int line, unsigned int at)
{
	return line == 2 ? 3 : 1000 * at / (at + 5) + at;
}

static void test_unclear(void **state)
{
	struct world world;
	char *text;

	(void)state;
	world_make(&world, slows);
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "\nNo line surely grows, but 2 may:\n"));
	world_end(&world, text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_unclear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
