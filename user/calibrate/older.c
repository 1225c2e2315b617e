/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks older than the trace. Some of the new blocks may have come in a burst: a start-up, a file
 * that was loaded. Of older blocks these say little, while lines at steady rates have worked
 * before, too. So a cohort with more than twice the median rate of its cell is taken for a burst,
 * and older blocks are split like the other cohorts, as many as that rate explains in the target's
 * age.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "calibrate/state.h"

/* Of the median rate: a cohort with more had a burst. */
#define STEADY_MOST 2

/* The blocks that a cell has of one cohort, and the time in which they came. */
struct pace {
	double blocks, ns;
};

static double rate_of(const struct pace *pace)
{
	return pace->ns > 0 ? pace->blocks / pace->ns : 0;
}

static int pace_compare(const void *a, const void *b)
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

static struct pace pace_of(const struct calibration *calibration, size_t rank, size_t end)
{
	struct pace pace = {
		.ns = cohort_ns(calibration->input, stratum_at(calibration, rank)->cohort)};

	for (; rank < end; rank++)
		pace.blocks += (double)stratum_at(calibration, rank)->new_blocks;
	return pace;
}

/* Half of the time it is less. Cohorts of which the cell has no blocks count, too. */
static double median_rate(struct pace *paces, size_t count, double all_ns)
{
	double ns = all_ns;

	for (size_t i = 0; i < count; i++)
		ns -= paces[i].ns;
	qsort(paces, count, sizeof(*paces), pace_compare);
	for (size_t i = 0; i < count; i++) {
		if (ns >= all_ns / 2)
			return i ? rate_of(&paces[i - 1]) : 0;
		ns += paces[i].ns;
	}
	return count ? rate_of(&paces[count - 1]) : 0;
}

static void cell_steady(struct calibration *calibration, struct cell *cell, struct pace *paces,
			double all_ns)
{
	size_t count = 0;
	double rate;

	for (size_t rank = cell->strata, end; rank < cell->strata_end; rank = end) {
		end = cohort_end(calibration, cell, rank);
		paces[count] = pace_of(calibration, rank, end);
		count += paces[count].ns > 0;
	}
	rate = median_rate(paces, count, all_ns);
	cell->steady = rate * (double)calibration->input->age_ns;
	for (size_t rank = cell->strata, end; rank < cell->strata_end; rank = end) {
		struct pace pace;

		end = cohort_end(calibration, cell, rank);
		pace = pace_of(calibration, rank, end);
		for (; rank < end; rank++)
			calibration->steady[rank] =
				pace.ns <= 0 || rate_of(&pace) <= STEADY_MOST * rate;
	}
}

int steady_find(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	struct pace *paces = calloc(input->stratum_count + 1, sizeof(*paces));
	double all_ns = 0;

	if (!paces)
		return -ENOMEM;
	for (size_t i = 0; i < input->stratum_count; i++)
		calibration->steady[i] = 1;
	for (size_t i = 0; input->cohorts_ns && i < input->cohort_count; i++)
		all_ns += (double)input->cohorts_ns[i];
	for (size_t i = 0; all_ns > 0 && i < calibration->cell_count; i++)
		cell_steady(calibration, &calibration->cells[i], paces, all_ns);
	free(paces);
	return 0;
}

static const struct replicates *part_of(const struct slot *slot, int by_blocks)
{
	return by_blocks ? &slot->blocks : &slot->weight;
}

static void sum_add(struct replicates *sum, const struct replicates *part)
{
	sum->whole += part->whole;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		sum->without[g] += part->without[g];
}

void older_split(struct calibration *calibration, const struct cell *cell, int by_blocks,
		 double unseen)
{
	struct replicates all = {0}, all_steady = {0};
	double total = 0, steady;

	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		total += (double)stratum_at(calibration, rank)->old_blocks;
	for (uint32_t i = 0; i < calibration->slot_count; i++) {
		sum_add(&all, part_of(&calibration->slots[i], by_blocks));
		sum_add(&all_steady, &calibration->slots[i].steady);
	}
	steady = all_steady.whole > 0 ? fmin(total, cell->steady) : 0;
	for (uint32_t i = 0; i < calibration->slot_count; i++) {
		const struct slot *slot = &calibration->slots[i];
		const struct replicates *part = part_of(slot, by_blocks);
		struct replicates blocks;

		blocks.whole = steady * replicates_share(&slot->steady, &all_steady, -1) +
			       (total - steady) * replicates_share(part, &all, -1);
		for (uint32_t g = 0; g < calibration->group_count; g++)
			blocks.without[g] =
				steady * replicates_share(&slot->steady, &all_steady, (int)g) +
				(total - steady) * replicates_share(part, &all, (int)g);
		estimate_add(calibration, &calibration->out.old_rows[slot->row], &blocks, unseen);
	}
}
