/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "report/recording/evidence.h"
#include "util/hash.h"

#define POINTS 60

/* Deterministic noise from -1 to 1. */
static double noise(uint64_t seed, uint64_t i)
{
	return (double)(hash_u64(seed * 1000003 + i + 1) >> 11) / (double)(1ull << 52) - 1;
}

static void near(double value, double wanted, double error)
{
	if (fabs(value - wanted) > error)
		print_message("%g, not %g\n", value, wanted);
	assert_true(fabs(value - wanted) <= error);
}

/* Four points of what swings, which rise by chance, and four of what grows. */
static void test_even(void **state)
{
	double x[] = {0, 8, 16, 26}, chance[] = {0, 300, 310, 330}, grows[] = {0, 160, 310, 500};
	double late[] = {0, 10, 160, 310}, falls[] = {0, 100, 90, 200}, same[4] = {0};

	(void)state;
	assert_true(slope_is_even(x, grows, 4));
	assert_false(slope_is_even(x, chance, 4));
	assert_false(slope_is_even(x, late, 4));
	assert_false(slope_is_even(x, falls, 4));
	assert_false(slope_is_even(x, same, 4));
}

static void test_line(void **state)
{
	double x[] = {0, 1, 2, 4, 8}, y[] = {1, 3, 5, 9, 17};
	struct slope slope;

	(void)state;
	assert_int_equal(slope_find(x, y, 5, &slope), 0);
	near(slope.median, 2, 1e-9);
	near(slope.low, 2, 1e-9);
	near(slope.high, 2, 1e-9);
	assert_true(slope.has_interval);
	assert_int_equal(slope_find(x, y, 3, &slope), 0);
	assert_false(slope.has_interval);
	assert_int_equal(slope_find(x, y, 1, &slope), -EINVAL);
	x[2] = 1;
	assert_int_equal(slope_find(x, y, 5, &slope), -EINVAL);
}

/*
 * The median of the pairs' slopes, and Sen's interval by Kendall's variance, computed here by hand:
 * of 10 points there are 45 pairs; 1.96 sqrt(10 * 9 * 25 / 18) = 21.91, so the interval is from the
 * 11th slope to the 35th.
 */
static void test_interval(void **state)
{
	const double y[10] = {1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
	double x[10], slopes[45];
	struct slope slope;
	int count = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		x[i] = i;
	for (int i = 0; i < 10; i++)
		for (int j = i + 1; j < 10; j++) {
			double one = (y[j] - y[i]) / (j - i);
			int at = count++;

			for (; at && slopes[at - 1] > one; at--)
				slopes[at] = slopes[at - 1];
			slopes[at] = one;
		}
	assert_int_equal(slope_find(x, y, 10, &slope), 0);
	near(slope.median, slopes[22], 1e-12);
	near(slope.low, slopes[10], 1e-12);
	near(slope.high, slopes[34], 1e-12);
}

/* A quarter of the points may be anything. */
static void test_outliers(void **state)
{
	double x[POINTS], y[POINTS];
	struct slope slope;

	(void)state;
	for (int i = 0; i < POINTS; i++) {
		x[i] = i;
		y[i] = i % 4 ? 10 * i + noise(1, (uint64_t)i) : 1e6 * noise(2, (uint64_t)i);
	}
	assert_int_equal(slope_find(x, y, POINTS, &slope), 0);
	near(slope.median, 10, 5);
	assert_true(slope.low <= 10 && slope.high >= 10);
}

/* The interval holds the true slope in 95 of 100 series. */
static void test_confidence(void **state)
{
	double x[30], y[30];
	int held = 0;

	(void)state;
	for (uint64_t run = 0; run < 1000; run++) {
		struct slope slope;

		for (int i = 0; i < 30; i++) {
			x[i] = i;
			y[i] = 3 * i + 20 * noise(run + 10, (uint64_t)i);
		}
		assert_int_equal(slope_find(x, y, 30, &slope), 0);
		held += slope.low <= 3 && slope.high >= 3;
	}
	print_message("the interval held the slope in %d of 1000 series\n", held);
	assert_true(held >= 930 && held <= 985);
}

typedef double (*size_fn)(double i);

static double leaks(double i)
{
	return 50000 + 2000 * i + 3000 * noise(3, (uint64_t)i);
}
static double constant(double i)
{
	(void)i;
	return 70000;
}
static double scatters(double i)
{
	return 1e6 + 3e5 * noise(4, (uint64_t)i);
}
static double fills(double i)
{
	return (i < POINTS * 0.45 ? i : POINTS * 0.45) * 10000;
}
static double warms_up(double i)
{
	return 1e6 * (1 - exp(-i / 4)) + 100 * noise(5, (uint64_t)i);
}
static double oscillates(double i)
{
	return 1e6 + 5e5 * sin(i / 4);
}
/* Collected every 16 points; the last time is not over. */
static double saw(double i)
{
	return 1e5 + 1e4 * fmod(i, 16);
}
static double leaks_in_saw(double i)
{
	return 1e5 + 1e4 * fmod(i, 4) + 5000 * i;
}
static double slows(double i)
{
	return 1e6 * log(1 + i);
}
static double shrinks(double i)
{
	return 1e6 - 1000 * i;
}
/* As a master whose workers come at last; most pairs of points say nothing of it. */
static double late(double i)
{
	return 1e5 + (i > POINTS * 0.75 ? (i - POINTS * 0.75) * 20000 : 0);
}
static double late_in_saw(double i)
{
	return late(i) + 1e4 * fmod(i, 4);
}
static double trickles(double i)
{
	return 1000 + i;
}

static struct evidence evidence_of(size_fn size, size_t count)
{
	struct evidence_point points[POINTS];
	struct evidence evidence;

	for (size_t i = 0; i < count; i++)
		points[i] = (struct evidence_point){.seconds = 10.0 * (double)i,
						    .size = size((double)i),
						    .count = size((double)i) / 100};
	assert_int_equal(evidence_find(points, count, 0, &evidence), 0);
	return evidence;
}

static void test_verdicts(void **state)
{
	static const struct {
		size_fn size;
		enum evidence_verdict verdict;
	} cases[] = {
		{leaks, EVIDENCE_GROWS},         {leaks_in_saw, EVIDENCE_GROWS},
		{constant, EVIDENCE_STEADY},     {fills, EVIDENCE_STEADY},
		{shrinks, EVIDENCE_STEADY},      {trickles, EVIDENCE_STEADY},
		{slows, EVIDENCE_UNCLEAR},       {late, EVIDENCE_UNCLEAR},
		{late_in_saw, EVIDENCE_UNCLEAR},
	};
	static const size_fn never[] = {scatters, warms_up, oscillates, saw};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct evidence evidence = evidence_of(cases[i].size, POINTS);

		print_message("case %zu: verdict %d, doubt %d\n", i, evidence.verdict,
			      evidence.doubt);
		assert_int_equal(evidence.verdict, cases[i].verdict);
		assert_int_equal(evidence.doubt != DOUBT_NONE,
				 evidence.verdict == EVIDENCE_UNCLEAR);
	}
	/* Wherever the recording ends, these are not called growth. */
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		for (size_t count = 33; count <= POINTS; count++)
			assert_true(evidence_of(never[i], count).verdict != EVIDENCE_GROWS);
	near(evidence_of(leaks, POINTS).slope.median, 200, 10);
	assert_int_equal(evidence_of(leaks, 7).doubt, DOUBT_FEW);
	assert_int_equal(evidence_of(leaks, 2).doubt, DOUBT_FEW);
	/* What does not grow is not in doubt, however short it was looked at. */
	assert_int_equal(evidence_of(constant, 7).verdict, EVIDENCE_STEADY);
}

/* Growth that begins in the last part of the time: since when. */
static void test_late(void **state)
{
	struct evidence evidence = evidence_of(late, POINTS);

	(void)state;
	near(evidence.slope.median, 0, 1e-9);
	assert_int_equal(evidence.doubt, DOUBT_LATE);
	assert_int_equal(evidence.late, POINTS * 3 / 4);
	assert_int_equal(evidence_of(late_in_saw, POINTS).doubt, DOUBT_LATE);
	/* From a little after the half on it is the same, though the slope is above 0. */
	for (size_t count = 49; count < POINTS; count++)
		assert_int_equal(evidence_of(late, count).doubt, DOUBT_LATE);
	/* What waves does not grow late, wherever its last wave ends. */
	for (size_t count = 33; count <= POINTS; count++) {
		assert_true(evidence_of(oscillates, count).doubt != DOUBT_LATE);
		assert_true(evidence_of(saw, count).doubt != DOUBT_LATE);
		assert_true(evidence_of(scatters, count).doubt != DOUBT_LATE);
	}
}

/*
 * Estimates that share their error: each of 1000 series lies on a line, at a slope that is wrong by
 * an error that no scatter shows. 95 of 100 intervals hold the true one.
 */
static void test_shared_error(void **state)
{
	struct evidence_point points[20];
	int held = 0, grew = 0;

	(void)state;
	for (uint64_t run = 0; run < 1000; run++) {
		/* The sum of twelve evenly distributed numbers is nearly normal. */
		double wrong = 0;
		struct evidence evidence;

		for (uint64_t i = 0; i < 12; i++)
			wrong += noise(run + 77, i) / 2;
		for (int i = 0; i < 20; i++)
			points[i] = (struct evidence_point){.seconds = i,
							    .size = 1e6 + i * (100 + 1000 * wrong),
							    .error = i * 1000,
							    .count = 1000 + 10 * i};
		assert_int_equal(evidence_find(points, 20, 0, &evidence), 0);
		held += evidence.slope.low <= 100 && evidence.slope.high >= 100;
		grew += evidence.verdict == EVIDENCE_GROWS;
	}
	print_message("held %d of 1000, %d said to grow\n", held, grew);
	assert_true(held >= 930 && held <= 985);
	assert_true(grew < 60);
}

#define RUNS        1000
#define WINDOWS_ALL (3 * CALIBRATE_GROUPS)

/* What has been shown up to a window, of which each one shows a random number of requests. */
static void shown_until(const double *shown, size_t count, double *size,
			struct estimate_deviations *out)
{
	double groups[CALIBRATE_GROUPS] = {0}, scale = calibrate_scale(CALIBRATE_GROUPS);
	uint8_t group_of[WINDOWS_ALL];
	uint32_t group_count = calibrate_groups(count, group_of);

	*size = 0;
	*out = (struct estimate_deviations){0};
	for (size_t i = 0; i < count; i++) {
		*size += 1000 * shown[i];
		groups[group_of[i]] += 1000 * shown[i];
	}
	for (uint32_t g = 0; g < group_count && group_count > 1; g++)
		out->groups[g] =
			(float)(scale *
				((*size - groups[g]) * group_count / (group_count - 1) - *size));
}

/* Of RUNS estimates by windows, each of which shows that much: how many are said to grow. */
static int windows_grow(double first, double second, int compared)
{
	struct evidence_point points[20];
	struct estimate_deviations deviations[20];
	double shown[WINDOWS_ALL];
	struct evidence evidence;
	int grow = 0;

	for (uint64_t run = 0; run < RUNS; run++) {
		for (uint64_t i = 0; i < WINDOWS_ALL; i++)
			shown[i] = -log((noise(run + 5, i) + 1) / 2 + 1e-9) *
				   (i < WINDOWS_ALL / 2 ? first : second);
		for (size_t i = 0; i < 20; i++) {
			points[i] = (struct evidence_point){.seconds = (double)i,
							    .count = 100.0 * (double)i};
			shown_until(shown, i * WINDOWS_ALL / 19, &points[i].size, &deviations[i]);
			points[i].error = estimate_difference_error(NULL, &deviations[i]);
			points[i].deviations = compared ? &deviations[i] : NULL;
		}
		assert_int_equal(evidence_find(points, 20, 0, &evidence), 0);
		grow += evidence.verdict == EVIDENCE_GROWS;
	}
	print_message("%g, then %g: %d of %d grow\n", first, second, grow, RUNS);
	return grow;
}

/*
 * What the second half has gained is known from its own windows: of those of the first half both
 * of its ends have the same errors.
 */
static void test_windows(void **state)
{
	(void)state;
	assert_true(windows_grow(1, 1, 1) >= RUNS * 9 / 10);
	assert_true(windows_grow(1, 1, 0) < RUNS * 9 / 10);
	assert_int_equal(windows_grow(1, 0, 1), 0);
	assert_true(windows_grow(1, 0.02, 1) < RUNS / 40);
}

/* A cache that was full before the trace: what replaces its entries looks like growth. */
static void test_replacement(void **state)
{
	struct evidence_point points[POINTS];
	struct evidence evidence;

	(void)state;
	for (int i = 0; i < POINTS; i++)
		points[i] = (struct evidence_point){
			.seconds = i, .size = 1000.0 * i, .count = 10.0 * i, .old_gone = 9.0 * i};
	assert_int_equal(evidence_find(points, POINTS, 0, &evidence), 0);
	assert_int_equal(evidence.verdict, EVIDENCE_UNCLEAR);
	assert_int_equal(evidence.doubt, DOUBT_OLD);
	/* Once all of them are gone, growth is growth. */
	for (int i = POINTS / 3; i < POINTS; i++)
		points[i].old_gone = 9.0 * POINTS / 3;
	assert_int_equal(evidence_find(points, POINTS, 0, &evidence), 0);
	assert_int_equal(evidence.verdict, EVIDENCE_GROWS);
}

/*
 * A service that makes cyclic garbage loses older blocks all the time. A line that keeps all that
 * it allocates, in a heap that gains many times as much, has not replaced them.
 */
static void test_garbage(void **state)
{
	struct evidence_point points[POINTS];
	struct evidence evidence;

	(void)state;
	for (int i = 0; i < POINTS; i++)
		points[i] = (struct evidence_point){.seconds = i,
						    .size = 1000.0 * i,
						    .count = 10.0 * i,
						    .acquired = 10.0 * i,
						    .old_gone = 9.0 * i,
						    .alive = 40.0 * i};
	assert_int_equal(evidence_find(points, POINTS, 1, &evidence), 0);
	assert_int_equal(evidence.verdict, EVIDENCE_GROWS);
	/* Nothing is known of what it freed: it may be the garbage. */
	assert_int_equal(evidence_find(points, POINTS, 0, &evidence), 0);
	assert_int_equal(evidence.doubt, DOUBT_OLD);
	/* The heap hardly grows: it is a full cache. */
	for (int i = 0; i < POINTS; i++)
		points[i].alive = 9.0 * i;
	assert_int_equal(evidence_find(points, POINTS, 1, &evidence), 0);
	assert_int_equal(evidence.doubt, DOUBT_OLD);
	/* The heap grows, but the line frees, too: it may make the garbage. */
	for (int i = 0; i < POINTS; i++) {
		points[i].alive = 40.0 * i;
		points[i].acquired = 11.0 * i;
	}
	assert_int_equal(evidence_find(points, POINTS, 1, &evidence), 0);
	assert_int_equal(evidence.doubt, DOUBT_OLD);
}

/* What becomes of the blocks: all stay; all are freed; the oldest are freed. */
static void test_fates(void **state)
{
	struct evidence_point points[20];
	struct evidence evidence;

	(void)state;
	for (int i = 0; i < 20; i++)
		points[i] = (struct evidence_point){
			.seconds = i, .size = 100.0 * i, .count = i, .acquired = i};
	assert_int_equal(evidence_find(points, 20, 1, &evidence), 0);
	near(evidence.survivors, 1, 1e-9);
	assert_int_equal(evidence.none_freed, 0);
	/* 19 blocks, of which those of moment 10 are at least the half. */
	near(evidence.age, 9, 1e-9);
	/* The first ten of the blocks are freed at moment 12, and 5 are allocated besides. */
	for (int i = 12; i < 20; i++) {
		points[i].count -= 5;
		points[i].acquired += 5;
	}
	assert_int_equal(evidence_find(points, 20, 1, &evidence), 0);
	near(evidence.survivors, 14.0 / 24, 1e-9);
	near(evidence.acquired, 24, 1e-9);
	near(evidence.freed, 10, 1e-9);
	assert_int_equal(evidence.none_freed, 12);
	for (int i = 0; i < 20; i++) {
		points[i].count = 50;
		points[i].acquired = 100.0 * i;
	}
	assert_int_equal(evidence_find(points, 20, 1, &evidence), 0);
	near(evidence.survivors, 0, 1e-9);
	near(evidence.age, 0, 1e-9);
	assert_int_equal(evidence.none_freed, 19);
	assert_int_equal(evidence_find(points, 20, 0, &evidence), 0);
	assert_true(evidence.survivors < 0 && evidence.age < 0);
	/* What was taken from free lists is not counted as allocated, but it is there. */
	for (int i = 0; i < 20; i++) {
		points[i].count = 16.0 * i;
		points[i].acquired = 0;
	}
	assert_int_equal(evidence_find(points, 20, 1, &evidence), 0);
	near(evidence.acquired, 16 * 19, 1e-9);
	near(evidence.survivors, 1, 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),         cmocka_unit_test(test_line),
		cmocka_unit_test(test_interval),     cmocka_unit_test(test_outliers),
		cmocka_unit_test(test_confidence),   cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_replacement),  cmocka_unit_test(test_late),
		cmocka_unit_test(test_shared_error), cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_fates),        cmocka_unit_test(test_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
