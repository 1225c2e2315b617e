/* SPDX-License-Identifier: Apache-2.0 */
/* What the target did in windows, relative to the same time without probes. */
#include <math.h>

#include "snapshot/calibrate_state.h"

#define PROGRESS_ROUNDS 4

/*
 * All of its blocks were seen, and stand for themselves: it is no sample, and says nothing about
 * what windows show of others.
 */
static int post_is_whole(const struct post *post)
{
	return post->weights.seen >= post->blocks && post->weights.sum <= post->weights.seen;
}

void progress_find(struct calibration *calibration)
{
	double asked = calibration->input->progress, least = calibration->input->progress_least;

	calibration->progress = asked > 0 ? asked : fmax(0x1p-32, least);
	for (int round = 0; !(asked > 0) && round < PROGRESS_ROUNDS; round++) {
		double weight = 0, blocks = 0;

		for (size_t i = 0; i < calibration->post_count; i++) {
			const struct post *post = &calibration->posts[i];

			/* A lower bound says nothing if the sightings stand for more. */
			if (post_is_whole(post) ||
			    (post->least && post->blocks < post->weights.sum) ||
			    post->blocks > weights_limit(calibration, post->weights.sum,
							 post->weights.square))
				continue;
			weight += post->weights.sum;
			blocks += post->blocks;
		}
		if (blocks > 0 && weight > 0)
			calibration->progress = fmin(1, fmax(weight / blocks, least));
		else if (!round) /* as if windows slowed nothing */
			asked = calibration->progress = 1;
	}
}
