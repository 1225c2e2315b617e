/* SPDX-License-Identifier: Apache-2.0 */
#include "windowed/pools_split.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"

/* A number of blocks, and the same without each group of pools. */
struct replicates {
	double whole;
	double without[CALIBRATE_GROUPS];
};

/* Of a stratum: its blocks in pools of known takers, and what rows are likely to keep of them. */
struct taken_sum {
	double blocks;
	struct replicates kept;
};

static double taken_blocks(const struct pools_taken *taken)
{
	double blocks = 0;

	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		blocks += taken->blocks[g];
	return blocks;
}

static struct replicates taken_kept(const struct pools_taken *taken)
{
	struct replicates kept = {.whole = taken->keeps * taken_blocks(taken)};

	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		kept.without[g] = kept.whole - taken->keeps * taken->blocks[g];
	return kept;
}

static void sum_add(struct taken_sum *sum, const struct pools_taken *taken)
{
	struct replicates kept = taken_kept(taken);

	sum->blocks += taken_blocks(taken);
	sum->kept.whole += kept.whole;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		sum->kept.without[g] += kept.without[g];
}

/* How many of the blocks that no window has shown are attributed. */
static double sum_attributed(const struct taken_sum *sum, const struct calibrate_unseen *unseen)
{
	return sum->kept.whole > 0 ? fmin(unseen->new_blocks, sum->blocks) : 0;
}

static void row_add(struct calibrate_estimate *row, const struct calibrate_unseen *unseen,
		    double blocks, const struct replicates *part, const struct replicates *all)
{
	/* the jackknife's factor */
	const double scale = sqrt((CALIBRATE_GROUPS - 1.0) / CALIBRATE_GROUPS);
	double whole = blocks * part->whole / all->whole;

	row->blocks += whole;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++) {
		double without =
			all->without[g] > 0 ? blocks * part->without[g] / all->without[g] : 0;

		row->deviations[g] +=
			(float)(scale * (without - whole) +
				(double)unseen->deviations[g] * whole / unseen->new_blocks);
	}
}

static void unseen_lessen(struct calibrate_result *result, uint32_t stratum, double blocks)
{
	struct calibrate_unseen *unseen = &result->strata[stratum];
	double bytes = unseen->new_blocks > 0 ? unseen->new_bytes * blocks / unseen->new_blocks : 0;

	unseen->new_blocks -= blocks;
	unseen->new_bytes -= bytes;
	result->unseen.new_blocks = fmax(0, result->unseen.new_blocks - blocks);
	result->unseen.new_bytes = fmax(0, result->unseen.new_bytes - bytes);
	result->pool_blocks += blocks;
	result->pool_bytes += bytes;
}

int pools_split(const struct calibrate_input *input, const struct pools_taken *taken, size_t count,
		struct calibrate_result *result)
{
	struct taken_sum *sums;

	for (size_t i = 0; i < count; i++)
		if (taken[i].stratum >= input->stratum_count || taken[i].row >= input->row_count ||
		    !(taken[i].keeps >= 0 && taken[i].keeps <= 1))
			return error_set(-EINVAL, "pools %zu name what does not exist", i);
	sums = calloc(input->stratum_count + 1, sizeof(*sums));
	if (!sums)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		sum_add(&sums[taken[i].stratum], &taken[i]);
	for (size_t i = 0; i < count; i++) {
		const struct calibrate_unseen *unseen = &result->strata[taken[i].stratum];
		const struct taken_sum *sum = &sums[taken[i].stratum];
		struct replicates kept = taken_kept(&taken[i]);
		double blocks = sum_attributed(sum, unseen);

		if (blocks > 0)
			row_add(&result->rows[taken[i].row], unseen, blocks, &kept, &sum->kept);
	}
	for (uint32_t i = 0; i < input->stratum_count; i++) {
		double blocks = sum_attributed(&sums[i], &result->strata[i]);

		if (blocks > 0)
			unseen_lessen(result, i, blocks);
	}
	free(sums);
	return 0;
}
