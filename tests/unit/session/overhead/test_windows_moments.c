/* SPDX-License-Identifier: Apache-2.0 */
/* When windows begin, with simulated targets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ranges.h"
#include "windows_trial.h"

/* Moments are spread: no phase of a period of one second is preferred. */
static void test_random(void **state)
{
	const struct target target = {1, 70 * MS, 20 * MS, 1, 0};
	unsigned int phases[10] = {0};
	static struct run run;
	(void)state;

	run = (struct run){.windows = {.on_ns = 40 * MS, .off_ns = 960 * MS}, .now_ns = S};
	assert_int_equal(run_until(&run, &target, 10000 * S), 0);
	assert_int_equal(run.count, RUNS);
	for (size_t i = 0; i < run.count; i++) {
		assert_int_equal(run.at[i].length_ns, 40 * MS);
		phases[run.at[i].start_ns / (100 * MS) % 10]++;
	}
	for (size_t i = 0; i < 10; i++)
		assert_uint_in_range(phases[i], RUNS / 10 * 8 / 10, RUNS / 10 * 12 / 10);
	assert_uint_in_range(length_sum(&run) * 1000 / run.now_ns, 39, 41);
}

/*
 * The estimate of the part of the time in which there is work, relative to the truth: each window
 * stands for the time since the one before.
 */
static double work_found(const struct run *run)
{
	const struct work *work = &run->work;
	double found = 0, all = 0;

	for (size_t i = 1; i < run->count; i++) {
		const struct windows_next *at = &run->at[i], *before = at - 1;
		double span = (double)(at->start_ns + at->length_ns - before->start_ns -
				       before->length_ns);

		found += span * (double)work_in(work, at->start_ns, at->length_ns) /
			 (double)at->length_ns;
		all += span;
	}
	return found / all * (double)work->period_ns / (double)work->work_ns;
}

static const uint64_t periods_s[] = {1, 2, 3, 5, 10};
#define PERIODS (sizeof(periods_s) / sizeof(periods_s[0]))

/* Work in a tenth of each period, beginning with it. */
static void work_begin(struct run *run, size_t period, double rate_ns, uint64_t random)
{
	*run = (struct run){.work = {.period_ns = periods_s[period] * S,
				     .work_ns = periods_s[period] * 100 * MS,
				     .rate_ns = rate_ns},
			    .windows = {.budget = 0.05, .random = random},
			    .now_ns = S + random * 50 * MS};
}

/* What costs more in windows is not shown too often: what one has cost does not time the next. */
static void test_costly_work(void **state)
{
	const struct target target = {0.045, 2 * MS, 10 * MS, 0.03, 0};
	static struct run run;
	(void)state;

	for (size_t i = 0; i < PERIODS; i++) {
		work_begin(&run, i, 0.2, i);
		assert_int_equal(run_until(&run, &target, 3600 * S), 0);
		double found = work_found(&run);

		print_message("every %d s: %.3f\n", (int)periods_s[i], found);
		assert_true(fabs(found - 1) < 0.06);
	}
}

/* A minute shows work of each second and of a few seconds about as often as there is of it. */
static void test_even(void **state)
{
	static const double most[] = {0.15, 0.25, 0.35, 0.5, 0.6};
	const struct target target = {0.045, 2 * MS, 32 * MS, 0.03, 0};
	static struct run run;
	(void)state;

	for (size_t i = 0; i < PERIODS; i++) {
		double square = 0;

		for (uint64_t k = 0; k < 200; k++) {
			work_begin(&run, i, 0.09, k);
			assert_int_equal(run_until(&run, &target, run.now_ns + 60 * S), 0);
			square += pow(work_found(&run) - 1, 2) / 200;
		}
		print_message("every %d s: %.3f\n", (int)periods_s[i], sqrt(square));
		assert_true(sqrt(square) < most[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_costly_work),
		cmocka_unit_test(test_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
