/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimates of a cell: the strata of one type and size class, which differ by cohort.
 *
 * In a post-stratum with sampled blocks each row gets its share of their weight. The other
 * blocks of the cell are split by the weight of all sampled blocks of the cell, as far as that
 * weight can explain their blocks. All of this is done once with all windows, and once without each
 * group of windows.
 */
#include <math.h>
#include <string.h>

#include "snapshot/estimate/state.h"
#include "util/hash.h"

/* What is attributed of a cell, besides the rows' parts in slots. */
struct parts {
	struct replicates weight; /* of the cell's sampled blocks */
	struct replicates split; /* blocks of strata that have sampled blocks, attributed by them */
	struct replicates imputed; /* blocks of other strata */
	double lone; /* blocks that single sampled blocks count for, which are not there */
};

static void replicates_add(struct replicates *sum, const struct calibration *calibration,
			   const struct calibrate_sampled_block *sampled_block)
{
	sum->whole += weight_of(calibration, sampled_block, -1);
	for (uint32_t g = 0; g < calibration->group_count; g++)
		if (calibration->groups[sampled_block->window] != g)
			sum->without[g] += weight_of(calibration, sampled_block, (int)g);
}

/* Does it tell about all of the cell? Donors only do so where there is nothing else. */
static bool is_general(const struct calibration *calibration,
		       const struct calibrate_sampled_block *sampled_block)
{
	return !sampled_block->donor || calibration->donors;
}

static struct slot *slot_take(struct calibration *calibration, uint32_t row)
{
	if (!calibration->slot_of[row]) {
		calibration->slots[calibration->slot_count++] = (struct slot){.row = row};
		calibration->slot_of[row] = calibration->slot_count;
	}
	return &calibration->slots[calibration->slot_of[row] - 1];
}

static void slots_clear(struct calibration *calibration)
{
	for (uint32_t i = 0; i < calibration->slot_count; i++)
		calibration->slot_of[calibration->slots[i].row] = 0;
	calibration->slot_count = 0;
}

/* With a group less, sampled blocks have that much less weight. */
static double without_scale(const struct calibration *calibration)
{
	double groups = calibration->group_count;

	return groups > 1 ? groups / (groups - 1) : 1;
}

/*
 * What of a total is attributed without a group: a total that the sampled blocks do not explain
 * changes with their weight.
 */
static double attributed_without(const struct calibration *calibration, double total,
				 double attributed, const struct replicates *weight, uint32_t g)
{
	double scaled =
		attributed * weight->without[g] / weight->whole * without_scale(calibration);

	return attributed < total ? fmin(total, scaled) : total;
}

/*
 * Adds a sampled block to its row: that part of the blocks for which it stands with all groups, and
 * without each.
 */
static void sampled_block_split(struct calibration *calibration, size_t position,
				const struct replicates *factor, double unsure, double part)
{
	const struct calibrate_sampled_block *sampled_block =
		sampled_block_at(calibration, position);
	struct slot *slot = slot_take(calibration, sampled_block->row);
	struct replicates *rate_class =
		calibration->rate_classes[sampled_block->stratum] == RATE_CLASS_STEADY
			? &slot->steady
			: &slot->fast;
	double one = factor->whole * weight_of(calibration, sampled_block, -1);

	if (is_general(calibration, sampled_block))
		replicates_add(&slot->weight, calibration, sampled_block);
	calibration->out.shares[calibration->sampled_blocks[position]] += one * part;
	slot->blocks.whole += one * part;
	rate_class->whole += one * part;
	for (uint32_t g = 0; g < calibration->group_count; g++) {
		double without = calibration->groups[sampled_block->window] == g
					 ? 0
					 : factor->without[g] *
						   weight_of(calibration, sampled_block, (int)g);

		without = one * part + unsure * (without - one);
		slot->blocks.without[g] += without;
		rate_class->without[g] += without;
	}
}

/*
 * Splits a post-stratum by its sampled blocks. If these are a large part of it, they are no
 * sample: deviations shrink by the finite population correction. Of lone ones there are as many as
 * were seen, with the deviations of what their weight stands for.
 */
static void poststratum_split(struct calibration *calibration, struct poststratum *poststratum,
			      struct parts *parts)
{
	double attributed =
		weights_explain(calibration, &poststratum->weights, poststratum->blocks);
	double unsure = sqrt(fmax(0, 1 - poststratum->weights.seen / fmax(poststratum->blocks, 1)));
	double part =
		poststratum->lone ? fmin(1, poststratum->weights.seen / fmax(attributed, 1)) : 1;
	struct replicates weight = {0}, factor = {0};

	for (size_t i = poststratum->sampled_blocks; i < poststratum->sampled_blocks_end; i++)
		replicates_add(&weight, calibration, sampled_block_at(calibration, i));
	factor.whole = attributed / weight.whole;
	parts->split.whole += attributed * part;
	parts->lone += attributed * (1 - part);
	for (uint32_t g = 0; g < calibration->group_count; g++) {
		double without = 0;

		if (weight.without[g] > 0) {
			without = attributed_without(calibration, poststratum->blocks, attributed,
						     &weight, g);
			factor.without[g] = without / weight.without[g];
		}
		poststratum->explained_without[g] = unsure * (without - attributed);
		parts->split.without[g] += attributed * part + poststratum->explained_without[g];
	}
	for (size_t i = poststratum->sampled_blocks; i < poststratum->sampled_blocks_end; i++)
		sampled_block_split(calibration, i, &factor, unsure, part);
}

/* Of the blocks that have not been split: those that the weight of all sampled blocks can explain.
 */
static void rest_impute(const struct calibration *calibration, double total, double explained,
			struct parts *parts)
{
	parts->imputed.whole = fmax(0, explained - parts->lone - parts->split.whole);
	for (uint32_t g = 0; g < calibration->group_count; g++) {
		double without =
			attributed_without(calibration, total, explained, &parts->weight, g);

		if (parts->weight.without[g] > 0)
			parts->imputed.without[g] =
				fmax(0, without - parts->lone - parts->split.without[g]);
	}
}

/* Each sampled block's part of these. */
static void rest_share(const struct calibration *calibration, const struct cell *cell,
		       const struct parts *parts)
{
	for (size_t i = cell->sampled_blocks; i < cell->dead; i++) {
		const struct calibrate_sampled_block *sampled_block =
			sampled_block_at(calibration, i);

		if (is_general(calibration, sampled_block) && parts->weight.whole > 0)
			calibration->out.shares[calibration->sampled_blocks[i]] +=
				parts->imputed.whole * weight_of(calibration, sampled_block, -1) /
				parts->weight.whole;
	}
}

static double share(const struct replicates *part, const struct replicates *whole, int g)
{
	double sum = g < 0 ? whole->whole : whole->without[g];

	return sum > 0 ? (g < 0 ? part->whole : part->without[g]) / sum : 0;
}

/* The jackknife's factor, and for fewer groups Student's t. */
double calibrate_scale(uint32_t group_count)
{
	double groups = group_count;

	return groups > 1 ? sqrt((groups - 1) / groups) * calibrate_student(group_count - 1) /
				    calibrate_student(CALIBRATE_GROUPS - 1)
			  : 1;
}

void estimate_add(const struct calibration *calibration, struct calibrate_estimate *row,
		  const struct replicates *blocks, double unseen)
{
	double scale = calibrate_scale(calibration->group_count);

	row->blocks += blocks->whole;
	for (uint32_t g = 0; g < calibration->group_count; g++)
		row->deviations[g] += (float)(scale * (blocks->without[g] - blocks->whole));
	row->deviations[CALIBRATE_GROUPS] -= (float)(blocks->whole * unseen);
}

/* Was the row seen in one group of windows only? */
static bool slot_is_single(const struct calibration *calibration, const struct slot *slot)
{
	for (uint32_t g = 0; g < calibration->group_count; g++)
		if (!(slot->weight.without[g] > 0))
			return 1;
	return 0;
}

/*
 * The share of the cell that rows may hold which no window has shown: that of the rows which only
 * one group has shown (Good and Turing), and one window more than there are: a line may have worked
 * between two windows only.
 */
static double unseen_rows(const struct calibration *calibration, const struct parts *parts,
			  const struct weights *weights, double total)
{
	double single = 0, known = fmin(1, weights->seen / fmax(total, 1));

	for (uint32_t i = 0; i < calibration->slot_count; i++)
		if (slot_is_single(calibration, &calibration->slots[i]))
			single += calibration->slots[i].weight.whole;
	single = parts->weight.whole > 0 ? single / parts->weight.whole : 1;
	return (1 - known) * fmin(1, single + 1 / (weights->windows + 1));
}

/*
 * A row that one group of windows alone has shown may have been missed in any other: its error is
 * at least that of a sampled block of mean weight. Where the window has shown all of its time, as
 * the first one of a trace that began with all probes, the row would else have next to none. Rows
 * are independent in that, so each is given it in some replicate, with some sign.
 */
static void single_widen(const struct calibration *calibration, const struct slot *slot,
			 double mean, struct calibrate_estimate *row)
{
	uint64_t random = hash_u64(slot->row + 1ull);
	double missed = mean * mean - slot->blocks.whole * slot->blocks.whole;

	if (missed > 0 && slot_is_single(calibration, slot))
		row->deviations[random % calibration->group_count] +=
			(float)(random >> 63 ? sqrt(missed) : -sqrt(missed));
}

/* Is the number of the cell's new blocks known? */
static bool is_counted(const struct calibration *calibration, const struct cell *cell)
{
	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		if (stratum_at(calibration, rank)->least)
			return 0;
	return 1;
}

/*
 * Which windows there were decides about what of a cell is in lines, too, and what is left unseen.
 * Where the heap has counted the blocks, their sum has no such error: each row's part of it becomes
 * one for rows that no window has shown, which the total does not have. deviations: their sum over
 * the cell's rows.
 */
static void level_part(const struct calibration *calibration, const struct slot *slot, double part,
		       double unseen, const float deviations[CALIBRATE_DEVIATIONS])
{
	struct calibrate_estimate *row = &calibration->out.rows[slot->row];
	double missed = slot->blocks.whole * unseen;
	double level = part * sqrt(calibrate_variance(deviations));

	for (uint32_t g = 0; g < calibration->group_count; g++)
		row->deviations[g] -= (float)(part * (double)deviations[g]);
	row->deviations[CALIBRATE_GROUPS] -= (float)sqrt(missed * missed + level * level);
}

static void new_estimate(struct calibration *calibration, const struct cell *cell,
			 const struct parts *parts, const struct weights *weights, double unseen)
{
	double blocks = parts->split.whole + parts->imputed.whole;
	double known = fmin(1, weights->seen / fmax(blocks, 1));
	double mean = blocks / fmax((double)weights->sampled_blocks, 1) * sqrt(1 - known);
	float deviations[CALIBRATE_DEVIATIONS] = {0};
	int counted = is_counted(calibration, cell);

	for (uint32_t i = 0; i < calibration->slot_count; i++) {
		struct slot *slot = &calibration->slots[i];
		struct calibrate_estimate one = {0}, *row = &calibration->out.rows[slot->row];

		slot->blocks.whole +=
			parts->imputed.whole * share(&slot->weight, &parts->weight, -1);
		for (uint32_t g = 0; g < calibration->group_count; g++)
			slot->blocks.without[g] += parts->imputed.without[g] *
						   share(&slot->weight, &parts->weight, (int)g);
		estimate_add(calibration, &one, &slot->blocks, counted ? 0 : unseen);
		single_widen(calibration, slot, mean, &one);
		row->blocks += one.blocks;
		for (uint32_t g = 0; g < CALIBRATE_DEVIATIONS; g++) {
			row->deviations[g] += one.deviations[g];
			deviations[g] += one.deviations[g];
		}
	}
	for (uint32_t i = 0; counted && i < calibration->slot_count; i++)
		level_part(calibration, &calibration->slots[i],
			   blocks > 0 ? calibration->slots[i].blocks.whole / blocks : 0, unseen,
			   deviations);
}

/* What of a post-stratum its own sampled blocks leave. */
static double poststratum_rest(const struct calibration *calibration,
			       const struct poststratum *poststratum)
{
	if (isinf(poststratum->blocks))
		return 0;
	return poststratum->weights.sampled_blocks
		       ? poststratum->blocks - weights_explain(calibration, &poststratum->weights,
							       poststratum->blocks)
		       : poststratum->blocks;
}

static struct calibrate_unseen *stratum_unseen(struct calibration *calibration, size_t rank,
					       double new_share, double old_share)
{
	const struct calibrate_stratum *stratum = stratum_at(calibration, rank);
	struct calibrate_unseen *out = &calibration->out.strata[calibration->order[rank]],
				*sum = &calibration->out.unseen;

	*out = (struct calibrate_unseen){
		.new_blocks = new_share * (double)stratum->new_blocks,
		.new_bytes = new_share * (double)stratum->new_bytes,
		.old_blocks = old_share * (double)stratum->old_blocks,
		.old_bytes = old_share * (double)stratum->old_bytes,
	};
	sum->new_blocks += out->new_blocks;
	sum->new_bytes += out->new_bytes;
	sum->old_blocks += out->old_blocks;
	sum->old_bytes += out->old_bytes;
	return out;
}

/* What of a stratum its own sampled blocks, the next ones from *at on, leave unexplained. */
static double stratum_excess(const struct calibration *calibration, size_t rank, size_t *at,
			     size_t end)
{
	double weight = 0;

	for (; *at < end && calibration->ranks[sampled_block_at(calibration, *at)->stratum] == rank;
	     ++*at)
		weight += full_weight_of(calibration, sampled_block_at(calibration, *at));
	return fmax(0, (double)stratum_at(calibration, rank)->new_blocks - weight);
}

/*
 * Blocks of a post-stratum that were attributed to no row. They are those of its strata that
 * have more than their sampled blocks explain: the burst is there.
 */
static void poststratum_unseen(struct calibration *calibration,
			       const struct poststratum *poststratum, double blocks,
			       double old_share)
{
	double scale = calibrate_scale(calibration->group_count);
	size_t at = poststratum->sampled_blocks;
	double excess = 0;

	for (size_t rank = poststratum->strata; rank < poststratum->strata_end; rank++)
		excess += stratum_excess(calibration, rank, &at, poststratum->sampled_blocks_end);
	at = poststratum->sampled_blocks;
	for (size_t rank = poststratum->strata; rank < poststratum->strata_end; rank++) {
		double own =
			stratum_excess(calibration, rank, &at, poststratum->sampled_blocks_end);
		double all = (double)stratum_at(calibration, rank)->new_blocks;
		double part = excess > 0 ? blocks * own / excess : 0;

		struct calibrate_unseen *unseen = stratum_unseen(
			calibration, rank, all > 0 ? fmin(1, part / all) : 0, old_share);

		/* What windows explain more, they leave less. */
		for (uint32_t g = 0; blocks > 0 && g < calibration->group_count; g++)
			unseen->deviations[g] =
				(float)(-scale * poststratum->explained_without[g] * part / blocks);
	}
}

/* What of the cell was attributed to no row, of the rests of all post-strata in equal shares. */
static void unseen_set(struct calibration *calibration, const struct cell *cell, double imputed,
		       int old_known)
{
	double rest = 0;

	for (size_t i = cell->poststrata; i < cell->poststrata_end; i++)
		rest += poststratum_rest(calibration, &calibration->poststrata[i]);
	double left = rest > 0 ? fmax(0, 1 - imputed / rest) : 0;
	for (size_t i = cell->poststrata; i < cell->poststrata_end; i++) {
		const struct poststratum *poststratum = &calibration->poststrata[i];

		poststratum_unseen(calibration, poststratum,
				   left * poststratum_rest(calibration, poststratum),
				   old_known ? 0 : 1);
	}
}

/* Sums the cell's sampled blocks at [begin, end), row by row, for cells without one that is alive.
 */
static void dead_weigh(struct calibration *calibration, size_t begin, size_t end,
		       struct parts *parts)
{
	for (size_t i = begin; i < end; i++) {
		const struct calibrate_sampled_block *sampled_block =
			sampled_block_at(calibration, i);
		struct slot *slot = slot_take(calibration, sampled_block->row);

		replicates_add(&slot->weight, calibration, sampled_block);
		replicates_add(&parts->weight, calibration, sampled_block);
	}
}

void cell_estimate(struct calibration *calibration, const struct cell *cell)
{
	struct parts parts = {0};
	struct weights weights = weights_sum(calibration, cell->sampled_blocks, cell->dead);
	double total = 0;

	for (size_t i = cell->poststrata; i < cell->poststrata_end; i++)
		total += calibration->poststrata[i].blocks;
	calibration->donors = !weights.seen;
	for (size_t i = cell->sampled_blocks; i < cell->dead; i++)
		if (is_general(calibration, sampled_block_at(calibration, i)))
			replicates_add(&parts.weight, calibration,
				       sampled_block_at(calibration, i));
	for (size_t i = cell->poststrata; i < cell->poststrata_end; i++)
		if (calibration->poststrata[i].weights.sampled_blocks)
			poststratum_split(calibration, &calibration->poststrata[i], &parts);
	if (weights.sampled_blocks) {
		rest_impute(calibration, total, weights_explain(calibration, &weights, total),
			    &parts);
		rest_share(calibration, cell, &parts);
		new_estimate(calibration, cell, &parts, &weights,
			     unseen_rows(calibration, &parts, &weights, total));
	} else {
		weights = weights_sum(calibration, cell->dead, cell->sampled_blocks_end);
		dead_weigh(calibration, cell->dead, cell->sampled_blocks_end, &parts);
	}
	older_split(calibration, cell, parts.split.whole > 0,
		    unseen_rows(calibration, &parts, &weights, INFINITY));
	unseen_set(calibration, cell, parts.imputed.whole, weights.sampled_blocks > 0);
	slots_clear(calibration);
}
