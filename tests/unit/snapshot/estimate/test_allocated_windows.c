/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates of what was allocated, of simulated targets whose rate is known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

#include "snapshot/estimate/allocated.h"
#include "util/hash.h"

#define RUNS 400

/* A target: how much it allocates in a second, at a time (seconds), without probes. */
struct target {
	double (*rate)(double time, uint64_t run);
	double work;  /* records of probes that are always in place, for each unit of the rate */
	double speed; /* what it does in windows, relative to that */
	double idle;  /* the part of a window in which it sleeps */
	/* pauses are longer where the last windows have shown much, as a budget has it */
	bool waits;
};

static double steady(double time, uint64_t run)
{
	(void)time;
	(void)run;
	return 1000;
}

/* For three of ten seconds it does ten times as much. */
static double phases(double time, uint64_t run)
{
	return fmod(time + (double)(run % 10), 10) < 3 ? 10000 : 1000;
}

/* Bursts of a fifth of a second, at random. */
static double bursts(double time, uint64_t run)
{
	return hash_u64((uint64_t)(time * 5) + run * 1000) % 10 ? 0 : 20000;
}

static double random_of(uint64_t *state)
{
	*state = hash_u64(*state + 0x9e3779b97f4a7c15ull);
	return (double)(*state >> 11) * 0x1p-53;
}

#define STEP 0.005

/* Over a time, in seconds. */
static double integral(const struct target *target, double from, double until, uint64_t run)
{
	double sum = 0;

	for (double at = from; at < until; at += STEP)
		sum += target->rate(at, run) * fmin(STEP, until - at);
	return sum;
}

struct result {
	double truth;
	struct allocated_scale scale;
	struct allocated_range range;
};

/* 10 minutes, or until that many windows. */
static void run_one(const struct target *target, uint64_t run, uint64_t most, struct result *out)
{
	struct allocated_group groups[CALIBRATE_GROUPS] = {0};
	struct allocated_sums sums = {0};
	double length = 0.05, pause = 2, from = 0;
	uint64_t random = run + 1;

	out->truth = 0;
	for (uint64_t i = 0; i < most && from < 600; i++) {
		double start = from + pause * (0.5 + random_of(&random)), end = start + length;
		double between = integral(target, from, start, run), shown;
		struct allocated_group *group = &groups[allocated_group_of(i)];
		double weight = (end - from) / length;

		shown = integral(target, start, end, run) * target->speed;
		out->truth += between + shown;
		sums.groups[allocated_group_of(i)] += weight * shown;
		allocated_group_add(group, &(struct allocated_group){
						   .span_ns = (end - from) * 1e9,
						   .on_ns = length * 1e9,
						   .idle_ns = target->idle * length * 1e9,
						   .work = (between + shown) * target->work,
						   .work_shown = weight * shown * target->work,
						   .work_in = (uint64_t)(shown * target->work)});
		if (target->waits)
			pause += ((shown > 100 ? 4 : 1) - pause) / 6;
		from = end;
	}
	assert_true(allocated_scale_find(groups, &out->scale));
	out->range = allocated_range_of(&out->scale, &sums, 0);
}

/* How many of RUNS intervals have the truth, and the mean of the estimates by the truth. */
static double covered(const struct target *target, double *mean)
{
	struct result result;
	double within = 0;

	*mean = 0;
	for (uint64_t run = 0; run < RUNS; run++) {
		run_one(target, run, UINT64_MAX, &result);
		within += result.range.low <= result.truth * (1 + 1e-6) &&
			  (!(result.range.high > 0) ||
			   result.truth <= result.range.high * (1 + 1e-6));
		*mean += result.range.estimate / result.truth / RUNS;
	}
	return within / RUNS;
}

/*
 * Without slowing there is no bias, whatever it does. If pauses follow from what windows have cost,
 * and phases are about as long as pauses, there is some, which is within the error.
 */
static void test_by_time(void **state)
{
	static double (*const rates[])(double, uint64_t) = {steady, phases, bursts};
	double mean;

	(void)state;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		for (int waits = 0; waits < 2; waits++) {
			const struct target target = {
				.rate = rates[i], .speed = 1, .idle = 1, .waits = waits};

			assert_true(covered(&target, &mean) >= 0.9);
			assert_true(fabs(mean - 1) < (waits ? 0.1 : 0.03));
		}
}

/* What is always traced tells how much slower windows are. */
static void test_by_work(void **state)
{
	static double (*const rates[])(double, uint64_t) = {steady, phases, bursts};
	double mean;

	(void)state;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		const struct target target = {.rate = rates[i], .work = 0.5, .speed = 0.1};

		assert_true(covered(&target, &mean) >= 0.9);
		assert_true(fabs(mean - 1) < 0.05);
	}
}

/* Without that the estimate is a lower bound; what sleeps in windows has an upper one, too. */
static void test_bounds(void **state)
{
	const struct target busy = {.rate = phases, .speed = 0.1};
	const struct target sleeps = {.rate = phases, .speed = 0.8, .idle = 0.8};
	struct result result;
	double mean;

	(void)state;
	assert_true(covered(&busy, &mean) >= 0.97);
	assert_true(mean < 0.2);
	run_one(&busy, 0, UINT64_MAX, &result);
	assert_false(result.scale.by_work);
	assert_true(result.range.high == 0 && result.range.low < result.range.estimate);
	assert_true(covered(&sleeps, &mean) >= 0.9);
	run_one(&sleeps, 0, UINT64_MAX, &result);
	assert_true(fabs(result.scale.most - 1 / 0.8) < 1e-9);
	assert_true(result.range.high > result.range.estimate);
}

/* Work that few windows have shown does not tell. */
static void test_little_work(void **state)
{
	const struct target target = {.rate = steady, .work = 0.0001, .speed = 0.5};
	struct result result;

	(void)state;
	run_one(&target, 0, UINT64_MAX, &result);
	assert_false(result.scale.by_work);
}

static void test_few(void **state)
{
	const struct target target = {.rate = phases, .speed = 1, .idle = 1};
	struct allocated_group groups[CALIBRATE_GROUPS] = {0};
	struct allocated_scale scale;
	double widths[2] = {0};
	struct result few, many;

	(void)state;
	assert_false(allocated_scale_find(groups, &scale));
	groups[3] = groups[5] = (struct allocated_group){.span_ns = 1e9, .on_ns = 1e7};
	assert_false(allocated_scale_find(groups, &scale));
	for (uint64_t run = 0; run < 20; run++) {
		run_one(&target, run, 8, &few);
		run_one(&target, run, UINT64_MAX, &many);
		widths[0] += few.range.high / few.range.estimate;
		widths[1] += many.range.high / many.range.estimate;
	}
	assert_true(widths[0] > widths[1]);
}

/* If windows have shown all there is nothing to be wrong about. */
static void test_all(void **state)
{
	struct allocated_group groups[CALIBRATE_GROUPS];
	struct allocated_sums sums;
	struct allocated_scale scale;
	struct allocated_range range;

	(void)state;
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++) {
		groups[i] = (struct allocated_group){.span_ns = 1e9, .on_ns = 1e9, .idle_ns = 1e9};
		sums.groups[i] = i;
	}
	assert_true(allocated_scale_find(groups, &scale));
	range = allocated_range_of(&scale, &sums, 7);
	assert_true(range.low == 127 && range.estimate == 127 && range.high == 127);
}

/* Of 16 windows in a row each is in another group; of work every 16 windows, not all in one. */
static void test_groups(void **state)
{
	uint32_t first = 0, seen;

	(void)state;
	for (uint64_t block = 0; block < 64; block++) {
		seen = 0;
		for (uint64_t i = 0; i < CALIBRATE_GROUPS; i++)
			seen |= 1u << allocated_group_of(block * CALIBRATE_GROUPS + i);
		assert_int_equal(seen, (1u << CALIBRATE_GROUPS) - 1);
		first |= 1u << allocated_group_of(block * CALIBRATE_GROUPS);
	}
	assert_true(__builtin_popcount(first) > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_time), cmocka_unit_test(test_by_work),
		cmocka_unit_test(test_bounds),  cmocka_unit_test(test_little_work),
		cmocka_unit_test(test_few),     cmocka_unit_test(test_all),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
