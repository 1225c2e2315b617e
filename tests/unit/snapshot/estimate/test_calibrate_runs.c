/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of 40 ms in each second over a minute of programs whose blocks are known: 200 runs each,
 * with windows at other moments. Are the estimates right, and do 95 % intervals contain the truth?
 * The programs include those that such a sample is likely to get wrong. All random numbers come
 * from fixed seeds, so each run of the test gives the same result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi/events.h"
#include "sanitized.h"
#include "trace/capture.h"
#include "util/id_map.h"
#include "window_runs.h"

#define RUNS     (SANITIZED ? 40 : 200) /* with sanitizers one takes several times as long */
#define MINUTE   60.0
#define CAPTURES "tests/golden/"

/* As the session runs them: a walk now and then, and a last window that ends at the last walk. */
static const struct run_opts windows = {
	.window = 0.04, .period = 1, .speed = 1, .cohort = 5, .last = 1};
/* A busy program does a fifth as much while it is traced. */
static const struct run_opts slow_windows = {
	.window = 0.04, .period = 1, .speed = 0.2, .cohort = 5, .last = 1};

static double gap(uint64_t *seed, double rate)
{
	return -log(1 - random_unit(seed)) / rate;
}

/* Allocations at a rate, at independent moments. */
static void steady_add(struct stream *stream, uint64_t *seed, double from, double to, double rate,
		       double life, uint32_t line, uint32_t type)
{
	for (double at = from + gap(seed, rate); at < to; at += gap(seed, rate))
		stream_add(stream, at, life, line, type);
}

static struct runs judge(struct stream *stream, const struct run_opts *opts)
{
	struct runs runs = runs_make(stream, *opts, RUNS);

	print_message("intervals of %.1f of %.1f lines: %.1f %% right; errors %.1f %% and %.1f %%; "
		      "%.1f %% unseen\n",
		      runs.intervals, runs.lines, 100 * runs.covered, 100 * runs.worst_5,
		      100 * runs.worst_1, 100 * runs.unseen);
	free(stream->births);
	return runs;
}

static void covered_check(const struct runs *runs, double most)
{
	assert_true(runs->covered >= 0.90);
	assert_true(SANITIZED || runs->covered <= most); /* fewer runs show no more */
	assert_true(runs->false_blocks <= 0.03);
}

static void test_steady(void **state)
{
	static const double rates[] = {500, 300, 200, 100, 50, 50, 30, 20, 20, 10};
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 1;
	(void)state;

	for (uint32_t line = 0; line < 10; line++)
		steady_add(&stream, &seed, -MINUTE, MINUTE, rates[line], NEVER, line, line % 3);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 0.98);
	assert_true(runs.worst_5 <= 0.10);
	assert_true(runs.worst_1 <= 0.25);
	assert_true(fabs(runs.bias) < 0.01);
	assert_true(runs.unseen < 0.001);
	/* Blocks older than the trace are of the same lines. */
	assert_true(runs.old_right > 0.95);
}

/* Strings of a few lengths, each mostly of one line: a dozen windows tell them apart. */
static void test_lengths(void **state)
{
	static const double rates[] = {800, 400, 300, 200, 140, 100, 60};
	static const uint32_t lengths[] = {0, 1, 3, 4, 6, 0, 2};
	struct stream stream = {.end = MINUTE};
	struct run_opts few = {.window = 0.04, .period = 5, .speed = 1, .lengths = 3};
	uint64_t seed = 12;
	(void)state;

	for (uint32_t line = 0; line < 7; line++)
		steady_add(&stream, &seed, 0, MINUTE, rates[line], NEVER, line, lengths[line]);
	struct runs runs = judge(&stream, &few);
	covered_check(&runs, 1);
	assert_true(runs.worst_5 <= 0.05);
	assert_true(runs.worst_1 <= 0.25);
}

/* The same if a line works for a part of each second only: no length is its own. */
static void test_lengths_in_step(void **state)
{
	struct stream stream = {.end = MINUTE};
	struct run_opts few = {.window = 0.04, .period = 4, .speed = 1, .lengths = 3};
	uint64_t seed = 13;
	(void)state;

	for (int i = 0; i < 60; i++) {
		steady_add(&stream, &seed, i, i + 0.1, 1000, NEVER, 0, 0);
		steady_add(&stream, &seed, i + 0.3, i + 0.35, 1000, NEVER, 2, 1);
	}
	steady_add(&stream, &seed, 0, MINUTE, 500, NEVER, 1, 0);
	steady_add(&stream, &seed, 0, MINUTE, 500, NEVER, 3, 1);
	steady_add(&stream, &seed, 0, MINUTE, 200, NEVER, 4, 2);
	struct runs runs = judge(&stream, &few);
	covered_check(&runs, 0.98);
}

/* A server: each request allocates from 20 to 200 blocks at once and keeps a fifth of them. */
static void requests_make(struct stream *stream)
{
	uint64_t seed = 2;

	for (double at = gap(&seed, 50) - MINUTE; at < MINUTE; at += gap(&seed, 50)) {
		uint32_t kind = (uint32_t)(random_unit(&seed) * 4);

		for (uint32_t i = 0; i < 20 + 60 * kind; i++)
			stream_add(stream, at + i * 2e-5, random_unit(&seed) < 0.2 ? NEVER : 0.01,
				   kind * 3 + i % 3, i % 3);
	}
}

static void test_requests(void **state)
{
	struct stream stream = {.end = MINUTE};
	(void)state;

	requests_make(&stream);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 0.98);
	assert_true(runs.old_right > 0.9);
}

static void test_requests_slow(void **state)
{
	struct stream stream = {.end = MINUTE};
	(void)state;

	requests_make(&stream);
	struct runs runs = judge(&stream, &slow_windows);
	covered_check(&runs, 0.98);
	assert_true(runs.unseen < 0.01);
}

/* A line that keeps nothing for long, and one that leaks, of one type and size. */
static void test_churn(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 3;
	(void)state;

	steady_add(&stream, &seed, 0, MINUTE, 2000, 0.3, 0, 0);
	steady_add(&stream, &seed, 0, MINUTE, 40, NEVER, 1, 0);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
	assert_true(runs.worst_5 <= 0.10);
	assert_true(runs.intervals == runs.lines);
}

/* Without a window at the walk, blocks that live 300 ms are hardly seen: the test can fail. */
static void test_churn_unhelped(void **state)
{
	struct stream stream = {.end = MINUTE};
	struct run_opts opts = windows;
	uint64_t seed = 3;
	(void)state;

	steady_add(&stream, &seed, 0, MINUTE, 2000, 0.3, 0, 0);
	steady_add(&stream, &seed, 0, MINUTE, 40, NEVER, 1, 0);
	opts.last = 0;
	struct runs runs = judge(&stream, &opts);
	assert_true(runs.covered < 0.9);
}

/* Two lines are given the same address in turn, and either keeps it until the other's turn. */
static void test_reuse(void **state)
{
	struct stream stream = {.end = MINUTE};
	(void)state;

	for (uint32_t address = 0; address < 200; address++) {
		uint64_t seed = 1000 + address * 100000ull;
		uint32_t line = 0;

		for (double at = 0, next; at < MINUTE; at = next, line = !line) {
			next = at + gap(&seed, line ? 4 : 2);
			stream_add(&stream, at, next - at, line, 0);
		}
	}
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
}

static void test_bursts(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 4;
	(void)state;

	steady_add(&stream, &seed, 20, 20.3, 50000, NEVER, 1, 0);
	steady_add(&stream, &seed, 0, MINUTE, 200, NEVER, 0, 0);
	steady_add(&stream, &seed, 0, MINUTE, 400, NEVER, 2, 1);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
	/* Two thirds of the runs miss the burst, and say so instead of giving it to line 0. */
	assert_true(runs.unseen > 0.1);
	assert_true(fabs(runs.bias) < 0.05);
	/* Nor do the others get less for it. */
	assert_true(runs.worst_5 <= 0.10);
}

/* A burst that is too small for its stratum to show that windows have missed it. */
static void test_small_burst(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 11;
	(void)state;

	steady_add(&stream, &seed, 20, 20.1, 6000, NEVER, 1, 0);
	steady_add(&stream, &seed, 0, MINUTE, 400, NEVER, 0, 0);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
}

static void test_start_up(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 5;
	(void)state;

	steady_add(&stream, &seed, 0, 1, 12000, NEVER, 1, 0);
	steady_add(&stream, &seed, 0, MINUTE, 200, NEVER, 0, 0);
	steady_add(&stream, &seed, 0, MINUTE, 400, NEVER, 2, 1);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
	assert_true(runs.worst_5 <= 0.03);
	assert_true(runs.unseen < 0.01);
}

/* Work with the period of the windows, and with twice that. */
static void test_in_step(void **state)
{
	struct stream once = {.end = MINUTE}, twice = {.end = MINUTE};
	struct runs runs;
	uint64_t seed = 6;
	(void)state;

	for (int i = 0; i < 60; i++) {
		steady_add(&once, &seed, i, i + 0.1, 3000, NEVER, 0, 0);
		steady_add(&once, &seed, i + 0.1, i + 1, 300, NEVER, 1, 0);
		steady_add(&twice, &seed, i, i + 0.5, 600, NEVER, (uint32_t)i % 2, 0);
		steady_add(&twice, &seed, i + 0.5, i + 1, 600, NEVER, 2, 0);
	}
	runs = judge(&once, &windows);
	covered_check(&runs, 0.98);
	assert_true(fabs(runs.bias) < 0.03);
	runs = judge(&twice, &windows);
	covered_check(&runs, 0.98);
	assert_true(fabs(runs.bias) < 0.03);
}

/* No line can be known; their sum is, and each estimate's interval says so. */
static void test_many_lines(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 7;
	struct run run;
	double sum = 0;
	uint32_t rows = 0, covered = 0;
	(void)state;

	for (uint32_t i = 0; i < 100000; i++)
		stream_add(&stream, random_unit(&seed) * MINUTE, NEVER, i % 10000, 0);
	struct run_opts opts = windows;
	opts.seed = 1;
	run_make(&stream, &opts, &run);
	for (uint32_t i = 0; i < stream.lines; i++) {
		const struct line_figures *line = &run.lines[i];

		sum += line->estimate;
		rows += line->estimate > 0;
		covered += line->estimate > 0 &&
			   fabs(line->estimate - line->truth) <= 1.96 * line->error;
	}
	assert_true(fabs(sum + run.result.unseen.new_blocks - 100000) < 1e-3);
	assert_true(rows > 3000 && covered >= rows * 0.9);
	run_free(&run);
	free(stream.births);
}

/* A line whose blocks live 50 ms, beside one that leaks the same. */
static void test_short_lived(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 8;
	(void)state;

	steady_add(&stream, &seed, 0, MINUTE, 4000, 0.05, 0, 0);
	steady_add(&stream, &seed, 0, MINUTE, 40, NEVER, 1, 0);
	steady_add(&stream, &seed, 0, MINUTE, 100, NEVER, 2, 1);
	struct runs runs = judge(&stream, &windows);
	covered_check(&runs, 1);
	assert_true(runs.worst_5 <= 0.10);
	assert_true(runs.worst_1 <= 0.25);
}

/* 300 types of a hundred blocks, most of which few windows show. */
static void test_types(void **state)
{
	struct stream stream = {.end = MINUTE};
	uint64_t seed = 9;
	(void)state;

	for (uint32_t type = 0; type < 300; type++)
		steady_add(&stream, &seed, 0, MINUTE, 0.2 + 3 * random_unit(&seed), NEVER,
			   type % 60, type);
	struct runs runs = judge(&stream, &slow_windows);
	covered_check(&runs, 0.98);
	assert_true(fabs(runs.bias) < 0.05);
	assert_true(runs.unseen < 0.01);
}

/* Captured streams: which block was allocated by which stack, and when it was freed. */
struct captured {
	struct stream blocks; /* times are numbers of records */
	struct id_map lines, live;
	uint64_t records;
};

static int captured_record(const void *record, size_t size, void *context)
{
	const struct event_header *header = record;
	const struct event_alloc *alloc = record;
	struct captured *captured = context;
	(void)size;

	if (header->type == EVENT_ALLOC && alloc->bytes && alloc->bytes <= EVENT_SMALL_BYTES) {
		uint32_t line = id_map_find(&captured->lines, alloc->stack_id);

		if (line == ID_MAP_NONE) {
			line = (uint32_t)captured->lines.count;
			assert_int_equal(id_map_put(&captured->lines, alloc->stack_id, line), 0);
		}
		assert_int_equal(id_map_put(&captured->live, alloc->address,
					    (uint32_t)captured->blocks.count),
				 0);
		/* Sizes would nearly tell the lines apart: all blocks are of one stratum. */
		stream_add(&captured->blocks, (double)captured->records, NEVER, line, 0);
	} else if (header->type == EVENT_FREE) {
		const struct event_free *freed = record;
		uint32_t block = id_map_find(&captured->live, freed->address);

		if (block != ID_MAP_NONE)
			captured->blocks.births[block].death = (double)captured->records;
	}
	captured->records++;
	return 0;
}

/* Adds the program of a capture, run again and again, at a rate; each run takes 0.2 s. */
static void captured_add(struct stream *stream, const char *path, double rate)
{
	struct captured captured = {0};
	uint32_t line = stream->lines;
	uint64_t seed = line + 10;
	size_t records;

	assert_int_equal(capture_read(path, captured_record, &captured, &records), 0);
	assert_true(captured.blocks.count > 500);
	double step = 0.2 / (double)captured.records;
	for (double at = gap(&seed, rate); at < MINUTE; at += gap(&seed, rate))
		for (size_t i = 0; i < captured.blocks.count; i++) {
			const struct birth *birth = &captured.blocks.births[i];

			stream_add(stream, at + birth->at * step,
				   birth->death < NEVER ? (birth->death - birth->at) * step : NEVER,
				   line + birth->line, birth->type);
		}
	id_map_free(&captured.lines);
	id_map_free(&captured.live);
	free(captured.blocks.births);
}

static void test_captured(void **state)
{
	struct stream stream = {.end = MINUTE};
	struct run_opts opts = windows;
	(void)state;

	captured_add(&stream, CAPTURES "threads-3.13-n4.cap", 1);
	captured_add(&stream, CAPTURES "threads-3.10-n4.cap", 2);
	captured_add(&stream, CAPTURES "golden-3.11-n1.cap", 4);
	captured_add(&stream, CAPTURES "golden-3.13-n1.cap", 3);
	opts.spread = 5;
	struct runs runs = judge(&stream, &opts);
	covered_check(&runs, 0.98);
	assert_true(runs.lines >= 4);
	assert_true(fabs(runs.bias) < 0.05);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steady),         cmocka_unit_test(test_requests),
		cmocka_unit_test(test_requests_slow),  cmocka_unit_test(test_churn),
		cmocka_unit_test(test_churn_unhelped), cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_bursts),         cmocka_unit_test(test_start_up),
		cmocka_unit_test(test_in_step),        cmocka_unit_test(test_many_lines),
		cmocka_unit_test(test_short_lived),    cmocka_unit_test(test_types),
		cmocka_unit_test(test_captured),       cmocka_unit_test(test_small_burst),
		cmocka_unit_test(test_lengths),        cmocka_unit_test(test_lengths_in_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
