/* SPDX-License-Identifier: Apache-2.0 */
/* Splits what windows tell of rows by age. Pure. */
#pragma once

#include "snapshot/estimate/calibrate.h"
#include "snapshot/snapshot.h"

/*
 * The ages, in ns, of a sampled block and, on average, of the others that it stands for: these were
 * allocated when no window was open.
 */
struct block_ages {
	uint64_t own_ns, others_ns;
};

/* Blocks of a row that no sampled block stands for, and their age. */
struct row_age {
	uint32_t row;
	uint64_t age_ns;
	double blocks;
};

struct ages_input {
	const struct calibrate_sampled_block *sampled_blocks; /* those of the result's shares */
	const struct block_ages *ages;
	size_t sampled_count;
	size_t row_count, window_count;
	uint64_t most_ns;             /* as in ages_round() */
	const struct row_age *others; /* they count where a row has no sampled block */
	size_t other_count;
};

/*
 * Makes of each row as many as it has ages, with the same sum. Parts of a row are as large as what
 * its sampled blocks stand for; how wrong that is, is a deviation without each group of windows,
 * beside the part of the row's deviations. Those of the parts add up to the row's. *rows is
 * replaced, and the caller frees it; so are the rows of the result, of which the first part has
 * what is older than the trace. Rows of which no age is known stay. 0; -ENOMEM: nothing has
 * changed.
 */
int ages_split(const struct ages_input *ages, const struct snapshot_trace *rows,
	       struct snapshot_trace **out, struct calibrate_result *result);
