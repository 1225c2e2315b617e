/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the cohorts of a cell came. Some of the new blocks may have come in a burst: a start-up,
 * a file that was loaded. Cohorts with far more than the median rate had one.
 */
#include <stdlib.h>

#include "calibrate/state.h"

/* Of the median rate: a cohort with more had a burst; with much more, it is a post-stratum. */
#define STEADY_MOST  2
#define BURST_LEAST  8
#define BURST_BLOCKS 100 /* fewer are none */

static double rate_of(const struct stretch *stretch)
{
	return stretch->ns > 0 ? stretch->blocks / stretch->ns : 0;
}

static int stretch_compare(const void *a, const void *b)
{
	double x = rate_of(a), y = rate_of(b);

	return x < y ? -1 : x > y;
}

static double cohort_ns(const struct calibrate_input *input, uint32_t cohort)
{
	return cohort < input->cohort_count ? (double)input->cohorts_ns[cohort] : 0;
}

/* The cohort's ranks from there on end here. */
static size_t cohort_end(const struct calibration *calibration, const struct cell *cell,
			 size_t rank)
{
	uint32_t cohort = stratum_at(calibration, rank)->cohort;

	while (rank < cell->strata_end && stratum_at(calibration, rank)->cohort == cohort)
		rank++;
	return rank;
}

static struct stretch stretch_of(const struct calibration *calibration, size_t rank, size_t end)
{
	struct stretch stretch = {
		.ns = cohort_ns(calibration->input, stratum_at(calibration, rank)->cohort)};

	for (; rank < end; rank++)
		stretch.blocks += (double)stratum_at(calibration, rank)->new_blocks;
	return stretch;
}

/* Half of the time it is less. Cohorts of which the cell has no blocks count, too. */
static double median_rate(struct stretch *stretches, size_t count, double all_ns)
{
	double ns = all_ns;

	for (size_t i = 0; i < count; i++)
		ns -= stretches[i].ns;
	qsort(stretches, count, sizeof(*stretches), stretch_compare);
	for (size_t i = 0; i < count; i++) {
		if (ns >= all_ns / 2)
			return i ? rate_of(&stretches[i - 1]) : 0;
		ns += stretches[i].ns;
	}
	return count ? rate_of(&stretches[count - 1]) : 0;
}

static enum pace pace_of(const struct stretch *stretch, double median)
{
	if (stretch->ns <= 0 || rate_of(stretch) <= STEADY_MOST * median)
		return PACE_STEADY;
	return median > 0 && stretch->blocks > BURST_BLOCKS &&
			       rate_of(stretch) > BURST_LEAST * median
		       ? PACE_BURST
		       : PACE_FAST;
}

/* If bursts are as frequent as they were, and as large. */
static void cell_older(struct cell *cell, const struct stretch *stretches, size_t count,
		       double median, double all_ns, double age_ns)
{
	double excess = 0;

	cell->fast_ns = 0;
	for (size_t i = 0; i < count; i++) {
		if (pace_of(&stretches[i], median) == PACE_STEADY)
			continue;
		cell->fast_ns += stretches[i].ns;
		excess += stretches[i].blocks - median * stretches[i].ns;
	}
	cell->steady_ns = all_ns - cell->fast_ns;
	cell->old_steady = median * age_ns;
	cell->old_bursts = excess / all_ns * age_ns;
}

static int cell_paces(struct calibration *calibration, struct cell *cell, double all_ns)
{
	struct stretch *stretches = calibration->stretches;
	size_t count = 0;
	double median;
	int bursts = 0;

	for (size_t rank = cell->strata, end; rank < cell->strata_end; rank = end) {
		end = cohort_end(calibration, cell, rank);
		stretches[count] = stretch_of(calibration, rank, end);
		count += stretches[count].ns > 0;
	}
	median = median_rate(stretches, count, all_ns);
	cell_older(cell, stretches, count, median, all_ns, (double)calibration->input->age_ns);
	for (size_t rank = cell->strata, end; rank < cell->strata_end; rank = end) {
		struct stretch stretch;
		enum pace pace;

		end = cohort_end(calibration, cell, rank);
		stretch = stretch_of(calibration, rank, end);
		pace = pace_of(&stretch, median);
		bursts |= pace == PACE_BURST;
		for (; rank < end; rank++)
			calibration->paces[calibration->order[rank]] = (uint8_t)pace;
	}
	return bursts;
}

int paces_find(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	double all_ns = 0;
	int bursts = 0;

	for (size_t i = 0; input->cohorts_ns && i < input->cohort_count; i++)
		all_ns += (double)input->cohorts_ns[i];
	for (size_t i = 0; all_ns > 0 && i < calibration->cell_count; i++)
		bursts |= cell_paces(calibration, &calibration->cells[i], all_ns);
	return bursts;
}
