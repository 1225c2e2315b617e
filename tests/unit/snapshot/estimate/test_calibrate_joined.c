/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from windows: strata of which too little was seen are joined with others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "calibrate_trial.h"

/* Types of a few blocks are split like others of their size class; nothing is lost. */
static void test_rare(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	sampled_blocks_spread(&trial, list, 0, 4);
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t rare = stratum_add(&trial, 10 + i, 0, 20, 0);

		if (i < 16)
			sampled_blocks_add(&trial, rare, i * 3, 1 + i % 4 / 3, 1, 1, 0.04);
	}
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.rows[1].blocks, 300);
	close_to(trial.result.rows[2].blocks, 100);
	close_to(blocks_of(&trial) + trial.result.unseen.new_blocks, 6400);
	calibrate_free(&trial.result);
}

/* Strings of two lengths and one size class, of a line each. */
static void family_begin(struct trial *trial, uint32_t windows)
{
	trial_begin(trial);
	stratum_add(trial, 65, 0, 3000, 100);
	stratum_add(trial, 66, 0, 2000, 50);
	trial->strata[0].family = trial->strata[1].family = 64;
	sampled_blocks_spread(trial, 0, 0, 1);
	for (uint32_t window = 0; window < windows; window++)
		sampled_blocks_add(trial, 1, window, 1, 60 / windows, 1, 0.04);
	assert_int_equal(calibrate(&trial->input, &trial->result), 0);
}

static void test_family(void **state)
{
	struct trial trial;
	(void)state;

	/* Windows have shown enough of either length: each line has the blocks of its own. */
	family_begin(&trial, 60);
	assert_true(fabs(trial.result.rows[0].blocks - 3000) < 1e-6);
	assert_true(fabs(trial.result.rows[1].blocks - 2000) < 1e-6);
	assert_true(fabs(trial.result.old_rows[1].blocks - 50) < 1e-6);
	calibrate_free(&trial.result);
	/* Three windows are too few for a stratum: they have half of the weight of both. */
	family_begin(&trial, 3);
	assert_true(fabs(trial.result.rows[0].blocks - 2500) < 1e-6);
	assert_true(fabs(trial.result.rows[1].blocks - 2500) < 1e-6);
	assert_true(fabs(trial.result.old_rows[1].blocks - 75) < 1e-6);
	calibrate_free(&trial.result);
}

/* Older strings of a length that nobody makes now are attributed as those of other lengths. */
static void test_family_older(void **state)
{
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	stratum_add(&trial, 65, 0, 3000, 0);
	stratum_add(&trial, 66, 0, 0, 1000);
	trial.strata[0].family = trial.strata[1].family = 64;
	sampled_blocks_spread(&trial, 0, 0, 1);
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	assert_true(fabs(trial.result.old_rows[0].blocks - 1000) < 1e-6);
	assert_true(trial.result.unseen.old_blocks < 1e-6);
	calibrate_free(&trial.result);
}

/* A cohort with few windows before the newest one is no stratum of its own. */
static void test_left(void **state)
{
	struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t first = stratum_add(&trial, 1, 2, 4000, 0),
		 left = stratum_add(&trial, 1, 3, 400, 0),
		 newest = stratum_add(&trial, 1, 4, 1000, 0);

	for (uint32_t window = 0; window < 40; window++) {
		sampled_blocks_add(&trial, first, window, 0, 3, 1, 0.04);
		sampled_blocks_add(&trial, first, window, 1, 1, 1, 0.04);
	}
	for (uint32_t window = 40; window < 42; window++)
		sampled_blocks_add(&trial, left, window, 0, 4, 1, 0.04);
	for (uint32_t window = 46; window < WINDOWS; window++)
		sampled_blocks_add(&trial, newest, window, 2, 3, 1, 0.04);
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	/* Of 168 sampled blocks for 4400 blocks it has 40, not 40 of 160 for 4000. */
	assert_true(fabs(trial.result.rows[1].blocks - 4400.0 * 40 / 168) < 1e-6);
	assert_true(fabs(trial.result.rows[2].blocks - 1000) < 1e-6);
	calibrate_free(&trial.result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rare),
		cmocka_unit_test(test_family),
		cmocka_unit_test(test_family_older),
		cmocka_unit_test(test_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
