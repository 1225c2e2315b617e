/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "calibrate/state.h"

/* With a probability of 95 % at most so many are expected of what was never seen. */
#define LIMIT_NONE 3

struct weights weights_sum(struct calibration *calibration, size_t begin, size_t end)
{
	struct window_sum *sums = calibration->window_sums;
	struct weights weights = {.sightings = end - begin};

	for (size_t i = begin; i < end; i++) {
		const struct calibrate_sighting *sighting = sighting_at(calibration, i);
		double weight = weight_of(calibration, sighting, -1);
		double full = full_weight_of(calibration, sighting);

		weights.sum += weight;
		weights.seen += sighting->likeness ? 0 : discount_of(sighting, -1);
		weights.seen_sum += sighting->likeness ? 0 : weight;
		weights.full += full;
		sums[sighting->window].weight += weight;
		sums[sighting->window].full += full;
	}
	for (size_t i = begin; i < end; i++) {
		struct window_sum *sum = &sums[sighting_at(calibration, i)->window];

		weights.square += sum->weight * sum->weight;
		weights.full_square += sum->full * sum->full;
		*sum = (struct window_sum){0};
	}
	weights.windows = weights.square > 0 ? weights.sum * weights.sum / weights.square : 0;
	return weights;
}

double weights_limit(const struct calibration *calibration, double sum, double square)
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
	if (input->stratum_count >= UINT32_MAX || input->sighting_count >= UINT32_MAX ||
	    input->window_count >= UINT32_MAX || input->row_count >= UINT32_MAX)
		return error_set(-EINVAL, "more than 2^32 strata, windows, sightings or rows");
	for (size_t i = 0; i < input->window_count; i++) {
		if (input->windows[i].end_ns < input->windows[i].start_ns)
			return error_set(-EINVAL, "window %zu ends before it starts", i);
		if (!(input->windows[i].idle >= 0 && input->windows[i].idle <= 1))
			return error_set(-EINVAL, "the idle part of window %zu is not from 0 to 1",
					 i);
	}
	for (size_t i = 0; i < input->sighting_count; i++) {
		const struct calibrate_sighting *sighting = &input->sightings[i];

		if (sighting->stratum >= input->stratum_count ||
		    sighting->window >= input->window_count || sighting->row >= input->row_count)
			return error_set(-EINVAL, "sighting %zu names what does not exist", i);
		/* The bound keeps all sums of weights finite. */
		if (!(sighting->inclusion >= 0x1p-32 &&
		      sighting->inclusion <= (sighting->likeness ? 0x1p32 : 1)))
			return error_set(-EINVAL,
					 "the probability of sighting %zu is not from 2^-32 to 1",
					 i);
		if (sighting->discount &&
		    !(sighting->discount->whole >= 0x1p-32f && sighting->discount->whole <= 1))
			return error_set(-EINVAL,
					 "the discount of sighting %zu is not from 2^-32 to 1", i);
	}
	return 0;
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* The order of two strata in different cells; 0: both are in one cell. */
static int cell_compare(const struct calibration *calibration, uint32_t i, uint32_t j)
{
	const struct calibrate_stratum *x = &calibration->input->strata[i],
				       *y = &calibration->input->strata[j];
	uint8_t level = calibration->levels[i], other = calibration->levels[j];
	int order = compare(level == LEVEL_RARE, other == LEVEL_RARE);

	if (!order && level != LEVEL_RARE)
		order = compare(x->family, y->family);
	order = order ?: compare(x->class_bytes, y->class_bytes) ?: compare(level, other);
	return order || level == LEVEL_RARE || (level == LEVEL_FAMILY && x->family)
		       ? order
		       : compare(x->type, y->type);
}

static int stratum_compare(const void *a, const void *b, void *context)
{
	const struct calibration *calibration = context;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct calibrate_stratum *x = &calibration->input->strata[i],
				       *y = &calibration->input->strata[j];
	int order = cell_compare(calibration, i, j);

	if (!order)
		order = compare(!is_burst(calibration, i), !is_burst(calibration, j));
	if (!order)
		order = compare(x->cohort, y->cohort);
	return order ? order : compare(i, j);
}

static int sighting_compare(const void *a, const void *b, void *context)
{
	const struct calibration *calibration = context;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct calibrate_sighting *x = &calibration->input->sightings[i],
					*y = &calibration->input->sightings[j];
	uint32_t p = calibration->ranks[x->stratum], q = calibration->ranks[y->stratum];
	int order = compare(calibration->cell_of[p], calibration->cell_of[q]);

	if (!order)
		order = compare(!x->alive, !y->alive);
	if (!order)
		order = compare(p, q);
	return order ? order : compare(i, j);
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

static void sightings_order(struct calibration *calibration)
{
	const struct calibrate_input *input = calibration->input;
	size_t at = 0;

	for (uint32_t i = 0; i < input->sighting_count; i++)
		calibration->sightings[i] = i;
	qsort_r(calibration->sightings, input->sighting_count, sizeof(*calibration->sightings),
		sighting_compare, calibration);
	for (size_t i = 0; i < calibration->cell_count; i++) {
		struct cell *cell = &calibration->cells[i];

		cell->sightings = cell->dead = at;
		while (at < input->sighting_count &&
		       calibration->cell_of[calibration->ranks[sighting_at(calibration, at)
								       ->stratum]] == i)
			cell->dead += (size_t)(sighting_at(calibration, at++)->alive != 0);
		cell->sightings_end = at;
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
	for (size_t i = 0; i < calibration->post_count; i++)
		seen += calibration->posts[i].weights.seen;
	out->seen_blocks = (uint64_t)llround(seen);
	for (size_t i = 0; i < input->stratum_count; i++)
		out->new_blocks += input->strata[i].new_blocks;
	out->windows = input->window_count;
	out->time_share = out->span_ns ? fmin(1, (double)out->on_ns / (double)out->span_ns) : 0;
	out->blocks_share =
		out->new_blocks ? fmin(1, (double)out->seen_blocks / (double)out->new_blocks) : 0;
}

void strata_arrange(struct calibration *calibration)
{
	memset(calibration->paces, PACE_STEADY, calibration->input->stratum_count);
	strata_order(calibration);
	/* Those with a burst come first then. */
	if (paces_find(calibration))
		strata_order(calibration);
	sightings_order(calibration);
	posts_make(calibration);
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
	       rows = input->row_count + 1, sightings = input->sighting_count + 1;
	struct calibrate_result *out = &calibration->out;

	calibration->input = input;
	calibration->levels = calloc(strata, sizeof(*calibration->levels));
	calibration->order = calloc(strata, sizeof(*calibration->order));
	calibration->ranks = calloc(strata, sizeof(*calibration->ranks));
	calibration->cells = calloc(strata, sizeof(*calibration->cells));
	calibration->cell_of = calloc(strata, sizeof(*calibration->cell_of));
	calibration->paces = calloc(strata, sizeof(*calibration->paces));
	calibration->stretches = calloc(strata, sizeof(*calibration->stretches));
	calibration->posts = calloc(strata, sizeof(*calibration->posts));
	calibration->sightings = calloc(sightings, sizeof(*calibration->sightings));
	calibration->groups = calloc(windows, sizeof(*calibration->groups));
	calibration->window_sums = calloc(windows, sizeof(*calibration->window_sums));
	calibration->shares = calloc(windows, sizeof(*calibration->shares));
	calibration->progress = calloc(windows, sizeof(*calibration->progress));
	calibration->slot_of = calloc(rows, sizeof(*calibration->slot_of));
	calibration->slots =
		calloc(rows < sightings ? rows : sightings, sizeof(*calibration->slots));
	out->rows = calloc(rows, sizeof(*out->rows));
	out->old_rows = calloc(rows, sizeof(*out->old_rows));
	out->strata = calloc(strata, sizeof(*out->strata));
	out->row_count = input->row_count;
	return calibration->levels && calibration->order && calibration->ranks &&
			       calibration->cells && calibration->cell_of && calibration->paces &&
			       calibration->stretches && calibration->posts &&
			       calibration->sightings && calibration->groups &&
			       calibration->window_sums && calibration->shares &&
			       calibration->progress && calibration->slot_of &&
			       calibration->slots && out->rows && out->old_rows && out->strata
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
	free(calibration->paces);
	free(calibration->stretches);
	free(calibration->posts);
	free(calibration->sightings);
	free(calibration->groups);
	free(calibration->window_sums);
	free(calibration->shares);
	free(calibration->progress);
	free(calibration->slot_of);
	free(calibration->slots);
}

int calibrate(const struct calibrate_input *input, struct calibrate_result *out)
{
	struct calibration calibration = {0};
	int err = input_check(input);

	if (!err)
		err = calibration_begin(&calibration, input);
	if (!err) {
		calibration.group_count = calibrate_groups(input->window_count, calibration.groups);
		/* It is not known yet: strata are arranged as if windows slowed nothing. */
		for (size_t i = 0; i < input->window_count; i++)
			calibration.progress[i] = 1;
		memset(calibration.levels, LEVEL_FAMILY, input->stratum_count);
		strata_arrange(&calibration);
		shares_set(&calibration);
		progress_find(&calibration);
		families_divide(&calibration);
		rare_collapse(&calibration);
		strata_arrange(&calibration);
		posts_least_judge(&calibration);
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
	*result = (struct calibrate_result){0};
}
