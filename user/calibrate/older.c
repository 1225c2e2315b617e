/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks older than the trace. Of these a burst since then says little, while lines at steady rates
 * have worked before, too. So older blocks are split like the cohorts without one (paces.c), as
 * many as the median rate explains in the target's age, and the rest like all cohorts.
 */
#include <math.h>

#include "calibrate/state.h"

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
