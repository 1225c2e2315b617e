/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks are split by what earlier windows have shown, and by which windows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/estimate/newest.h"

#define MS      1000000ull
#define S       1000000000ull
#define WINDOWS 60

struct trial {
	struct trace_window items[WINDOWS];
	uint64_t cohorts_ns[COHORT_MAX + 1];
	struct trace_windows windows;
};

/* A window of 40 ms at the beginning of each second, and walks at 0, 20 and 60 s. */
static void trial_begin(struct trial *trial)
{
	*trial = (struct trial){
		.cohorts_ns = {[COHORT_FIRST + 1] = 20 * S, [COHORT_FIRST + 2] = 60 * S}};
	for (uint64_t i = 0; i < WINDOWS; i++)
		trial->items[i] = (struct trace_window){
			.start_ns = i * S, .end_ns = i * S + 40 * MS, .length_ns = 40 * MS};
	trial->windows = (struct trace_windows){
		.items = trial->items,
		.count = WINDOWS,
		.cohorts_ns = trial->cohorts_ns,
		.cohort = COHORT_FIRST + 2,
	};
}

static double times(const struct trial *trial, const struct newest *newest, uint64_t made_ns,
		    uint64_t died_ns)
{
	const struct lifetime life = {made_ns, died_ns};

	return newest_times(&trial->windows, newest, 50, &life);
}

/* Walks are rare: donors stand for the last seconds, not for all since the walk before. */
static void test_rare_walks(void **state)
{
	const struct lifetime life = {0, 60 * S};
	struct newest newest = {0};
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	newest_find(&trial.windows, &newest);
	assert_int_equal(newest.cohort, COHORT_FIRST + 1);
	assert_int_equal(newest.walk_ns, 60 * S);
	assert_int_equal(newest.from_ns, 55 * S);
	/* Those that were over at 55 s. */
	assert_int_equal(newest.like_end, 55);
	assert_int_equal(newest.like_count, 24);
	assert_int_equal(newest.like_ns, 24 * S);
	/* 125 windows fit into 5 s: a block that lived for all of it counts as often. */
	assert_true(times(&trial, &newest, 0, 60 * S) == 125);
	assert_true(newest_inclusion(&trial.windows, &newest, 50, &life) * 125 == 24);
	assert_int_equal(newest_until(&trial.windows, &newest, 50, 60 * S), 55 * S);
	/* One that lived for 120 ms: windows show 40 of these. Another one did not for as long. */
	assert_true(times(&trial, &newest, 50 * S + 20 * MS, 50 * S + 140 * MS) == 3);
	assert_true(times(&trial, &newest, 50 * S + 30 * MS, 50 * S + 60 * MS) == 1);
	assert_true(times(&trial, &newest, 50 * S + 39 * MS, 50 * S + 40 * MS) == 1);
	/* It is not known when it was made: 20 ms before the end. */
	assert_true(times(&trial, &newest, 0, 50 * S + 140 * MS) == 3);
}

/* A window shortly after another one stands for little time. */
static void test_near(void **state)
{
	const struct lifetime life = {0};
	struct newest newest = {0};
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	trial.items[50].start_ns -= 800 * MS;
	trial.items[50].end_ns -= 800 * MS;
	newest_find(&trial.windows, &newest);
	assert_int_equal(newest.like_ns, 24 * S);
	/* 0.2 s, and 1.8 s. Each block died at the end of its window. */
	assert_true(newest_inclusion(&trial.windows, &newest, 50, &life) == 120);
	assert_true(fabs(newest_inclusion(&trial.windows, &newest, 51, &life) * 1.8 - 24) < 1e-9);
}

/* Windows of up to half of the time for which donors stand tell how long blocks live. */
static void test_long_windows(void **state)
{
	struct newest newest = {0};
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	for (size_t i = 0; i < WINDOWS; i++) {
		trial.items[i].end_ns = trial.items[i].start_ns + 300 * MS;
		trial.items[i].length_ns = 300 * MS;
	}
	trial.items[50].start_ns -= 2400 * MS;
	trial.items[50].length_ns += 2400 * MS;
	newest_find(&trial.windows, &newest);
	assert_int_equal(newest.like_count, 23);
	assert_true(newest_is_like(&trial.windows, &newest, 49));
	assert_false(newest_is_like(&trial.windows, &newest, 50));
}

/* Without windows that can tell, the cohort begins before the last window. */
static void test_none(void **state)
{
	struct newest newest = {0};
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	for (size_t i = 0; i < WINDOWS; i++)
		trial.items[i].start_ns += 59 * S, trial.items[i].end_ns += 59 * S;
	newest_find(&trial.windows, &newest);
	assert_int_equal(newest.like_count, 0);
	assert_int_equal(newest.from_ns, trial.cohorts_ns[newest.cohort]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rare_walks),
		cmocka_unit_test(test_near),
		cmocka_unit_test(test_long_windows),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
