/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/pools_split.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/error.h"
#include "util/id_map.h"
#include "util/sorted.h"

#define DOUBLINGS  64
#define BISECTIONS 48

/* A number of blocks, and the same without each group of pools. */
struct pools_split_replicates {
	double whole;
	double without[CALIBRATE_GROUPS];
};

/* Of one item of pools_taken. */
struct share {
	uint32_t number;                    /* of it */
	struct pools_split_replicates kept; /* what its row is likely to keep in these pools */
	double explained;                   /* what windows explain of the row in that stratum */
};

/* What windows explain of a row and stratum, and of the whole stratum: weights of sampled blocks.
 */
struct pools_split_explained {
	struct id_map index; /* pair_key() -> place in rows */
	double *rows;        /* by the number of pools_taken */
	double *strata;
};

static double taken_blocks(const struct pools_taken *taken)
{
	double blocks = 0;

	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		blocks += taken->blocks[g];
	return blocks;
}

static uint64_t pair_key(uint32_t stratum, uint32_t row)
{
	return (uint64_t)stratum << 32 | row;
}

static void explained_free(struct pools_split_explained *explained)
{
	id_map_free(&explained->index);
	free(explained->rows);
	free(explained->strata);
}

/* 0; -ENOMEM. *out is the caller's to free in any case. */
static int explained_find(const struct calibrate_input *input, const struct pools_taken *taken,
			  size_t count, struct pools_split_explained *out)
{
	int err = 0;

	*out = (struct pools_split_explained){
		.rows = calloc(count + 1, sizeof(*out->rows)),
		.strata = calloc(input->stratum_count + 1, sizeof(*out->strata))};
	if (!out->rows || !out->strata)
		return -ENOMEM;
	for (size_t i = 0; !err && i < count; i++)
		err = id_map_put(&out->index, pair_key(taken[i].stratum, taken[i].row),
				 (uint32_t)i);
	for (size_t i = 0; !err && i < input->sampled_block_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];
		uint32_t found = id_map_find(&out->index,
					     pair_key(sampled_block->stratum, sampled_block->row));
		double weight =
			(sampled_block->survival ? (double)sampled_block->survival->whole : 1) /
			sampled_block->inclusion;

		if (!sampled_block->alive)
			continue;
		out->strata[sampled_block->stratum] += weight;
		if (found != ID_MAP_NONE)
			out->rows[found] += weight;
	}
	return err;
}

/* The blocks of that row which windows explain. */
static double row_explained(const struct pools_split_explained *explained,
			    const struct pools_taken *taken, size_t number,
			    const struct calibrate_input *input,
			    const struct calibrate_unseen *unseen)
{
	double all = explained->strata[taken[number].stratum];
	double blocks =
		(double)input->strata[taken[number].stratum].new_blocks - unseen->new_blocks;

	return all > 0 ? fmax(0, blocks) * explained->rows[number] / all : 0;
}

static struct pools_split_replicates taken_kept(const struct pools_taken *taken)
{
	struct pools_split_replicates kept = {.whole = taken->keeps * taken_blocks(taken)};

	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		kept.without[g] = kept.whole - taken->keeps * taken->blocks[g];
	return kept;
}

/* g: without that group, unless negative. */
static double kept_of(const struct share *share, int g)
{
	return g < 0 ? share->kept.whole : share->kept.without[g];
}

static double left_of(const struct share *share, int g, double level)
{
	return fmax(0, level * kept_of(share, g) - share->explained);
}

static double left_sum(const struct share *shares, size_t count, int g, double level)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += left_of(&shares[i], g, level);
	return sum;
}

/*
 * The level at which rows have that many blocks left, beyond those that windows explain: then all
 * blocks are split like the pools, unless windows explain more of a row. 0: nobody keeps any.
 */
static double level_find(const struct share *shares, size_t count, int g, double blocks)
{
	double low = 0, high = 1;

	for (int i = 0; i < DOUBLINGS && left_sum(shares, count, g, high) < blocks; i++)
		low = high, high *= 2;
	if (left_sum(shares, count, g, high) < blocks)
		return 0;
	for (int i = 0; i < BISECTIONS; i++) {
		double middle = (low + high) / 2;

		*(left_sum(shares, count, g, middle) < blocks ? &low : &high) = middle;
	}
	return high;
}

/* The blocks of one stratum are split among the rows of these. Returns how many were. */
static double stratum_split(const struct pools_taken *taken, const struct share *shares,
			    size_t count, const struct calibrate_unseen *unseen,
			    struct calibrate_estimate *rows)
{
	/* the jackknife's factor */
	const double scale = sqrt((CALIBRATE_GROUPS - 1.0) / CALIBRATE_GROUPS);
	double blocks = 0, level, without[CALIBRATE_GROUPS];
	double missed = sqrt(calibrate_variance(unseen->deviations));

	for (size_t i = 0; i < count; i++)
		blocks += taken_blocks(&taken[shares[i].number]);
	blocks = fmin(blocks, unseen->new_blocks);
	level = blocks > 0 ? level_find(shares, count, -1, blocks) : 0;
	if (!(level > 0))
		return 0;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		without[g] = level_find(shares, count, (int)g, blocks);
	for (size_t i = 0; i < count; i++) {
		struct calibrate_estimate *row = &rows[taken[shares[i].number].row];
		double whole = left_of(&shares[i], -1, level);

		row->blocks += whole;
		for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
			row->deviations[g] +=
				(float)(scale * (left_of(&shares[i], (int)g, without[g]) - whole));
		/* What windows explain more, they leave less: no part of the total's error. */
		row->deviations[CALIBRATE_GROUPS] += (float)(missed * whole / unseen->new_blocks);
	}
	return blocks;
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

static int share_compare(const void *a, const void *b, void *context)
{
	const struct pools_taken *taken = context;
	uint32_t i = ((const struct share *)a)->number, j = ((const struct share *)b)->number;

	return CMP(taken[i].stratum, taken[j].stratum) ?: CMP(i, j);
}

int pools_split(const struct calibrate_input *input, const struct pools_taken *taken, size_t count,
		struct calibrate_result *result)
{
	struct pools_split_explained explained = {0};
	struct share *shares;
	int err;

	for (size_t i = 0; i < count; i++)
		if (taken[i].stratum >= input->stratum_count || taken[i].row >= input->row_count ||
		    !(taken[i].keeps >= 0 && taken[i].keeps <= 1))
			return error_set(-EINVAL, "pools %zu name what does not exist", i);
	shares = calloc(count + 1, sizeof(*shares));
	err = shares ? explained_find(input, taken, count, &explained) : -ENOMEM;
	for (size_t i = 0; !err && i < count; i++)
		shares[i] = (struct share){
			.number = (uint32_t)i,
			.kept = taken_kept(&taken[i]),
			.explained = row_explained(&explained, taken, i, input,
						   &result->strata[taken[i].stratum])};
	if (!err)
		qsort_r(shares, count, sizeof(*shares), share_compare, (void *)(uintptr_t)taken);
	for (size_t i = 0, end; !err && i < count; i = end) {
		uint32_t stratum = taken[shares[i].number].stratum;
		double blocks;

		for (end = i; end < count && taken[shares[end].number].stratum == stratum;)
			end++;
		blocks = stratum_split(taken, shares + i, end - i, &result->strata[stratum],
				       result->rows);
		if (blocks > 0)
			unseen_lessen(result, stratum, blocks);
	}
	explained_free(&explained);
	free(shares);
	return err;
}
