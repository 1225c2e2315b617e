/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of the estimator, made by hand. Included after cmocka.h. */
#pragma once

#include <math.h>

#include "snapshot/estimate/calibrate.h"

#define WINDOWS        60
#define SECOND         1000000000ull
#define SAMPLED_BLOCKS 4096

/* A trace of 60 s with a window of 40 ms in each second. */
struct trial {
	struct calibrate_stratum strata[64];
	struct calibrate_window windows[WINDOWS];
	struct calibrate_sampled_block sampled_blocks[SAMPLED_BLOCKS];
	struct calibrate_input input;
	struct calibrate_result result;
};

static inline void trial_begin(struct trial *trial)
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
		.sampled_blocks = trial->sampled_blocks,
		.row_count = 8,
	};
}

static inline uint32_t stratum_add(struct trial *trial, uint64_t type, uint32_t cohort,
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

/* Adds count sampled blocks in a window. */
static inline void sampled_blocks_add(struct trial *trial, uint32_t stratum, uint32_t window,
				      uint32_t row, uint32_t count, int alive, double inclusion)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_true(trial->input.sampled_block_count < SAMPLED_BLOCKS);
		trial->sampled_blocks[trial->input.sampled_block_count++] =
			(struct calibrate_sampled_block){stratum, window,    row, (uint32_t)alive,
							 0,       inclusion, NULL};
	}
}

/* The same in every window. */
static inline void sampled_blocks_spread(struct trial *trial, uint32_t stratum, uint32_t row,
					 uint32_t each)
{
	for (uint32_t window = 0; window < WINDOWS; window++)
		sampled_blocks_add(trial, stratum, window, row, each, 1, 0.04);
}

/* The target sleeps for that part of each window. */
static inline void idle_set(struct trial *trial, double idle)
{
	for (size_t i = 0; i < WINDOWS; i++)
		trial->windows[i].idle = idle;
}

static inline void trial_run(struct trial *trial)
{
	assert_int_equal(calibrate(&trial->input, &trial->result), 0);
}

static inline double error_of(const struct calibrate_estimate *row)
{
	return sqrt(calibrate_variance(row->deviations));
}

static inline void close_to(double value, double expected)
{
	if (fabs(value - expected) > 1e-6 * (1 + fabs(expected)))
		fail_msg("%g instead of %g", value, expected);
}

static inline double blocks_of(const struct trial *trial)
{
	double sum = 0;

	for (size_t i = 0; i < trial->result.row_count; i++)
		sum += trial->result.rows[i].blocks;
	return sum;
}
