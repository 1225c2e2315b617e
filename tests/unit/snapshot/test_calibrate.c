/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from windows: totals, what is unseen, what is older, errors, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "snapshot/calibrate.h"

#define WINDOWS   60
#define SECOND    1000000000ull
#define SIGHTINGS 4096

/* A trace of 60 s with a window of 40 ms in each second. */
struct trial {
	struct calibrate_stratum strata[64];
	struct calibrate_window windows[WINDOWS];
	struct calibrate_sighting sightings[SIGHTINGS];
	struct calibrate_input input;
	struct calibrate_result result;
};

static void trial_begin(struct trial *trial)
{
	*trial = (struct trial){0};
	for (uint64_t i = 0; i < WINDOWS; i++)
		trial->windows[i] = (struct calibrate_window){.start_ns = i * SECOND,
							      .end_ns = i * SECOND + SECOND / 25,
							      .span_ns = SECOND};
	trial->input = (struct calibrate_input){
		.strata = trial->strata,
		.windows = trial->windows,
		.window_count = WINDOWS,
		.sightings = trial->sightings,
		.row_count = 8,
	};
}

static uint32_t stratum_add(struct trial *trial, uint64_t type, uint32_t cohort,
			    uint64_t new_blocks, uint64_t old_blocks)
{
	uint32_t index = (uint32_t)trial->input.stratum_count++;

	trial->strata[index] = (struct calibrate_stratum){
		.type = type,
		.class_bytes = 64,
		.cohort = cohort,
		.new_blocks = new_blocks,
		.new_bytes = new_blocks * 64,
		.old_blocks = old_blocks,
		.old_bytes = old_blocks * 64,
	};
	return index;
}

/* Adds count sightings in a window. */
static void sightings_add(struct trial *trial, uint32_t stratum, uint32_t window, uint32_t row,
			  uint32_t count, int alive, double inclusion)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_true(trial->input.sighting_count < SIGHTINGS);
		trial->sightings[trial->input.sighting_count++] = (struct calibrate_sighting){
			stratum, window, row, (uint32_t)alive, 0, inclusion, NULL};
	}
}

/* The same in every window. */
static void sightings_spread(struct trial *trial, uint32_t stratum, uint32_t row, uint32_t each)
{
	for (uint32_t window = 0; window < WINDOWS; window++)
		sightings_add(trial, stratum, window, row, each, 1, 0.04);
}

static void trial_run(struct trial *trial)
{
	assert_int_equal(calibrate(&trial->input, &trial->result), 0);
}

static double error_of(const struct calibrate_estimate *row)
{
	return sqrt(calibrate_variance(row->deviations));
}

static void close_to(double value, double expected)
{
	if (fabs(value - expected) > 1e-6 * (1 + fabs(expected)))
		fail_msg("%g instead of %g", value, expected);
}

static double blocks_of(const struct trial *trial)
{
	double sum = 0;

	for (size_t i = 0; i < trial->result.row_count; i++)
		sum += trial->result.rows[i].blocks;
	return sum;
}

/*
 * Likenesses split a cohort whose own windows showed nothing, by their weights. They are not seen
 * blocks, and tell nothing about the other cohorts.
 */
static void test_likeness(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t before = stratum_add(&trial, 1, 1, 6000, 0),
		 newest = stratum_add(&trial, 1, 2, 450, 0);
	sightings_spread(&trial, before, 0, 4);
	for (uint32_t window = 0; window < WINDOWS; window++) {
		sightings_add(&trial, newest, window, 0, 1, 1, 0.2);
		sightings_add(&trial, newest, window, 1, 5, 1, 2);
		for (size_t i = 1; i <= 6; i++)
			trial.sightings[trial.input.sighting_count - i].likeness = 1;
	}
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000 + 300);
	close_to(trial.result.rows[1].blocks, 150);
	assert_int_equal(trial.result.seen_blocks, 4 * WINDOWS);
	calibrate_free(&trial.result);
	/* A real sighting stands for one block at least. */
	trial.sightings[trial.input.sighting_count - 1].likeness = 0;
	assert_int_equal(calibrate(&trial.input, &trial.result), -EINVAL);
}

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
	trial.input.progress_least = 0.01;
	sightings_add(&trial, known, 0, 0, 350, 1, 1);
	sightings_add(&trial, shown, 2, 1, 90, 1, 0.6);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 350);
	close_to(trial.result.rows[1].blocks, 40000);
	close_to(trial.result.unseen.new_blocks, 0);
	calibrate_free(&trial.result);
}

static void test_split(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 5000, 0),
		 dict = stratum_add(&trial, 2, 0, 6000, 0);
	sightings_spread(&trial, list, 0, 3);
	sightings_spread(&trial, list, 1, 1);
	sightings_spread(&trial, dict, 1, 4);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 3750);
	close_to(trial.result.rows[1].blocks, 1250 + 6000);
	close_to(trial.result.rows[2].blocks, 0);
	close_to(trial.result.unseen.new_blocks, 0);
	close_to(trial.result.progress, 1);
	close_to(trial.result.time_share, 0.04);
	close_to(trial.result.blocks_share, 8 * WINDOWS / 11000.0);
	assert_int_equal(trial.result.windows, WINDOWS);
	/* Every window shows the same, so only rows that none shows are uncertain: 1 in 61. */
	double known = 1 - 240 / 5000.0, known_dict = 1 - 240 / 6000.0;
	close_to(error_of(&trial.result.rows[0]), 3750 * known / 61);
	close_to(error_of(&trial.result.rows[1]), (1250 * known + 6000 * known_dict) / 61);
	calibrate_free(&trial.result);
}

/* A sighting stands for as many blocks as its probability was small. */
static void test_probabilities(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 3000, 0);
	for (uint32_t window = 0; window < WINDOWS; window++)
		sightings_add(&trial, list, window, window < 30, 1, 1, window < 30 ? 0.04 : 0.02);
	trial_run(&trial);
	close_to(trial.result.rows[1].blocks, 1000);
	close_to(trial.result.rows[0].blocks, 2000);
	calibrate_free(&trial.result);
}

static void test_unseen(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	uint32_t set = stratum_add(&trial, 2, 0, 1000, 70);
	sightings_spread(&trial, list, 0, 4);
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

/* Types of a few blocks are split like others of their size class; nothing is lost. */
static void test_rare(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 6000, 0);
	sightings_spread(&trial, list, 0, 4);
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t rare = stratum_add(&trial, 10 + i, 0, 20, 0);

		if (i < 16)
			sightings_add(&trial, rare, i * 3, 1 + i % 4 / 3, 1, 1, 0.04);
	}
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.rows[1].blocks, 300);
	close_to(trial.result.rows[2].blocks, 100);
	close_to(blocks_of(&trial) + trial.result.unseen.new_blocks, 6400);
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
	sightings_spread(&trial, list, 0, 4);
	sightings_spread(&trial, dict, 1, 4);
	trial_run(&trial);
	close_to(trial.result.progress, 1);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.strata[burst].new_blocks, 50000);
	calibrate_free(&trial.result);

	/* The same if cohorts are not known: the weight of the sightings tells. */
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
	sightings_spread(&trial, stratum_add(&trial, 1, 0, 60000, 0), 0, 4);
	trial_run(&trial);
	close_to(trial.result.progress, 0.1);
	close_to(trial.result.rows[0].blocks, 60000);
	calibrate_free(&trial.result);

	trial.input.progress_least = 0.75;
	trial_run(&trial);
	close_to(trial.result.progress, 1);
	close_to(trial.result.rows[0].blocks, 6000);
	close_to(trial.result.unseen.new_blocks, 54000);
	calibrate_free(&trial.result);
}

/* The target does a tenth in windows: the sightings stand for all the same. */
static void test_progress(void **state)
{
	static struct trial trial;
	(void)state;

	trial_begin(&trial);
	uint32_t list = stratum_add(&trial, 1, 0, 60000, 0),
		 dict = stratum_add(&trial, 2, 0, 30000, 0);
	sightings_spread(&trial, list, 0, 4);
	sightings_spread(&trial, dict, 1, 2);
	trial_run(&trial);
	close_to(trial.result.progress, 0.1);
	close_to(trial.result.rows[0].blocks, 60000);
	close_to(trial.result.unseen.new_blocks, 0);
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
	sightings_spread(&trial, list, 0, 3);
	sightings_spread(&trial, list, 1, 1);
	/* Dead sightings count for nothing where some are alive. */
	sightings_add(&trial, list, 7, 2, 100, 0, 0.04);
	sightings_add(&trial, dict, 7, 2, 3, 0, 0.04);
	sightings_add(&trial, dict, 9, 3, 1, 0, 0.04);
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
	sightings_add(&trial, list, 5, 0, 240, 1, 0.04);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 6000);
	assert_true(error_of(&trial.result.rows[0]) > 6000);
	calibrate_free(&trial.result);

	/* Nothing is uncertain where every block was seen. */
	trial_begin(&trial);
	list = stratum_add(&trial, 1, 0, 240, 0);
	sightings_spread(&trial, list, 0, 3);
	sightings_spread(&trial, list, 1, 1);
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 180);
	close_to(error_of(&trial.result.rows[0]), 0);
	calibrate_free(&trial.result);

	/* A trace of a single window. */
	trial_begin(&trial);
	list = stratum_add(&trial, 1, 0, 1000, 0);
	sightings_add(&trial, list, 0, 0, 10, 1, 0.04);
	sightings_add(&trial, list, 0, 1, 10, 1, 0.04);
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
		sightings_add(&trial, list, window, window % 7 < 3, 1 + window % 5, 1, 0.04);
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

/* Strings of two lengths and one size class, of a line each. */
static void family_begin(struct trial *trial, uint32_t windows)
{
	trial_begin(trial);
	stratum_add(trial, 65, 0, 3000, 100);
	stratum_add(trial, 66, 0, 2000, 50);
	trial->strata[0].family = trial->strata[1].family = 64;
	sightings_spread(trial, 0, 0, 1);
	for (uint32_t window = 0; window < windows; window++)
		sightings_add(trial, 1, window, 1, 60 / windows, 1, 0.04);
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
	sightings_spread(&trial, 0, 0, 1);
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
		sightings_add(&trial, first, window, 0, 3, 1, 0.04);
		sightings_add(&trial, first, window, 1, 1, 1, 0.04);
	}
	for (uint32_t window = 40; window < 42; window++)
		sightings_add(&trial, left, window, 0, 4, 1, 0.04);
	for (uint32_t window = 46; window < WINDOWS; window++)
		sightings_add(&trial, newest, window, 2, 3, 1, 0.04);
	assert_int_equal(calibrate(&trial.input, &trial.result), 0);
	/* Of 168 sightings for 4400 blocks it has 40, not 40 of 160 for 4000. */
	assert_true(fabs(trial.result.rows[1].blocks - 4400.0 * 40 / 168) < 1e-6);
	assert_true(fabs(trial.result.rows[2].blocks - 1000) < 1e-6);
	calibrate_free(&trial.result);
}

static void test_refused(void **state)
{
	static struct trial trial;
	static const double not_probable[] = {0, -1, 1.5, NAN, 1e-300};
	(void)state;

	trial_begin(&trial);
	stratum_add(&trial, 1, 0, 6000, 0);
	for (size_t i = 0; i < sizeof(not_probable) / sizeof(*not_probable); i++) {
		trial.input.sighting_count = 0;
		sightings_add(&trial, 0, 0, 0, 1, 1, not_probable[i]);
		refuse(&trial);
	}
	trial.input.sighting_count = 0;
	sightings_add(&trial, 1, 0, 0, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sighting_count = 0;
	sightings_add(&trial, 0, WINDOWS, 0, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sighting_count = 0;
	sightings_add(&trial, 0, 0, 8, 1, 1, 0.04);
	refuse(&trial);
	trial.input.sighting_count = 0;
	trial.input.progress_least = 1.5;
	refuse(&trial);
	trial.input.progress_least = 0;
	trial.input.progress = NAN;
	refuse(&trial);
	trial.input.progress = 0;
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
	/* Sightings in a stratum that holds nothing. */
	sightings_add(&trial, 0, 1, 0, 2, 1, 0.04);
	trial.strata[0].new_blocks = 0;
	trial_run(&trial);
	close_to(trial.result.rows[0].blocks, 0);
	close_to(trial.result.old_rows[0].blocks, 10);
	calibrate_free(&trial.result);
}

/* A lower bound of the blocks is the total, unless sightings stand for far more: then they are. */
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
		sightings_spread(&trial, known, 0, 1);
		least = stratum_add(&trial, 2, 0, cases[i].least, 0);
		trial.strata[least].class_bytes = 65;
		trial.strata[least].least = 1;
		trial.strata[least].most_blocks = cases[i].most;
		sightings_spread(&trial, least, 1, 3);
		sightings_spread(&trial, least, 2, 1);
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
		sightings_add(&trial, 0, window, 0, 1 + window % 5, 1, 0.04);
	trial_run(&trial);
	assert_true(trial.result.rows[0].blocks > 1000 && trial.result.rows[0].blocks < 3000);
	assert_true(trial.result.progress == 1);
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
		sightings_spread(&trial, 0, 0, 1);
		stratum_add(&trial, 2, 0, 0, 0);
		trial.strata[1].class_bytes = 65;
		trial.strata[1].least = 1;
		trial.strata[1].most_blocks = 700;
		for (uint32_t window = 0; window < windows; window++)
			sightings_add(&trial, 1, 7 + 10 * window, 1, 1, 1, 0.04);
		trial_run(&trial);
		close_to(trial.result.rows[0].blocks, 1500);
		close_to(trial.result.rows[1].blocks, windows == 1 ? 1 : 75);
		assert_true(error_of(&trial.result.rows[1]) * 1.96 > 25 * windows);
		close_to(trial.result.unseen.new_blocks, 0);
		calibrate_free(&trial.result);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_likeness),     cmocka_unit_test(test_split),
		cmocka_unit_test(test_whole),        cmocka_unit_test(test_probabilities),
		cmocka_unit_test(test_unseen),       cmocka_unit_test(test_rare),
		cmocka_unit_test(test_burst),        cmocka_unit_test(test_burst_of_an_idle_target),
		cmocka_unit_test(test_progress),     cmocka_unit_test(test_older),
		cmocka_unit_test(test_errors),       cmocka_unit_test(test_sums),
		cmocka_unit_test(test_left),         cmocka_unit_test(test_family),
		cmocka_unit_test(test_family_older), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_empty),        cmocka_unit_test(test_least),
		cmocka_unit_test(test_least_error),  cmocka_unit_test(test_least_lone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
