/* SPDX-License-Identifier: Apache-2.0 */
/* What tracer leaks says of a series. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cmd/time/recording_leaks.h"
#include "recordings.h"

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
	assert_non_null(strstr(
		text, "\n1 line grows over the whole time (95 % interval), and 1 more may:\n"));
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

static uint64_t leaks_only(unsigned int line, unsigned int at)
{
	return line == 1 ? 100 * at : 7;
}

/* Its probes take a share of its CPU time, as busy as it is; 100 MB are left of a limit. */
static void slow(struct world *world, double share, double busy)
{
	for (unsigned int at = 0; at < MOMENTS; at++) {
		struct series_moment *moment = &world->moments[at];

		moment->cpu_ns = (uint64_t)(at * 0.5e9 * busy);
		moment->wait_ns = moment->cpu_ns;
		moment->probes_ns = (uint64_t)((double)moment->cpu_ns * share);
		moment->time.memory_left = 100000000 - 100000ull * at;
	}
}

/* A rate is of an undisturbed target: an interval has room for it, or there is none. */
static void test_slowed(void **state)
{
	struct world world;
	char *text;

	(void)state;
	world_make(&world, leaks_only);
	slow(&world, 0.95, 1);
	text = said(&world, leaks_text);
	assert_null(strstr(text, "/min"));
	assert_non_null(strstr(text, "  a.py:2: +3809 KiB\n"));
	assert_non_null(
		strstr(text, "\nNo rate is known, only what was gained: the probes took 95 %"));
	assert_non_null(strstr(text, "left, and no forecast"));
	free(text);
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"slope\": null"));
	assert_null(strstr(text, "\"slope\": 1"));
	assert_non_null(strstr(text, "\"probes_share\": 0.95"));
	assert_non_null(strstr(text, "\"verdict\": \"grows\""));
	world_end(&world, text);
	/* A fifth of the time: up to 1.25 times as fast, 7.2 MB a minute, and the limit as near. */
	world_make(&world, leaks_only);
	slow(&world, 0.2, 1);
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "  a.py:2: +5859 KiB/min (+5859 KiB to +7324 KiB)\n"));
	assert_non_null(strstr(text, "up to 1.25 times as fast"));
	assert_non_null(strstr(text, "reached in 16 min 1 s (12 min 48 s to 16 min 1 s)"));
	world_end(&world, text);
	/* Most of its CPU time, which is little: it waits most of the time, with and without. */
	world_make(&world, leaks_only);
	slow(&world, 0.9, 0.1);
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "  a.py:2: +5859 KiB/min (+5859 KiB to +6439 KiB)\n"));
	world_end(&world, text);
	/* Nothing is known of the probes. */
	world_make(&world, leaks_only);
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"probes_share\": null"));
	world_end(&world, text);
}

/* The tables are emptied at moment 15. */
static uint64_t emptied(unsigned int line, unsigned int at)
{
	return line == 1 ? 100 * (at < 15 ? at + 40 : at - 15) : 7;
}

/* Rates do not cross the moment at which the tables were emptied. */
static void test_emptied(void **state)
{
	struct world world;
	char *text;

	(void)state;
	world_make(&world, emptied);
	for (unsigned int at = 15; at < MOMENTS; at++)
		world.moments[at].emptied = 1;
	text = said(&world, leaks_text);
	assert_non_null(strstr(text, "  a.py:2: +5859 KiB/min (+5859 KiB to +5859 KiB)\n"));
	assert_non_null(strstr(text, "\nGrowth is that since 20"));
	assert_non_null(strstr(text, "tracer ctl clear"));
	free(text);
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"points\": 25, \"duration\": 24.000, \"since\": 15"));
	world_end(&world, text);
	/* A process that was emptied has ended: nothing begins anew. */
	world_make(&world, leaks_only);
	for (unsigned int at = 0; at < 15; at++)
		world.moments[at].emptied = 1;
	text = said(&world, leaks_json);
	assert_non_null(strstr(text, "\"points\": 40"));
	world_end(&world, text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle),    cmocka_unit_test(test_late),
		cmocka_unit_test(test_unclear), cmocka_unit_test(test_slowed),
		cmocka_unit_test(test_emptied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
