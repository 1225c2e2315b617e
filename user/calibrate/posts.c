/* SPDX-License-Identifier: Apache-2.0 */
/* Divides cells into post-strata, in each of which blocks are split by its own sightings. */
#include <math.h>

#include "calibrate/state.h"

static struct post *post_add(struct calibration *calibration, size_t rank, size_t sightings)
{
	struct post *post = &calibration->posts[calibration->post_count++];

	*post = (struct post){.strata = rank, .strata_end = rank, .sightings = sightings};
	return post;
}

/* The last post-stratum of a cell has so few windows left that it joins the one before. */
static void left_join(struct calibration *calibration, const struct cell *cell, double windows)
{
	struct post *left = &calibration->posts[calibration->post_count - 1], *before = left - 1;

	if (windows >= ENOUGH_WINDOWS || calibration->post_count - cell->posts < 2 ||
	    left->burst != before->burst)
		return;
	before->strata_end = left->strata_end;
	before->sightings_end = left->sightings_end;
	before->blocks += left->blocks;
	before->least |= left->least;
	before->most += left->most;
	calibration->post_count--;
}

/* Do they differ in type alone? */
static int is_beside(const struct calibrate_stratum *stratum,
		     const struct calibrate_stratum *before)
{
	return stratum->cohort == before->cohort && stratum->type != before->type;
}

/*
 * Divides a cell into post-strata. Its newest cohort is one of its own: short-lived blocks are
 * there. So are those with a burst, or the others would only get what their sightings stand for.
 */
static void cell_divide(struct calibration *calibration, struct cell *cell, uint32_t newest)
{
	struct post *post = NULL;
	double windows = 0;
	size_t at = cell->sightings, begin;
	int in_newest = 0;

	cell->posts = calibration->post_count;
	for (size_t rank = cell->strata; rank < cell->strata_end; rank++) {
		const struct calibrate_stratum *stratum = stratum_at(calibration, rank);
		int burst = is_burst(calibration, calibration->order[rank]);
		int last = stratum->cohort == newest && !burst;
		int parts = (last && !in_newest) || (post && burst != post->burst);

		if (post && parts)
			left_join(calibration, cell, windows);
		if (!post || parts ||
		    (windows >= ENOUGH_WINDOWS &&
		     !is_beside(stratum, stratum_at(calibration, rank - 1)))) {
			post = post_add(calibration, rank, at);
			post->burst = burst;
			windows = 0;
		}
		in_newest = last;
		for (begin = at; at < cell->dead &&
				 calibration->ranks[sighting_at(calibration, at)->stratum] == rank;)
			at++;
		windows += weights_sum(calibration, begin, at).windows;
		post->strata_end = rank + 1;
		post->sightings_end = at;
		post->blocks += (double)stratum_at(calibration, rank)->new_blocks;
		post->least |= stratum_at(calibration, rank)->least;
		post->most += (double)stratum_at(calibration, rank)->most_blocks;
	}
	if (post && !in_newest)
		left_join(calibration, cell, windows);
	cell->posts_end = calibration->post_count;
}

void posts_make(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	uint32_t newest = 0;

	calibration->post_count = 0;
	for (size_t i = 0; i < input->stratum_count; i++)
		if (input->strata[i].cohort > newest)
			newest = input->strata[i].cohort;
	for (size_t i = 0; i < calibration->cell_count; i++)
		cell_divide(calibration, &calibration->cells[i], newest);
	posts_weigh(calibration);
}

void posts_weigh(struct calibration *calibration)
{
	double weight = 0, seen = 0;

	for (size_t i = 0; i < calibration->post_count; i++) {
		struct post *post = &calibration->posts[i];

		post->weights = weights_sum(calibration, post->sightings, post->sightings_end);
		seen += post->weights.seen;
		weight += post->weights.seen_sum;
	}
	calibration->block_weight = seen > 0 ? weight / seen : 0;
}

void posts_least_judge(struct calibration *calibration)
{
	for (size_t i = 0; i < calibration->post_count; i++) {
		struct post *post = &calibration->posts[i];
		double sum = post->weights.sum, error = sqrt(post->weights.square);

		post->lone = post->least && post->blocks <= 0 && post->weights.sightings &&
			     post->weights.windows < FEW_WINDOWS;
		if (post->least && (post->blocks <= 0 || sum - LIMIT_ERRORS * error > post->blocks))
			post->blocks = post->most > 0 && sum > post->most ? post->most : INFINITY;
	}
}
