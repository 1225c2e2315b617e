/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from windows: how many blocks there are, and which part of them windows have shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "calibrate_trial.h"

/*
 * Windows show one block in 200 of a slow target, and none of one cohort. Blocks that are known one
 * by one do not make it look faster, so that the others would be taken for a burst.
 */
static void test_whole(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t known = stratum_add(&trial, 1, 0, 350, 0);
	stratum_add(&trial, 2, 1, 20000, 0);
	uint32_t shown = stratum_add(&trial, 2, 2, 20000, 0);
	idle_set(&trial, 0.001);
	sampled_blocks_add(&trial, known, 0, 0, 350, 1, 1);
	sampled_blocks_add(&trial, shown, 2, 1, 90, 1, 0.6);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 350);
	close_to(trial.result.rows[1].blocks, 40000);
	close_to(trial.result.unseen.new_blocks, 0);
	calibrate_free(&trial.result);
}

/* A burst between windows is not given to the line that the windows show. */
static void test_burst(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t burst = stratum_add(&trial, 1, 1, 50000, 0),
		 list = stratum_add(&trial, 1, 2, 6000, 0);
	uint32_t dict = stratum_add(&trial, 2, 2, 6000, 0);
	sampled_blocks_spread(&trial, list, 0, 4);
	sampled_blocks_spread(&trial, dict, 1, 4);
	trial_run(&trial);
	close_to(trial.result.speed, 1);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.strata[burst].new_blocks, 50000);
	calibrate_free(&trial.result);

	/* The same if cohorts are not known: the weight of the sampled blocks tells. */
	trial.strata[burst].cohort = trial.strata[list].cohort = trial.strata[dict].cohort = 0;
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.unseen.new_blocks, 50000);
	close_to(trial.result.rows[1].blocks, 6000);
	calibrate_free(&trial.result);
}

/*
 * The same in one stratum that all is in: as if windows slowed the target, unless it is known that
 * they do not.
 */
static void test_burst_of_an_idle_target(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	sampled_blocks_spread(&trial, stratum_add(&trial, 1, 0, 60000, 0), 0, 4);
	trial_run(&trial);
	close_to(trial.result.speed, 0.1);
	close_to(trial.result.rows[0].blocks, 60000);
	calibrate_free(&trial.result);

	idle_set(&trial, 1);
	trial_run(&trial);
	close_to(trial.result.speed, 1);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.unseen.new_blocks, 54000);
	calibrate_free(&trial.result);
}

/* The target does a tenth in windows: the sampled blocks stand for all the same. */
static void test_speed(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 60000, 0),
		 dict = stratum_add(&trial, 2, 0, 30000, 0);
	sampled_blocks_spread(&trial, list, 0, 4);
	sampled_blocks_spread(&trial, dict, 1, 2);
	trial_run(&trial);
	close_to(trial.result.speed, 0.1);
	close_to(trial.result.rows[0].blocks, 60000);
	close_to(trial.result.unseen.new_blocks, 0);
	calibrate_free(&trial.result);
}

/* A slowed target that sleeps in all windows but the first: what it did in that one counts more. */
static void test_busy_window(void **state)
{
	static struct trial trial;
	(void)state;

	/* Awake it does a fifth, and windows miss a fifth otherwise: 16 %, and 80 % asleep. */
	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 40 * 151 + 59 * 4 * 31, 0);
	idle_set(&trial, 1);
	trial.windows[0].idle = 0;
	sampled_blocks_add(&trial, list, 0, 0, 40, 1, 0.04);
	for (uint32_t window = 1; window < WINDOWS; window++)
		sampled_blocks_add(&trial, list, window, 1, 4, 1, 0.04);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 40 * 151);
	close_to(trial.result.rows[1].blocks, 59 * 4 * 31);
	calibrate_free(&trial.result);
}

/*
 * A start-up, most of which was between two windows: the one that has shown some of it, in which
 * the target slept for a while, cannot stand for all of it.
 */
static void test_start_up(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 60000, 0);
	idle_set(&trial, 0.97);
	trial.windows[0].idle = 0.2;
	sampled_blocks_add(&trial, list, 0, 0, 100, 1, 0.04);
	for (uint32_t window = 1; window < WINDOWS; window++)
		sampled_blocks_add(&trial, list, window, 1, 4, 1, 0.04);
	trial_run(&trial);
	close_to(trial.result.speed, 1);
	close_to(trial.result.rows[0].blocks, 2500);
	close_to(trial.result.rows[1].blocks, 5900);
	close_to(trial.result.unseen.new_blocks, 51600);
	calibrate_free(&trial.result);
}

/* A busy target waits in windows for what probes hold: all of its blocks are explained even so. */
static void test_speed_of_a_busy_target(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	sampled_blocks_spread(&trial, stratum_add(&trial, 1, 0, 36000, 0), 0, 4);
	idle_set(&trial, 0.3);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 36000);
	close_to(trial.result.unseen.new_blocks, 0);
	calibrate_free(&trial.result);
}

/* Bursts in cohorts that each have enough windows: the one without a burst tells the speed. */
static void test_speed_extra_a_burst(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	const uint32_t cohorts[] = {stratum_add(&trial, 1, 1, 4000, 0),
				    stratum_add(&trial, 1, 2, 100000, 0),
				    stratum_add(&trial, 1, 3, 100000, 0)};
	for (uint32_t window = 0; window < WINDOWS; window++)
		sampled_blocks_add(&trial, cohorts[window / 25], window, 0, 4, 1, 0.04);
	idle_set(&trial, 0.5);
	trial_run(&trial);
	close_to(trial.result.speed, 2500.0 / 4000);
	calibrate_free(&trial.result);
}

/* Donors say nothing about what windows slow: they are no part of the total. */
static void test_speed_of_donors(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 60000, 0),
		 newest = stratum_add(&trial, 1, 1, 60000, 0);
	sampled_blocks_spread(&trial, list, 0, 4);
	for (uint32_t i = 0; i < 60; i++) {
		sampled_blocks_add(&trial, newest, i, 1, 1, 1, 0.001);
		trial.sampled_blocks[trial.input.sampled_block_count - 1].donor = 1;
	}
	trial_run(&trial);
	close_to(trial.result.speed, 0.1);
	close_to(trial.result.rows[0].blocks, 60000);
	close_to(trial.result.rows[1].blocks, 60000);
	calibrate_free(&trial.result);
}

/* A lower bound of the blocks is the total, unless sampled blocks stand for far more: then they
 * are. */
static void test_least(void **state)
{
	static const struct {
		uint64_t least, most;
		double total;
	} cases[] = {{6100, 7000, 6100}, {0, 0, 6000},       {1000, 0, 6000},
		     {1000, 9000, 6000}, {1000, 4000, 4000}, {0, 4000, 4000}};
	static struct trial trial;
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t known, least;

		trial_begin(&trial);
		known = stratum_add(&trial, 1, 0, 1500, 0);
		sampled_blocks_spread(&trial, known, 0, 1);
		least = stratum_add(&trial, 2, 0, cases[i].least, 0);
		trial.strata[least].class_bytes = 65;
		trial.strata[least].least = 1;
		trial.strata[least].most_blocks = cases[i].most;
		sampled_blocks_spread(&trial, least, 1, 3);
		sampled_blocks_spread(&trial, least, 2, 1);
		trial_run(&trial);
		assert_true(fabs(trial.result.rows[0].blocks - 1500) < 1);
		assert_true(fabs(trial.result.rows[1].blocks - cases[i].total * 3 / 4) < 60);
		assert_true(fabs(trial.result.rows[2].blocks - cases[i].total / 4) < 20);
		assert_true(trial.result.unseen.new_blocks < 1);
		assert_true(isfinite(error_of(&trial.result.rows[1])));
		calibrate_free(&trial.result);
	}
}

/* The error of a total that is estimated is part of the rows' errors. */
static void test_least_error(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	stratum_add(&trial, 2, 0, 0, 0);
	trial.strata[0].least = 1;
	/* All of it is one row's: only the number is uncertain. */
	for (uint32_t window = 0; window < WINDOWS; window += 2)
		sampled_blocks_add(&trial, 0, window, 0, 1 + window % 5, 1, 0.04);
	trial_run(&trial);
	assert_true(trial.result.rows[0].blocks > 1000 && trial.result.rows[0].blocks < 3000);
	assert_true(trial.result.speed == 1);
	assert_true(error_of(&trial.result.rows[0]) > 0.05 * trial.result.rows[0].blocks);
	assert_true(error_of(&trial.result.rows[0]) < 0.5 * trial.result.rows[0].blocks);
	calibrate_free(&trial.result);
}

/*
 * Of a single large block that a window has shown there is one, not as many as its weight stands
 * for; but nobody knows, so the interval contains that number, too.
 */
static void test_least_lone(void **state)
{
	static struct trial trial;
	(void)state;

	for (uint32_t windows = 1; windows <= 3; windows += 2) {
		trial_begin(&trial);
		stratum_add(&trial, 1, 0, 1500, 0);
		sampled_blocks_spread(&trial, 0, 0, 1);
		stratum_add(&trial, 2, 0, 0, 0);
		trial.strata[1].class_bytes = 65;
		trial.strata[1].least = 1;
		trial.strata[1].most_blocks = 700;
		for (uint32_t window = 0; window < windows; window++)
			sampled_blocks_add(&trial, 1, 7 + 10 * window, 1, 1, 1, 0.04);
		trial_run(&trial);
		close_to(trial.result.rows[0].blocks, 1500);
		close_to(trial.result.rows[1].blocks, windows == 1 ? 1 : 75);
		assert_true(error_of(&trial.result.rows[1]) * 1.96 > 25 * windows);
		close_to(trial.result.unseen.new_blocks, 0);
		calibrate_free(&trial.result);
	}
}

/*
 * One of two windows has shown two lines. Without it nothing would be known of either, so their
 * errors are large. That of their sum is none, since the heap has counted the blocks.
 */
static void test_total_error(void **state)
{
	static struct trial trial;
	struct calibrate_estimate total = {0};
	(void)state;

	trial_begin(&trial);
	trial.input.window_count = 2;
	sampled_blocks_add(&trial, stratum_add(&trial, 1, 0, 3000, 0), 1, 0, 60, 1, 0.04);
	sampled_blocks_add(&trial, 0, 1, 1, 60, 1, 0.04);
	trial_run(&trial);
	for (uint32_t row = 0; row < 2; row++) {
		const struct calibrate_estimate *one = &trial.result.rows[row];

		close_to(one->blocks, 1500);
		assert_true(error_of(one) > 750);
		total.blocks += one->blocks;
		for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
			total.deviations[g] += one->deviations[g];
	}
	close_to(total.blocks, 3000);
	close_to(error_of(&total), 0);
	calibrate_free(&trial.result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_burst_of_an_idle_target),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_busy_window),
		cmocka_unit_test(test_start_up),
		cmocka_unit_test(test_speed_extra_a_burst),
		cmocka_unit_test(test_speed_of_a_busy_target),
		cmocka_unit_test(test_speed_of_donors),
		cmocka_unit_test(test_least),
		cmocka_unit_test(test_least_error),
		cmocka_unit_test(test_least_lone),
		cmocka_unit_test(test_total_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
