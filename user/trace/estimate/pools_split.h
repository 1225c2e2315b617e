/* SPDX-License-Identifier: Apache-2.0 */
/* Splits what no window has shown by who took pools into use. Pure. */
#pragma once

#include "snapshot/estimate/calibrate.h"

/*
 * Blocks of a stratum that are alive in pools which a row has taken into use while no window was
 * open, by random group of pools.
 */
struct pools_taken {
	uint32_t stratum, row;
	uint32_t blocks[CALIBRATE_GROUPS];
	/*
	 * What part of its blocks the row keeps, by what windows have shown of it: a row that drops
	 * all of its blocks takes pools, too, which others fill then. 0 to 1; 1: not known.
	 */
	double keeps;
};

/*
 * Attributes what no window has shown of a stratum, at most as many blocks as there are in such
 * pools, to the rows that took these, by what they keep in them beyond the blocks that windows
 * explain: whose request finds all pools full is as random as whose is in a window, unless the
 * blocks of one round fill pools exactly. Pools are clusters, so deviations are those of a
 * jackknife over groups of pools. Less is unseen then. 0; -EINVAL (error_set): indices as in
 * calibrate(); -ENOMEM; nothing has changed then.
 */
int pools_split(const struct calibrate_input *input, const struct pools_taken *taken, size_t count,
		struct calibrate_result *result);
