/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from windows: the split of a stratum, what is older, errors, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "calibrate_trial.h"

/*
 * Donors split a cohort whose own windows showed nothing, by their weights. They are not seen
 * blocks, and tell nothing about the other cohorts.
 */
static void test_donor(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t before = stratum_add(&trial, 1, 1, 6000, 0),
		 newest = stratum_add(&trial, 1, 2, 450, 0);
	sampled_blocks_spread(&trial, before, 0, 4);
	for (uint32_t window = 0; window < WINDOWS; window++) {
		sampled_blocks_add(&trial, newest, window, 0, 1, 1, 0.2);
		sampled_blocks_add(&trial, newest, window, 1, 5, 1, 2);
		for (size_t i = 1; i <= 6; i++)
			trial.sampled_blocks[trial.input.sampled_block_count - i].donor = 1;
	}
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000 + 300);
	close_to(trial.result.rows[1].blocks, 150);
	assert_int_equal(trial.result.seen_blocks, 4 * WINDOWS);
	calibrate_free(&trial.result);
	/* A real sampled block stands for one block at least. */
	trial.sampled_blocks[trial.input.sampled_block_count - 1].donor = 0;
	assert_int_equal(calibrate(&trial.input, &trial.result), -EINVAL);
}

static void test_split(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 5000, 0),
		 dict = stratum_add(&trial, 2, 0, 6000, 0);
	sampled_blocks_spread(&trial, list, 0, 3);
	sampled_blocks_spread(&trial, list, 1, 1);
	sampled_blocks_spread(&trial, dict, 1, 4);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 3750);
	close_to(trial.result.rows[1].blocks, 1250 + 6000);
	close_to(trial.result.rows[2].blocks, 0);
	close_to(trial.result.unseen.new_blocks, 0);
	close_to(trial.result.speed, 1);
	close_to(trial.result.time_share, 0.04);
	close_to(trial.result.blocks_share, 8 * WINDOWS / 11000.0);
	assert_int_equal(trial.result.windows, WINDOWS);
	/* Every window shows the same, so only rows that none shows are uncertain: 1 in 61. */
	double known = 1 - 240 / 5000.0, known_dict = 1 - 240 / 6000.0;
	close_to(error_of(&trial.result.rows[0]), 3750 * known / 61);
	close_to(error_of(&trial.result.rows[1]), (1250 * known + 6000 * known_dict) / 61);
	calibrate_free(&trial.result);
}

/* A sampled block stands for as many blocks as its probability was small. */
static void test_probabilities(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 2250, 0);
	for (uint32_t window = 0; window < WINDOWS; window++)
		sampled_blocks_add(&trial, list, window, window < 30, 1, 1,
				   window < 30 ? 0.04 : 0.02);
	trial_run(&trial);
	close_to(trial.result.rows[1].blocks, 750);
	close_to(trial.result.rows[0].blocks, 1500);
	calibrate_free(&trial.result);
}

static void test_unseen(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	uint32_t set = stratum_add(&trial, 2, 0, 1000, 70);
	sampled_blocks_spread(&trial, list, 0, 4);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.strata[list].new_blocks, 0);
	close_to(trial.result.strata[set].new_blocks, 1000);
	close_to(trial.result.strata[set].new_bytes, 64000);
	close_to(trial.result.strata[set].old_blocks, 70);
	close_to(trial.result.unseen.new_bytes, 64000);
	close_to(trial.result.unseen.old_bytes, 64 * 70);
	calibrate_free(&trial.result);
}

static void test_older(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 800),
		 dict = stratum_add(&trial, 2, 0, 0, 500);
	stratum_add(&trial, 3, 0, 0, 200);
	sampled_blocks_spread(&trial, list, 0, 3);
	sampled_blocks_spread(&trial, list, 1, 1);
	/* Dead sampled blocks count for nothing where some are alive. */
	sampled_blocks_add(&trial, list, 7, 2, 100, 0, 0.04);
	sampled_blocks_add(&trial, dict, 7, 2, 3, 0, 0.04);
	sampled_blocks_add(&trial, dict, 9, 3, 1, 0, 0.04);
	trial_run(&trial);
	close_to(trial.result.old_rows[0].blocks, 600);
	close_to(trial.result.old_rows[1].blocks, 200);
	close_to(trial.result.old_rows[2].blocks, 375);
	close_to(trial.result.old_rows[3].blocks, 125);
	close_to(trial.result.unseen.old_blocks, 200);
	close_to(trial.result.rows[2].blocks, 0);
	close_to(blocks_of(&trial), 6000);
	assert_true(error_of(&trial.result.old_rows[2]) > 100);
	calibrate_free(&trial.result);
}

static void test_errors(void **state)
{
	static struct trial trial;
	(void)state;

	/* One window that shows all of it: the error is as large as the estimate. */
	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	sampled_blocks_add(&trial, list, 5, 0, 240, 1, 0.04);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	assert_true(error_of(&trial.result.rows[0]) > 6000);
	calibrate_free(&trial.result);

	/* Nothing is uncertain where every block was seen. */
	trial_begin(&trial);
	list = stratum_add(&trial, 1, 0, 240, 0);
	sampled_blocks_spread(&trial, list, 0, 3);
	sampled_blocks_spread(&trial, list, 1, 1);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 180);
	close_to(error_of(&trial.result.rows[0]), 0);
	calibrate_free(&trial.result);

	/* A trace of a single window. */
	trial_begin(&trial);
	list = stratum_add(&trial, 1, 0, 1000, 0);
	sampled_blocks_add(&trial, list, 0, 0, 10, 1, 0.04);
	sampled_blocks_add(&trial, list, 0, 1, 10, 1, 0.04);
	trial.input.window_count = 1;
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 500);
	assert_true(error_of(&trial.result.rows[0]) >= 500);
	calibrate_free(&trial.result);
}

/* What one row gains another loses: the sum of two rows of a stratum is better known. */
static void test_sums(void **state)
{
	static struct trial trial;
	float sum[CALIBRATE_DEVIATIONS];
	double error;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	for (uint32_t window = 0; window < WINDOWS; window++)
		sampled_blocks_add(&trial, list, window, window % 7 < 3, 1 + window % 5, 1, 0.04);
	trial_run(&trial);
	assert_true(error_of(&trial.result.rows[0]) > 300);
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++)
		sum[i] = trial.result.rows[0].deviations[i] + trial.result.rows[1].deviations[i];
	error = sqrt(calibrate_variance(sum));
	/* What is left is for rows that no window has shown; by Kish there are 49 equal windows. */
	close_to(error, (6000 - 180) / (60 * 9 / 11.0 + 1));
	calibrate_free(&trial.result);
}

static void refuse(struct trial *trial)
{
	const struct calibrate_result untouched = {.windows = 77};

	trial->result = untouched;
	assert_int_equal(calibrate(&trial->input, &trial->result), -EINVAL);
	assert_int_equal(trial->result.windows, 77);
}

static void test_refused(void **state)
{
	static struct trial trial;
	static const double not_probable[] = {0, -1, 1.5, NAN, 1e-300};
	(void)state;

	trial_begin(&trial);
	stratum_add(&trial, 1, 0, 6000, 0);
	for (size_t i = 0; i < sizeof(not_probable) / sizeof(*not_probable); i++) {
		trial.input.sampled_block_count = 0;
		sampled_blocks_add(&trial, 0, 0, 0, 1, 1, not_probable[i]);
		refuse(&trial);
	}
	trial.input.sampled_block_count = 0;
	sampled_blocks_add(&trial, 1, 0, 0, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sampled_block_count = 0;
	sampled_blocks_add(&trial, 0, WINDOWS, 0, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sampled_block_count = 0;
	sampled_blocks_add(&trial, 0, 0, 8, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sampled_block_count = 0;
	trial.windows[3].idle = 1.5;
	refuse(&trial);
	trial.windows[3].idle = NAN;
	refuse(&trial);
	trial.windows[3].idle = 0;
	trial.windows[3].end_ns = 0;
	refuse(&trial);
}

static void test_empty(void **state)
{
	const struct calibrate_input nothing = {0};
	struct calibrate_result result;
	static struct trial trial;
	(void)state;

	assert_int_equal(calibrate(&nothing, &result), 0);
	close_to(result.unseen.new_blocks + result.time_share + result.blocks_share, 0);
	calibrate_free(&result);
	trial_begin(&trial);
	stratum_add(&trial, 1, 0, 6000, 10);
	trial_run(&trial);
	close_to(trial.result.unseen.new_blocks, 6000);
	close_to(trial.result.unseen.old_blocks, 10);
	calibrate_free(&trial.result);
	/* Sampled blocks in a stratum that holds nothing. */
	sampled_blocks_add(&trial, 0, 1, 0, 2, 1, 0.04);
	trial.strata[0].new_blocks = 0;
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 0);
	close_to(trial.result.old_rows[0].blocks, 10);
	calibrate_free(&trial.result);
}

/*
 * Everything but 100 blocks a second came in the first two seconds of the trace. The blocks before
 * it were made at that rate; those beyond in such bursts; and the rest are like all new ones.
 */
static void test_older_burst(void **state)
{
	static const uint64_t cohorts_ns[] = {0, 15 * SECOND, 15 * SECOND, 15 * SECOND,
					      15 * SECOND};
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	for (uint32_t cohort = 1; cohort <= 4; cohort++) {
		uint32_t list = stratum_add(&trial, 1, cohort, cohort == 1 ? 7500 : 1500,
					    cohort == 1 ? 2000 : 0);

		for (uint32_t window = 15 * (cohort - 1); window < 15 * cohort; window++) {
			sampled_blocks_add(&trial, list, window, 0, 4, 1, 0.04);
			sampled_blocks_add(&trial, list, window, 1, window < 2 ? 120 : 0, 1, 0.04);
		}
	}
	trial_run(&trial);
	close_to(trial.result.old_rows[0].blocks, 2000 * 6000 / 12000.0);
	calibrate_free(&trial.result);
	trial.input.cohorts_ns = cohorts_ns;
	trial.input.cohort_count = sizeof(cohorts_ns) / sizeof(cohorts_ns[0]);
	trial.input.age_ns = 30 * SECOND;
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.old_rows[0].blocks, 2000);
	calibrate_free(&trial.result);
	/* At that rate there were 1000 of them. One such burst a minute makes another 1000. */
	trial.input.age_ns = 10 * SECOND;
	trial_run(&trial);
	close_to(trial.result.old_rows[0].blocks, 1000);
	close_to(trial.result.old_rows[1].blocks, 1000);
	calibrate_free(&trial.result);
	trial.input.age_ns = 5 * SECOND;
	trial_run(&trial);
	close_to(trial.result.old_rows[0].blocks, 500 + 1000 * 6000 / 12000.0);
	calibrate_free(&trial.result);
}

/*
 * The first window has shown all of its time. What it alone has shown may come in the dark as well
 * as what another window alone has shown.
 */
static void test_errors_single(void **state)
{
	static struct trial trial;
	uint32_t list;
	double first, other;
	(void)state;

	trial_begin(&trial);
	list = stratum_add(&trial, 1, 0, 59 * 4 * 25 + 4 + 1 + 25, 0);
	trial.windows[0].end_ns = SECOND;
	for (uint32_t window = 0; window < WINDOWS; window++)
		sampled_blocks_add(&trial, list, window, 0, 4, 1, window ? 0.04 : 1);
	sampled_blocks_add(&trial, list, 0, 1, 1, 1, 1);
	sampled_blocks_add(&trial, list, 30, 2, 1, 1, 0.04);
	trial_run(&trial);
	close_to(trial.result.rows[1].blocks, 1);
	close_to(trial.result.rows[2].blocks, 25);
	first = sqrt(calibrate_variance(trial.result.rows[1].deviations));
	other = sqrt(calibrate_variance(trial.result.rows[2].deviations));
	assert_true(first > other / 2 && first < other * 2);
	calibrate_free(&trial.result);
}

/* Of WINDOWS_MANY windows: what follows changes no group, and 16 in a row are of 16 groups. */
#define WINDOWS_MANY 100

static void test_groups(void **state)
{
	uint8_t all[WINDOWS_MANY], some[WINDOWS_MANY];
	int same = 1;

	(void)state;
	assert_int_equal(calibrate_groups(WINDOWS_MANY, all), CALIBRATE_GROUPS);
	for (size_t count = 0; count < WINDOWS_MANY; count++) {
		uint32_t groups = calibrate_groups(count, some);

		assert_int_equal(groups, count < CALIBRATE_GROUPS ? count : CALIBRATE_GROUPS);
		assert_memory_equal(some, all, count);
	}
	for (size_t i = 0; i + CALIBRATE_GROUPS <= WINDOWS_MANY; i += CALIBRATE_GROUPS) {
		uint32_t seen = 0;

		for (size_t k = 0; k < CALIBRATE_GROUPS; k++)
			seen |= 1u << all[i + k];
		assert_int_equal(seen, (1u << CALIBRATE_GROUPS) - 1);
		same &= !memcmp(all, all + i, CALIBRATE_GROUPS);
	}
	assert_false(same);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_donor),         cmocka_unit_test(test_split),
		cmocka_unit_test(test_probabilities), cmocka_unit_test(test_unseen),
		cmocka_unit_test(test_older),         cmocka_unit_test(test_older_burst),
		cmocka_unit_test(test_errors),        cmocka_unit_test(test_sums),
		cmocka_unit_test(test_errors_single), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_empty),         cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
