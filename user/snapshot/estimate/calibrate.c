/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/estimate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/estimate/state.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/sorted.h"

/* --- speed --------------------------------------------------------------------------------- */

/*
 * What the target did in each window, relative to the same time without probes. How much probes
 * slow its threads while these are awake is one unknown for all windows. It is such that the
 * sampled blocks stand for as many blocks as there are. The longer the target sleeps in a window,
 * the less it is slowed there. With the same speed for all windows, too little would be attributed
 * to what it did when it was busiest.
 */

#define ROUNDS     4
#define BISECTIONS 64
/* What threads that are awake do at least, relative to the same without probes. */
#define AWAKE_MIN 0x1p-32
/*
 * Of a busy target a part of the idle time is due to probes: its threads wait for locks of the
 * kernel. So only one that sleeps for so much of the time tells that there was a burst.
 */
#define IDLE_SURE 0.75
/* Windows miss at most that part of blocks otherwise, such as those that no recheck has shown. */
#define LOST_MOST 0.25

/*
 * All of its blocks were seen, and stand for themselves: it is no sample, and says nothing about
 * what windows show of others.
 */
static bool poststratum_is_whole(const struct poststratum *poststratum)
{
	return poststratum->weights.seen >= poststratum->blocks &&
	       poststratum->weights.sum <= poststratum->weights.seen;
}

static double weights_limit(const struct calibration *calibration, double sum, double square);

/* Does its number of blocks say something about the speed? */
static int poststratum_tells(const struct calibration *calibration,
			     const struct poststratum *poststratum)
{
	return !poststratum_is_whole(poststratum) && !poststratum->exceeded &&
	       poststratum->blocks <= weights_limit(calibration, poststratum->weights.sum,
						    poststratum->weights.square);
}

static double speed_in(const struct calibrate_window *window, double awake)
{
	return (1 - LOST_MOST * (1 - awake)) * (window->idle + (1 - window->idle) * awake);
}

static void poststratum_share(struct calibration *calibration,
			      const struct poststratum *poststratum)
{
	for (size_t i = poststratum->sampled_blocks; i < poststratum->sampled_blocks_end; i++) {
		const struct calibrate_sampled_block *sampled_block =
			sampled_block_at(calibration, i);
		struct window_share *share = &calibration->shares[sampled_block->window];
		double survival = survival_of(sampled_block, -1);
		double own = sampled_block->donor ? 0 : survival;

		share->own += own;
		share->between += survival / sampled_block->inclusion - own;
	}
}

/* The weight of all shares. */
static double shares_weight(const struct calibration *calibration, double awake)
{
	double sum = 0;

	for (size_t i = 0; i < calibration->input->window_count; i++)
		sum += calibration->shares[i].own +
		       calibration->shares[i].between /
			       speed_in(&calibration->input->windows[i], awake);
	return sum;
}

/* The weight falls as awake rises. */
static double awake_find(const struct calibration *calibration, double blocks)
{
	double low = AWAKE_MIN, high = 1;

	if (shares_weight(calibration, high) >= blocks)
		return high;
	if (shares_weight(calibration, low) <= blocks)
		return low;
	for (int i = 0; i < BISECTIONS; i++) {
		double middle = sqrt(low * high);

		*(shares_weight(calibration, middle) > blocks ? &low : &high) = middle;
	}
	return high;
}

static void poststrata_weigh(struct calibration *calibration);

static void speed_set(struct calibration *calibration, double awake)
{
	for (size_t i = 0; i < calibration->input->window_count; i++)
		calibration->speed[i] = speed_in(&calibration->input->windows[i], awake);
	poststrata_weigh(calibration);
}

/* Has it no donors? These tell about a part of a post-stratum, but not how large it is. */
static bool poststratum_is_sure(const struct poststratum *poststratum)
{
	return poststratum->weights.seen_sum >= poststratum->weights.sum;
}

/* Fills the shares of those that tell, and returns their blocks; 0: nothing tells. */
static double shares_fill(struct calibration *calibration, int sure)
{
	double blocks = 0;

	memset(calibration->shares, 0,
	       calibration->input->window_count * sizeof(*calibration->shares));
	for (size_t i = 0; i < calibration->poststratum_count; i++) {
		const struct poststratum *poststratum = &calibration->poststrata[i];

		if (!poststratum_tells(calibration, poststratum) ||
		    (sure && !poststratum_is_sure(poststratum)))
			continue;
		poststratum_share(calibration, poststratum);
		blocks += poststratum->blocks;
	}
	return shares_weight(calibration, 1) > 0 ? blocks : 0;
}

/*
 * Begins with that speed. What it leaves unexplained is taken for bursts. Returns 0 if more than
 * that must be: even threads that do next to nothing in windows do not explain the blocks.
 */
static int speed_solve(struct calibration *calibration, double awake)
{
	double blocks = 0;

	speed_set(calibration, awake);
	calibration->out.speed = 1;
	for (int round = 0; round < ROUNDS; round++) {
		blocks = shares_fill(calibration, 1);
		if (!(blocks > 0))
			blocks = shares_fill(calibration, 0);
		if (!(blocks > 0) && !round) /* nothing tells: as if windows slowed nothing */
			speed_set(calibration, 1);
		if (!(blocks > 0))
			return 1;
		awake = awake_find(calibration, blocks);
		calibration->out.speed =
			shares_weight(calibration, 1) / shares_weight(calibration, awake);
		speed_set(calibration, awake);
	}
	return shares_weight(calibration, AWAKE_MIN) > blocks;
}

/* The part of all windows in which the target slept. */
static double idle_mean(const struct calibration *calibration)
{
	double idle = 0, length = 0;

	for (size_t i = 0; i < calibration->input->window_count; i++) {
		const struct calibrate_window *window = &calibration->input->windows[i];
		double length_ns = (double)(window->end_ns - window->start_ns);

		idle += window->idle * length_ns;
		length += length_ns;
	}
	return length > 0 ? idle / length : 0;
}

/* Sets speed such that sampled blocks stand for all blocks but bursts; out.speed: its mean. */
static void speed_find(struct calibration *calibration)
{
	speed_set(calibration, 1);
	for (size_t i = 0; i < calibration->poststratum_count; i++) {
		struct poststratum *poststratum = &calibration->poststrata[i];

		/* A lower bound says nothing if the sampled blocks stand for more. */
		poststratum->exceeded =
			poststratum->least && poststratum->blocks < poststratum->weights.sum;
	}
	if (!speed_solve(calibration, AWAKE_MIN) && idle_mean(calibration) >= IDLE_SURE)
		speed_solve(calibration, 1);
}

/* --- poststrata ------------------------------------------------------------------------------- */

/* Divides cells into post-strata, in each of which blocks are split by its own sampled blocks. */

static struct poststratum *poststratum_add(struct calibration *calibration, size_t rank,
					   size_t sampled_blocks)
{
	struct poststratum *poststratum =
		&calibration->poststrata[calibration->poststratum_count++];

	*poststratum = (struct poststratum){
		.strata = rank, .strata_end = rank, .sampled_blocks = sampled_blocks};
	return poststratum;
}

/* The last post-stratum of a cell has so few windows left that it joins the one before. */
static void left_join(struct calibration *calibration, const struct cell *cell, double windows)
{
	struct poststratum *left = &calibration->poststrata[calibration->poststratum_count - 1],
			   *before = left - 1;

	if (windows >= ENOUGH_WINDOWS || calibration->poststratum_count - cell->poststrata < 2 ||
	    left->burst != before->burst)
		return;
	before->strata_end = left->strata_end;
	before->sampled_blocks_end = left->sampled_blocks_end;
	before->blocks += left->blocks;
	before->least |= left->least;
	before->most += left->most;
	calibration->poststratum_count--;
}

/* Do they differ in type alone? */
static bool is_extra(const struct calibrate_stratum *stratum,
		     const struct calibrate_stratum *before)
{
	return stratum->cohort == before->cohort && stratum->type != before->type;
}

/*
 * Divides a cell into post-strata. Its newest cohort is one of its own: short-lived blocks
 * are there. So are those with a burst, or the others would only get what their sampled blocks
 * stand for.
 */
static void cell_divide(struct calibration *calibration, struct cell *cell, uint32_t newest)
{
	struct poststratum *poststratum = NULL;
	double windows = 0;
	size_t at = cell->sampled_blocks, begin;
	int in_newest = 0;

	cell->poststrata = calibration->poststratum_count;
	for (size_t rank = cell->strata; rank < cell->strata_end; rank++) {
		const struct calibrate_stratum *stratum = stratum_at(calibration, rank);
		int burst = is_burst(calibration, calibration->order[rank]);
		int last = stratum->cohort == newest && !burst;
		int parts = (last && !in_newest) || (poststratum && burst != poststratum->burst);

		if (poststratum && parts)
			left_join(calibration, cell, windows);
		if (!poststratum || parts ||
		    (windows >= ENOUGH_WINDOWS &&
		     !is_extra(stratum, stratum_at(calibration, rank - 1)))) {
			poststratum = poststratum_add(calibration, rank, at);
			poststratum->burst = burst;
			windows = 0;
		}
		in_newest = last;
		for (begin = at;
		     at < cell->dead &&
		     calibration->ranks[sampled_block_at(calibration, at)->stratum] == rank;)
			at++;
		windows += weights_sum(calibration, begin, at).windows;
		poststratum->strata_end = rank + 1;
		poststratum->sampled_blocks_end = at;
		poststratum->blocks += (double)stratum_at(calibration, rank)->new_blocks;
		poststratum->least |= stratum_at(calibration, rank)->least;
		poststratum->most += (double)stratum_at(calibration, rank)->most_blocks;
	}
	if (poststratum && !in_newest)
		left_join(calibration, cell, windows);
	cell->poststrata_end = calibration->poststratum_count;
}

/* Makes the post-strata of all cells. */
static void poststrata_make(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	uint32_t newest = 0;

	calibration->poststratum_count = 0;
	for (size_t i = 0; i < input->stratum_count; i++)
		if (input->strata[i].cohort > newest)
			newest = input->strata[i].cohort;
	for (size_t i = 0; i < calibration->cell_count; i++)
		cell_divide(calibration, &calibration->cells[i], newest);
	poststrata_weigh(calibration);
}

/* Sets the weights of all post-strata, and block_weight, by the speed in windows. */
static void poststrata_weigh(struct calibration *calibration)
{
	double weight = 0, seen = 0;

	for (size_t i = 0; i < calibration->poststratum_count; i++) {
		struct poststratum *poststratum = &calibration->poststrata[i];

		poststratum->weights = weights_sum(calibration, poststratum->sampled_blocks,
						   poststratum->sampled_blocks_end);
		seen += poststratum->weights.seen;
		weight += poststratum->weights.seen_sum;
	}
	calibration->block_weight = seen > 0 ? weight / seen : 0;
}

/* Do the sampled blocks of a post-stratum stand for far more blocks than its lower bound? */
static void poststrata_least_judge(struct calibration *calibration)
{
	for (size_t i = 0; i < calibration->poststratum_count; i++) {
		struct poststratum *poststratum = &calibration->poststrata[i];
		double sum = poststratum->weights.sum, error = sqrt(poststratum->weights.square);

		poststratum->lone = poststratum->least && poststratum->blocks <= 0 &&
				    poststratum->weights.sampled_blocks &&
				    poststratum->weights.windows < FEW_WINDOWS;
		if (poststratum->least &&
		    (poststratum->blocks <= 0 || sum - LIMIT_ERRORS * error > poststratum->blocks))
			poststratum->blocks = poststratum->most > 0 && sum > poststratum->most
						      ? poststratum->most
						      : INFINITY;
	}
}

/* --- rate classes ----------------------------------------------------------------------------- */

/*
 * How fast the cohorts of a cell came. Some of the new blocks may have come in a burst: a start-up,
 * a file that was loaded. Cohorts with far more than the median rate had one.
 */

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

	return CMP(x, y);
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

static enum rate_class rate_class_of(const struct stretch *stretch, double median)
{
	if (stretch->ns <= 0 || rate_of(stretch) <= STEADY_MOST * median)
		return RATE_CLASS_STEADY;
	return median > 0 && stretch->blocks > BURST_BLOCKS &&
			       rate_of(stretch) > BURST_LEAST * median
		       ? RATE_CLASS_BURST
		       : RATE_CLASS_FAST;
}

/* If bursts are as frequent as they were, and as large. */
static void cell_older(struct cell *cell, const struct stretch *stretches, size_t count,
		       double median, double all_ns, double age_ns)
{
	double excess = 0;

	cell->fast_ns = 0;
	for (size_t i = 0; i < count; i++) {
		if (rate_class_of(&stretches[i], median) == RATE_CLASS_STEADY)
			continue;
		cell->fast_ns += stretches[i].ns;
		excess += stretches[i].blocks - median * stretches[i].ns;
	}
	cell->steady_ns = all_ns - cell->fast_ns;
	cell->old_steady = median * age_ns;
	cell->old_bursts = excess / all_ns * age_ns;
}

static int cell_rate_classes(struct calibration *calibration, struct cell *cell, double all_ns)
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
		enum rate_class rate_class;

		end = cohort_end(calibration, cell, rank);
		stretch = stretch_of(calibration, rank, end);
		rate_class = rate_class_of(&stretch, median);
		bursts |= rate_class == RATE_CLASS_BURST;
		for (; rank < end; rank++)
			calibration->rate_classes[calibration->order[rank]] = (uint8_t)rate_class;
	}
	return bursts;
}

/* Sets rate classes, and what of cells is steady. Returns whether there was a burst. */
static int rate_classes_find(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	double all_ns = 0;
	int bursts = 0;

	for (size_t i = 0; input->cohorts_ns && i < input->cohort_count; i++)
		all_ns += (double)input->cohorts_ns[i];
	for (size_t i = 0; all_ns > 0 && i < calibration->cell_count; i++)
		bursts |= cell_rate_classes(calibration, &calibration->cells[i], all_ns);
	return bursts;
}

/* --- older ------------------------------------------------------------------------------------ */

/*
 * Blocks older than the trace. Of these a burst since then says little, while lines at steady rates
 * have worked before, too. So the older blocks are, in this order: as many as the median rate of
 * cohorts explains in the target's age, which are split like the cohorts without a burst; as many
 * as bursts would explain that are as frequent, split like what the others have beyond that rate;
 * and the rest, split like all cohorts.
 */

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

/* --- family ----------------------------------------------------------------------------------- */

/* Which types of a family are strata of their own. */

/* Of the blocks of a family so many may be of types that windows have hardly shown. */
#define SPARSE_SHARE 0.1
/*
 * So many windows must have shown a type. Fewer than of a cohort: types mostly have few lines, so
 * that what division gains is more than what so few windows may miss.
 */
#define ENOUGH_OF_TYPE 6

/* Is the cell of the same family and size class? Such cells are neighbours. */
static bool is_sibling(const struct calibration *calibration, size_t cell, size_t other)
{
	const struct calibrate_stratum *x = stratum_at(calibration,
						       calibration->cells[cell].strata),
				       *y = stratum_at(calibration,
						       calibration->cells[other].strata);

	return x->family && x->family == y->family && x->class_bytes == y->class_bytes;
}

static bool is_sparse(struct calibration *calibration, const struct cell *cell)
{
	return weights_sum(calibration, cell->sampled_blocks, cell->dead).windows < ENOUGH_OF_TYPE;
}

/* Joins those of the siblings [begin, end) of which too few windows have shown any. */
static void sparse_join(struct calibration *calibration, size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++)
		if (is_sparse(calibration, &calibration->cells[i]))
			level_set(calibration, &calibration->cells[i], LEVEL_FAMILY);
}

static double cell_blocks(const struct calibration *calibration, const struct cell *cell)
{
	double blocks = 0;

	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		blocks += (double)stratum_at(calibration, rank)->new_blocks +
			  (double)stratum_at(calibration, rank)->old_blocks;
	return blocks;
}

/* If that is not enough for a part that matters, all of them are joined. */
static void siblings_join(struct calibration *calibration, size_t begin, size_t end)
{
	double sparse = 0, blocks = 0;

	for (size_t i = begin; i < end; i++) {
		double part = cell_blocks(calibration, &calibration->cells[i]);

		blocks += part;
		sparse += is_sparse(calibration, &calibration->cells[i]) ? part : 0;
	}
	for (size_t i = begin; i < end && sparse > SPARSE_SHARE * blocks; i++)
		level_set(calibration, &calibration->cells[i], LEVEL_FAMILY);
}

static void strata_arrange(struct calibration *calibration);

static void siblings_each(struct calibration *calibration,
			  void (*join)(struct calibration *, size_t begin, size_t end))
{
	for (size_t begin = 0, end; begin < calibration->cell_count; begin = end) {
		for (end = begin + 1;
		     end < calibration->cell_count && is_sibling(calibration, begin, end);)
			end++;
		if (end > begin + 1)
			join(calibration, begin, end);
	}
	strata_arrange(calibration);
}

/* Divides families into types where windows have shown enough of each. */
static void families_divide(struct calibration *calibration)
{
	for (size_t i = 0; i < calibration->input->stratum_count; i++)
		calibration->levels[i] = LEVEL_TYPE;
	strata_arrange(calibration);
	siblings_each(calibration, sparse_join);
	siblings_each(calibration, siblings_join);
}

/* --- errors ----------------------------------------------------------------------------------- */

/* Groups of windows, and the variance of what the estimates without each group are. */

#define NORMAL_95 1.959964

static void groups_shuffle(size_t begin, uint8_t order[CALIBRATE_GROUPS])
{
	for (size_t i = 0; i < CALIBRATE_GROUPS; i++) {
		size_t other = hash_u64(begin + i + 1) % (i + 1);

		order[i] = order[other];
		order[other] = (uint8_t)i;
	}
}

/*
 * The order is random, so that no period of the program coincides with that of the groups. Groups
 * have the numbers of their first windows: there may be fewer windows than groups.
 */
uint32_t calibrate_groups(size_t count, uint8_t *groups)
{
	uint8_t order[CALIBRATE_GROUPS] = {0}, names[CALIBRATE_GROUPS];

	groups_shuffle(0, order);
	for (uint8_t i = 0; i < CALIBRATE_GROUPS; i++)
		names[order[i]] = i;
	for (size_t i = 0; i < count; i++) {
		if (i % CALIBRATE_GROUPS == 0)
			groups_shuffle(i, order);
		groups[i] = names[order[i % CALIBRATE_GROUPS]];
	}
	return count < CALIBRATE_GROUPS ? (uint32_t)count : CALIBRATE_GROUPS;
}

double calibrate_student(uint32_t degrees)
{
	static const double quantiles[] = {4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
					   2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
	uint32_t count = sizeof(quantiles) / sizeof(quantiles[0]);

	return quantiles[degrees < 2           ? 0
			 : degrees - 2 < count ? degrees - 2
					       : count - 1] /
	       NORMAL_95;
}

double calibrate_variance(const float deviations[CALIBRATE_DEVIATIONS])
{
	double variance = 0, fourth = 0, unseen = (double)deviations[CALIBRATE_GROUPS];

	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++) {
		double square = (double)deviations[i] * (double)deviations[i];

		variance += square;
		fourth += square * square;
	}
	/*
	 * Satterthwaite: the variance of the variance, from the fourth moment of normal deviations.
	 */
	double degrees = fourth > 0 ? 3 * variance * variance / fourth - 1 : CALIBRATE_GROUPS;
	double widening = calibrate_student((uint32_t)fmin(degrees, CALIBRATE_GROUPS));
	return variance * widening * widening + unseen * unseen;
}

/* --- calibrate -------------------------------------------------------------------------------- */

/* With a probability of 95 % at most so many are expected of what was never seen. */
#define LIMIT_NONE 3

struct weights weights_sum(struct calibration *calibration, size_t begin, size_t end)
{
	struct window_sum *sums = calibration->window_sums;
	struct weights weights = {.sampled_blocks = end - begin};

	for (size_t i = begin; i < end; i++) {
		const struct calibrate_sampled_block *sampled_block =
			sampled_block_at(calibration, i);
		double weight = weight_of(calibration, sampled_block, -1);
		double full = full_weight_of(calibration, sampled_block);

		weights.sum += weight;
		weights.seen += sampled_block->donor ? 0 : survival_of(sampled_block, -1);
		weights.seen_sum += sampled_block->donor ? 0 : weight;
		weights.full += full;
		sums[sampled_block->window].weight += weight;
		sums[sampled_block->window].full += full;
	}
	for (size_t i = begin; i < end; i++) {
		struct window_sum *sum = &sums[sampled_block_at(calibration, i)->window];

		weights.square += sum->weight * sum->weight;
		weights.full_square += sum->full * sum->full;
		*sum = (struct window_sum){0};
	}
	weights.windows = weights.square > 0 ? weights.sum * weights.sum / weights.square : 0;
	return weights;
}

/* For how many blocks such a sum of weights, and of the windows' squares, can stand at most. */
static double weights_limit(const struct calibration *calibration, double sum, double square)
{
	return sum + LIMIT_ERRORS * sqrt(square) + LIMIT_NONE * calibration->block_weight;
}

double weights_explain(const struct calibration *calibration, const struct weights *weights,
		       double blocks)
{
	return blocks <= weights_limit(calibration, weights->full, weights->full_square)
		       ? blocks
		       : fmin(blocks, weights->full);
}

static int input_check(const struct calibrate_input *input)
{
	if (input->stratum_count >= UINT32_MAX || input->sampled_block_count >= UINT32_MAX ||
	    input->window_count >= UINT32_MAX || input->row_count >= UINT32_MAX)
		return error_set(-EINVAL, "more than 2^32 strata, windows, sightings or rows");
	for (size_t i = 0; i < input->window_count; i++) {
		if (input->windows[i].end_ns < input->windows[i].start_ns)
			return error_set(-EINVAL, "window %zu ends before it starts", i);
		if (!(input->windows[i].idle >= 0 && input->windows[i].idle <= 1))
			return error_set(-EINVAL, "the idle part of window %zu is not from 0 to 1",
					 i);
	}
	for (size_t i = 0; i < input->sampled_block_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];

		if (sampled_block->stratum >= input->stratum_count ||
		    sampled_block->window >= input->window_count ||
		    sampled_block->row >= input->row_count)
			return error_set(-EINVAL, "sighting %zu names what does not exist", i);
		/* The bound keeps all sums of weights finite. */
		if (!(sampled_block->inclusion >= 0x1p-32 &&
		      sampled_block->inclusion <= (sampled_block->donor ? 0x1p32 : 1)))
			return error_set(-EINVAL,
					 "the probability of sighting %zu is not from 2^-32 to 1",
					 i);
		if (sampled_block->survival && !(sampled_block->survival->whole >= 0x1p-32f &&
						 sampled_block->survival->whole <= 1))
			return error_set(-EINVAL,
					 "the discount of sighting %zu is not from 2^-32 to 1", i);
	}
	return 0;
}

/* The order of two strata in different cells; 0: both are in one cell. */
static int cell_compare(const struct calibration *calibration, uint32_t i, uint32_t j)
{
	const struct calibrate_stratum *x = &calibration->input->strata[i],
				       *y = &calibration->input->strata[j];
	uint8_t level = calibration->levels[i], other = calibration->levels[j];
	int order = CMP(level == LEVEL_RARE, other == LEVEL_RARE)
		    ?: (level == LEVEL_RARE ? 0 : CMP(x->family, y->family))
		    ?: CMP(x->class_bytes, y->class_bytes)
		    ?: CMP(level, other);

	return order || level == LEVEL_RARE || (level == LEVEL_FAMILY && x->family)
		       ? order
		       : CMP(x->type, y->type);
}

static int stratum_compare(const void *a, const void *b, void *context)
{
	const struct calibration *calibration = context;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct calibrate_stratum *x = &calibration->input->strata[i],
				       *y = &calibration->input->strata[j];

	return cell_compare(calibration, i, j)
	       ?: CMP(!is_burst(calibration, i), !is_burst(calibration, j))
	       ?: CMP(x->cohort, y->cohort)
	       ?: CMP(i, j);
}

static int sampled_block_compare(const void *a, const void *b, void *context)
{
	const struct calibration *calibration = context;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct calibrate_sampled_block *x = &calibration->input->sampled_blocks[i],
					     *y = &calibration->input->sampled_blocks[j];
	uint32_t p = calibration->ranks[x->stratum], q = calibration->ranks[y->stratum];

	return CMP(calibration->cell_of[p], calibration->cell_of[q])
	       ?: CMP(!x->alive, !y->alive)
	       ?: CMP(p, q)
	       ?: CMP(i, j);
}

static void strata_order(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;

	for (uint32_t i = 0; i < input->stratum_count; i++)
		calibration->order[i] = i;
	qsort_r(calibration->order, input->stratum_count, sizeof(*calibration->order),
		stratum_compare, calibration);
	calibration->cell_count = 0;
	for (uint32_t rank = 0; rank < input->stratum_count; rank++) {
		calibration->ranks[calibration->order[rank]] = rank;
		if (!rank || cell_compare(calibration, calibration->order[rank - 1],
					  calibration->order[rank]))
			calibration->cells[calibration->cell_count++].strata = rank;
		calibration->cell_of[rank] = (uint32_t)calibration->cell_count - 1;
		calibration->cells[calibration->cell_count - 1].strata_end = rank + 1;
	}
}

static void sampled_blocks_order(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	size_t at = 0;

	for (uint32_t i = 0; i < input->sampled_block_count; i++)
		calibration->sampled_blocks[i] = i;
	qsort_r(calibration->sampled_blocks, input->sampled_block_count,
		sizeof(*calibration->sampled_blocks), sampled_block_compare, calibration);
	for (size_t i = 0; i < calibration->cell_count; i++) {
		struct cell *cell = &calibration->cells[i];

		cell->sampled_blocks = cell->dead = at;
		while (at < input->sampled_block_count &&
		       calibration->cell_of[calibration->ranks[sampled_block_at(calibration, at)
								       ->stratum]] == i)
			cell->dead += (size_t)(sampled_block_at(calibration, at++)->alive != 0);
		cell->sampled_blocks_end = at;
	}
}

static void shares_set(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	struct calibrate_result *out = &calibration->out;
	double seen = 0;

	for (size_t i = 0; i < input->window_count; i++) {
		out->on_ns += input->windows[i].end_ns - input->windows[i].start_ns;
		out->span_ns += input->windows[i].span_ns;
	}
	for (size_t i = 0; i < calibration->poststratum_count; i++)
		seen += calibration->poststrata[i].weights.seen;
	out->seen_blocks = (uint64_t)llround(seen);
	for (size_t i = 0; i < input->stratum_count; i++)
		out->new_blocks += input->strata[i].new_blocks;
	out->windows = input->window_count;
	out->time_share = out->span_ns ? fmin(1, (double)out->on_ns / (double)out->span_ns) : 0;
	out->blocks_share =
		out->new_blocks ? fmin(1, (double)out->seen_blocks / (double)out->new_blocks) : 0;
}

/* Makes cells and their post-strata, by the levels of strata. */
static void strata_arrange(struct calibration *calibration)
{
	memset(calibration->rate_classes, RATE_CLASS_STEADY, calibration->input->stratum_count);
	strata_order(calibration);
	/* Those with a burst come first then. */
	if (rate_classes_find(calibration))
		strata_order(calibration);
	sampled_blocks_order(calibration);
	poststrata_make(calibration);
}

/*
 * Collapses types of so few blocks that windows may well have shown none of them: those of one size
 * class become one cell.
 */
static void rare_collapse(struct calibration *calibration)
{
	double limit = weights_limit(calibration, 0, 0);

	for (size_t i = 0; i < calibration->cell_count; i++) {
		const struct cell *cell = &calibration->cells[i];
		double blocks = 0;

		for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
			blocks +=
				stratum_at(calibration, rank)->least
					? INFINITY
					: (double)stratum_at(calibration, rank)->new_blocks +
						  (double)stratum_at(calibration, rank)->old_blocks;
		if (blocks <= limit)
			level_set(calibration, cell, LEVEL_RARE);
	}
}

static int calibration_begin(struct calibration *calibration, const struct calibrate_input *input)
{
	size_t strata = input->stratum_count + 1, windows = input->window_count + 1,
	       rows = input->row_count + 1, sampled_blocks = input->sampled_block_count + 1;
	struct calibrate_result *out = &calibration->out;

	calibration->input = input;
	calibration->levels = calloc(strata, sizeof(*calibration->levels));
	calibration->order = calloc(strata, sizeof(*calibration->order));
	calibration->ranks = calloc(strata, sizeof(*calibration->ranks));
	calibration->cells = calloc(strata, sizeof(*calibration->cells));
	calibration->cell_of = calloc(strata, sizeof(*calibration->cell_of));
	calibration->rate_classes = calloc(strata, sizeof(*calibration->rate_classes));
	calibration->stretches = calloc(strata, sizeof(*calibration->stretches));
	calibration->poststrata = calloc(strata, sizeof(*calibration->poststrata));
	calibration->sampled_blocks = calloc(sampled_blocks, sizeof(*calibration->sampled_blocks));
	calibration->groups = calloc(windows, sizeof(*calibration->groups));
	calibration->window_sums = calloc(windows, sizeof(*calibration->window_sums));
	calibration->shares = calloc(windows, sizeof(*calibration->shares));
	calibration->speed = calloc(windows, sizeof(*calibration->speed));
	calibration->slot_of = calloc(rows, sizeof(*calibration->slot_of));
	calibration->slots =
		calloc(rows < sampled_blocks ? rows : sampled_blocks, sizeof(*calibration->slots));
	out->rows = calloc(rows, sizeof(*out->rows));
	out->old_rows = calloc(rows, sizeof(*out->old_rows));
	out->strata = calloc(strata, sizeof(*out->strata));
	out->shares = calloc(sampled_blocks, sizeof(*out->shares));
	out->row_count = input->row_count;
	return calibration->levels && calibration->order && calibration->ranks &&
			       calibration->cells && calibration->cell_of &&
			       calibration->rate_classes && calibration->stretches &&
			       calibration->poststrata && calibration->sampled_blocks &&
			       calibration->groups && calibration->window_sums &&
			       calibration->shares && calibration->speed && calibration->slot_of &&
			       calibration->slots && out->rows && out->old_rows && out->strata &&
			       out->shares
		       ? 0
		       : -ENOMEM;
}

static void calibration_end(struct calibration *calibration)
{
	free(calibration->levels);
	free(calibration->order);
	free(calibration->ranks);
	free(calibration->cells);
	free(calibration->cell_of);
	free(calibration->rate_classes);
	free(calibration->stretches);
	free(calibration->poststrata);
	free(calibration->sampled_blocks);
	free(calibration->groups);
	free(calibration->window_sums);
	free(calibration->shares);
	free(calibration->speed);
	free(calibration->slot_of);
	free(calibration->slots);
}

int calibrate(const struct calibrate_input *input, struct calibrate_result *out)
{
	struct calibration calibration = {0};
	int err = input_check(input) ?: calibration_begin(&calibration, input);

	if (!err) {
		calibration.group_count = calibrate_groups(input->window_count, calibration.groups);
		/* It is not known yet: strata are arranged as if windows slowed nothing. */
		for (size_t i = 0; i < input->window_count; i++)
			calibration.speed[i] = 1;
		memset(calibration.levels, LEVEL_FAMILY, input->stratum_count);
		strata_arrange(&calibration);
		shares_set(&calibration);
		speed_find(&calibration);
		families_divide(&calibration);
		rare_collapse(&calibration);
		strata_arrange(&calibration);
		poststrata_least_judge(&calibration);
		for (size_t i = 0; i < calibration.cell_count; i++)
			cell_estimate(&calibration, &calibration.cells[i]);
	}
	calibration_end(&calibration);
	if (err)
		calibrate_free(&calibration.out);
	else
		*out = calibration.out;
	return err;
}

void calibrate_free(struct calibrate_result *result)
{
	free(result->rows);
	free(result->old_rows);
	free(result->strata);
	free(result->shares);
	*result = (struct calibrate_result){0};
}
