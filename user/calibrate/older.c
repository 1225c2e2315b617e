/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks older than the trace. Of these a burst since then says little, while lines at steady rates
 * have worked before, too. So the older blocks are, in this order: as many as the median rate of
 * cohorts explains in the target's age, which are split like the cohorts without a burst; as many
 * as bursts would explain that are as frequent, split like what the others have beyond that rate;
 * and the rest, split like all cohorts.
 */
#include <math.h>

#include "calibrate/state.h"

/* A part of the older blocks, and the sums of what it is split by. */
struct older_part {
	double blocks;
	struct replicates sum;
};

enum { OLDER_STEADY, OLDER_BURSTS, OLDER_REST, OLDER_PARTS };

static double replicate_of(const struct replicates *replicates, int g)
{
	return g < 0 ? replicates->whole : replicates->without[g];
}

/* What that part is split by. */
static double share_of(const struct cell *cell, const struct slot *slot, int part, int by_blocks,
		       int g)
{
	double steady = replicate_of(&slot->steady, g);

	if (part == OLDER_REST)
		return replicate_of(by_blocks ? &slot->blocks : &slot->weight, g);
	if (part == OLDER_STEADY)
		return steady;
	return cell->steady_ns > 0 ? fmax(0, replicate_of(&slot->fast, g) -
						     steady * cell->fast_ns / cell->steady_ns)
				   : 0;
}

static void parts_fill(const struct calibration *calibration, const struct cell *cell,
		       int by_blocks, struct older_part parts[OLDER_PARTS])
{
	const double most[OLDER_PARTS] = {cell->old_steady, cell->old_bursts, INFINITY};
	double left = 0;

	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		left += (double)stratum_at(calibration, rank)->old_blocks;
	for (int part = 0; part < OLDER_PARTS; part++) {
		struct replicates *sum = &parts[part].sum;

		for (uint32_t i = 0; i < calibration->slot_count; i++) {
			const struct slot *slot = &calibration->slots[i];

			sum->whole += share_of(cell, slot, part, by_blocks, -1);
			for (uint32_t g = 0; g < calibration->group_count; g++)
				sum->without[g] += share_of(cell, slot, part, by_blocks, (int)g);
		}
		parts[part].blocks = sum->whole > 0 ? fmin(left, most[part]) : 0;
		left -= parts[part].blocks;
	}
}

static double blocks_of(const struct cell *cell, const struct slot *slot, int by_blocks,
			const struct older_part parts[OLDER_PARTS], int g)
{
	double blocks = 0;

	for (int part = 0; part < OLDER_PARTS; part++) {
		double sum = replicate_of(&parts[part].sum, g);

		if (sum > 0)
			blocks +=
				parts[part].blocks * share_of(cell, slot, part, by_blocks, g) / sum;
	}
	return blocks;
}

void older_split(struct calibration *calibration, const struct cell *cell, int by_blocks,
		 double unseen)
{
	struct older_part parts[OLDER_PARTS] = {0};

	parts_fill(calibration, cell, by_blocks, parts);
	for (uint32_t i = 0; i < calibration->slot_count; i++) {
		const struct slot *slot = &calibration->slots[i];
		struct replicates blocks = {.whole = blocks_of(cell, slot, by_blocks, parts, -1)};

		for (uint32_t g = 0; g < calibration->group_count; g++)
			blocks.without[g] = blocks_of(cell, slot, by_blocks, parts, (int)g);
		estimate_add(calibration, &calibration->out.old_rows[slot->row], &blocks, unseen);
	}
}
