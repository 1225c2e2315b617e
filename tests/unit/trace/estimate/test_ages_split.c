/* SPDX-License-Identifier: Apache-2.0 */
/* What windows tell of rows, split by age: the sums stay, the parts have errors of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "snapshot/ages.h"
#include "trace/estimate/ages_split.h"

#define SECOND  1000000000ull
#define WINDOWS 32u
#define BLOCKS  3200u

/*
 * A block of row 0 in each window, of row 1 in those of the first half; row 2 no window has shown.
 * One window is open for 40 ms of each second.
 */
struct trial {
	struct calibrate_stratum stratum;
	struct calibrate_window windows[WINDOWS];
	struct calibrate_sampled_block sampled_blocks[2 * WINDOWS];
	struct block_ages ages[2 * WINDOWS];
	struct snapshot_trace rows[3], *out;
	struct calibrate_result before, after;
};

static void trial_run(struct trial *trial)
{
	struct calibrate_input input = {.strata = &trial->stratum,
					.stratum_count = 1,
					.windows = trial->windows,
					.window_count = WINDOWS,
					.sampled_blocks = trial->sampled_blocks,
					.row_count = 3};
	const struct row_age other = {.row = 2, .age_ns = 5 * SECOND, .blocks = 7};
	struct ages_input ages = {.sampled_blocks = trial->sampled_blocks,
				  .ages = trial->ages,
				  .others = &other,
				  .other_count = 1,
				  .row_count = 3,
				  .window_count = WINDOWS,
				  .most_ns = WINDOWS * SECOND};

	*trial = (struct trial){.stratum = {.type = 1,
					    .class_bytes = 64,
					    .new_blocks = BLOCKS,
					    .new_bytes = BLOCKS * 64ull}};
	for (uint32_t i = 0; i < WINDOWS; i++) {
		trial->windows[i] = (struct calibrate_window){.start_ns = i * SECOND,
							      .end_ns = i * SECOND + SECOND / 25,
							      .span_ns = SECOND};
		for (uint32_t row = 0; row < (i < WINDOWS / 2 ? 2 : 1); row++) {
			uint64_t age_ns = (WINDOWS - i) * SECOND;

			trial->ages[input.sampled_block_count] =
				(struct block_ages){age_ns, age_ns - SECOND / 2};
			trial->sampled_blocks[input.sampled_block_count++] =
				(struct calibrate_sampled_block){
					.window = i, .row = row, .alive = 1, .inclusion = 0.04};
		}
	}
	ages.sampled_count = input.sampled_block_count;
	assert_int_equal(calibrate(&input, &trial->before), 0);
	assert_int_equal(calibrate(&input, &trial->after), 0);
	assert_int_equal(ages_split(&ages, trial->rows, &trial->out, &trial->after), 0);
	assert_int_equal(trial->after.row_count, WINDOWS + WINDOWS / 2 + 1);
}

static void trial_end(struct trial *trial)
{
	free(trial->out);
	calibrate_free(&trial->before);
	calibrate_free(&trial->after);
}

/* Those of a row (they are of one row, one after the other) that are at least so old. */
static struct calibrate_estimate sum_of(const struct trial *trial, size_t first, size_t end,
					uint64_t least_ms)
{
	struct calibrate_estimate sum = {0};

	for (size_t i = first; i < end; i++) {
		const struct calibrate_estimate *row = &trial->after.rows[i];

		assert_true(trial->out[i].age != AGE_UNKNOWN);
		if (trial->out[i].age < least_ms)
			continue;
		sum.blocks += row->blocks;
		for (size_t g = 0; g < CALIBRATE_DEVIATIONS; g++)
			sum.deviations[g] += row->deviations[g];
	}
	return sum;
}

static double error_of(const struct calibrate_estimate *estimate)
{
	return sqrt(calibrate_variance(estimate->deviations));
}

static void check_near(double value, double expected)
{
	assert_true(fabs(value - expected) <= fabs(expected) * 1e-3 + 1e-3);
}

/* Whatever it is split into, a row is what it was, with its error. */
static void sums_stay(void **state)
{
	static struct trial trial;
	struct calibrate_estimate sum;
	(void)state;

	trial_run(&trial);
	for (size_t row = 0; row < 2; row++) {
		sum = sum_of(&trial, row * WINDOWS, row ? WINDOWS + WINDOWS / 2 : WINDOWS, 0);
		check_near(sum.blocks, trial.before.rows[row].blocks);
		check_near(error_of(&sum), error_of(&trial.before.rows[row]));
	}
	trial_end(&trial);
}

static void parts_by_age(void **state)
{
	static struct trial trial;
	struct calibrate_estimate old, all;
	(void)state;

	trial_run(&trial);
	all = sum_of(&trial, 0, WINDOWS, 0);
	old = sum_of(&trial, 0, WINDOWS, WINDOWS / 2 * 1000);
	check_near(old.blocks, all.blocks / 2);
	/* All windows have shown the same: that is as good as a row of its own. */
	assert_true(error_of(&old) < 0.2 * old.blocks);
	all = sum_of(&trial, WINDOWS, WINDOWS + WINDOWS / 2, 0);
	old = sum_of(&trial, WINDOWS, WINDOWS + WINDOWS / 2, WINDOWS / 2 * 1000);
	check_near(old.blocks, all.blocks);
	/* One window has shown it: it may be none, or twice as many. */
	assert_true(error_of(&trial.after.rows[3]) > 0.9 * trial.after.rows[3].blocks);
	trial_end(&trial);
}

/* What only pools tell of is as old as their blocks. */
static void pools_have_ages(void **state)
{
	static struct trial trial;
	(void)state;

	trial_run(&trial);
	assert_int_equal(trial.out[WINDOWS + WINDOWS / 2].age, ages_round(5 * SECOND, UINT64_MAX));
	trial_end(&trial);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_stay),
		cmocka_unit_test(parts_by_age),
		cmocka_unit_test(pools_have_ages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
