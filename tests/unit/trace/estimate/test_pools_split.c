/* SPDX-License-Identifier: Apache-2.0 */
/* What windows have not shown, attributed by who took the pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "trace/estimate/pools_split.h"

#define SECOND  1000000000ull
#define WINDOWS 60u

/* A stratum that windows explain, and a burst of another type that none has shown. */
struct trial {
	struct calibrate_stratum strata[2];
	struct calibrate_window windows[WINDOWS];
	struct calibrate_sampled_block sampled_blocks[4 * WINDOWS];
	struct pools_taken taken[4];
	struct calibrate_input input;
	struct calibrate_result result;
};

static void trial_run(struct trial *trial)
{
	*trial = (struct trial){
		.strata = {{.type = 1, .class_bytes = 64, .new_blocks = 6000, .new_bytes = 384000},
			   {.type = 2, .class_bytes = 64, .new_blocks = 8000, .new_bytes = 512000}},
		.input = {.strata = trial->strata,
			  .stratum_count = 2,
			  .windows = trial->windows,
			  .window_count = WINDOWS,
			  .sampled_blocks = trial->sampled_blocks,
			  .sampled_block_count = 4 * WINDOWS,
			  .row_count = 3}};
	for (uint32_t i = 0; i < WINDOWS; i++)
		trial->windows[i] = (struct calibrate_window){.start_ns = i * SECOND,
							      .end_ns = i * SECOND + SECOND / 25,
							      .span_ns = SECOND};
	for (uint32_t i = 0; i < 4 * WINDOWS; i++)
		trial->sampled_blocks[i] = (struct calibrate_sampled_block){
			.window = i / 4, .alive = 1, .inclusion = 0.04};
	assert_int_equal(calibrate(&trial->input, &trial->result), 0);
	assert_true(fabs(trial->result.unseen.new_blocks - 8000) < 1e-6);
}

static void pools_run(struct trial *trial, size_t count)
{
	assert_int_equal(pools_split(&trial->input, trial->taken, count, &trial->result), 0);
}

/* Pools of a row: as many blocks in each of the first groups. */
static struct pools_taken taken_of(uint32_t stratum, uint32_t row, uint32_t groups, uint32_t blocks)
{
	struct pools_taken taken = {.stratum = stratum, .row = row, .keeps = 1};

	for (uint32_t g = 0; g < groups; g++)
		taken.blocks[g] = blocks;
	return taken;
}

static double error_of(const struct calibrate_estimate *row)
{
	return sqrt(calibrate_variance(row->deviations));
}

static void test_split(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 375);
	trial.taken[1] = taken_of(1, 2, CALIBRATE_GROUPS, 125);
	pools_run(&trial, 2);
	assert_true(fabs(trial.result.rows[1].blocks - 6000) < 1e-6);
	assert_true(fabs(trial.result.rows[2].blocks - 2000) < 1e-6);
	assert_true(fabs(trial.result.pool_blocks - 8000) < 1e-6);
	assert_true(fabs(trial.result.pool_bytes - 512000) < 1e-6);
	assert_true(trial.result.unseen.new_blocks < 1e-6);
	assert_true(trial.result.strata[1].new_bytes < 1e-6);
	/* In every group the same: there is nothing to be wrong about. */
	assert_true(error_of(&trial.result.rows[1]) < 1e-3);
	calibrate_free(&trial.result);
}

/* A row that drops what it allocates takes pools for others. */
static void test_keeps(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 375);
	trial.taken[0].keeps = 0;
	trial.taken[1] = taken_of(1, 2, CALIBRATE_GROUPS, 125);
	pools_run(&trial, 2);
	assert_true(trial.result.rows[1].blocks < 1e-6);
	assert_true(fabs(trial.result.rows[2].blocks - 8000) < 1e-6);
	calibrate_free(&trial.result);

	/* Where nobody else has taken any, it is not known whose the blocks are. */
	trial_run(&trial);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 375);
	trial.taken[0].keeps = 0;
	pools_run(&trial, 1);
	assert_true(fabs(trial.result.unseen.new_blocks - 8000) < 1e-6);
	assert_true(trial.result.rows[1].blocks < 1e-6);
	calibrate_free(&trial.result);
}

/* Of what is in no pool with a known opener nothing is said. */
static void test_part(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 100);
	pools_run(&trial, 1);
	assert_true(fabs(trial.result.rows[1].blocks - 1600) < 1e-6);
	assert_true(fabs(trial.result.unseen.new_blocks - 6400) < 1e-6);
	assert_true(fabs(trial.result.unseen.new_bytes - 6400 * 64) < 1e-6);
	calibrate_free(&trial.result);
}

/* Where windows explain all blocks, pools say nothing. */
static void test_explained(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(0, 1, CALIBRATE_GROUPS, 300);
	pools_run(&trial, 1);
	assert_true(fabs(trial.result.rows[0].blocks - 6000) < 1e-6);
	assert_true(trial.result.rows[1].blocks < 1e-6);
	assert_true(trial.result.pool_blocks < 1e-6);
	calibrate_free(&trial.result);
}

/* A part of what is in the pools of the second row has been explained, of its 2000 blocks. */
static void test_partly_explained(void **state)
{
	static struct trial trial;
	double explained;
	(void)state;

	trial_run(&trial);
	calibrate_free(&trial.result);
	for (uint32_t i = 4 * WINDOWS - 10; i < 4 * WINDOWS; i++)
		trial.sampled_blocks[i].stratum = 1, trial.sampled_blocks[i].row = 2,
		trial.sampled_blocks[i].window = WINDOWS - 1;
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	explained = trial.result.rows[2].blocks;
	assert_true(explained > 200 && explained < 300);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 375);
	trial.taken[1] = taken_of(1, 2, CALIBRATE_GROUPS, 125);
	pools_run(&trial, 2);
	assert_true(fabs(trial.result.rows[1].blocks - 6000) < 1e-3);
	assert_true(fabs(trial.result.rows[2].blocks - 2000) < 1e-3);
	assert_true(trial.result.unseen.new_blocks < 1e-6);
	calibrate_free(&trial.result);

	/* They explain more of it than is in its pools: the others get the rest. */
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 490);
	trial.taken[1] = taken_of(1, 2, CALIBRATE_GROUPS, 10);
	pools_run(&trial, 2);
	assert_true(fabs(trial.result.rows[1].blocks - (8000 - explained)) < 1e-3);
	assert_true(fabs(trial.result.rows[2].blocks - explained) < 1e-3);
	calibrate_free(&trial.result);
}

/* A row of a single pool among others has an error as large as it is. */
static void test_error(void **state)
{
	static struct trial trial;
	double error;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(1, 1, CALIBRATE_GROUPS, 475);
	trial.taken[1] = taken_of(1, 2, 1, 400);
	pools_run(&trial, 2);
	error = error_of(&trial.result.rows[2]);
	assert_true(fabs(trial.result.rows[2].blocks - 400) < 1e-6);
	assert_true(error > 200 && error < 4000);
	/* They err against each other: the sum is certain. */
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		trial.result.rows[1].deviations[g] += trial.result.rows[2].deviations[g];
	assert_true(error_of(&trial.result.rows[1]) < 1e-2);
	calibrate_free(&trial.result);
}

static void test_refused(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	trial.taken[0] = taken_of(2, 1, 1, 1);
	assert_int_equal(pools_split(&trial.input, trial.taken, 1, &trial.result), -EINVAL);
	trial.taken[0] = taken_of(1, 1, 1, 1);
	trial.taken[0].keeps = NAN;
	assert_int_equal(pools_split(&trial.input, trial.taken, 1, &trial.result), -EINVAL);
	trial.taken[0] = taken_of(1, 3, 1, 1);
	assert_int_equal(pools_split(&trial.input, trial.taken, 1, &trial.result), -EINVAL);
	assert_true(trial.result.pool_blocks < 1e-6);
	calibrate_free(&trial.result);
}

/*
 * A burst in one of several cohorts that are joined for want of windows: what is not explained is
 * its.
 */
static void test_cohort(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	calibrate_free(&trial.result);
	trial.strata[1].type = 1;
	trial.strata[0].cohort = 1;
	trial.strata[1].cohort = 2;
	for (uint32_t i = 0; i < 4 * WINDOWS; i++)
		trial.sampled_blocks[i].window = i % 8;
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	assert_true(trial.result.unseen.new_blocks > 0);
	assert_true(trial.result.strata[0].new_blocks < 1e-6);
	assert_true(fabs(trial.result.strata[1].new_blocks - trial.result.unseen.new_blocks) <
		    1e-6);
	calibrate_free(&trial.result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_keeps),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_explained),
		cmocka_unit_test(test_partly_explained),
		cmocka_unit_test(test_error),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_cohort),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
