/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks are split by what earlier windows have shown, and by which windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "windowed/newest.h"

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

/* Walks are rare: likenesses stand for the last seconds, not for all since the walk before. */
static void test_rare_walks(void **state)
{
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
	/* 125 windows fit into 5 s: a block that lived for all of it counts as often. */
	assert_true(newest_inclusion(&trial.windows, &newest, 50, 60 * S) * 125 ==
		    newest.like_count);
	assert_int_equal(newest_until(&trial.windows, &newest, 50, 60 * S), 55 * S);
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
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
