/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the target did in each window, relative to the same time without probes. How much probes
 * slow its threads while these are awake is one unknown for all windows. It is such that the
 * sightings stand for as many blocks as there are. The longer the target sleeps in a window, the
 * less it is slowed there. With the same progress for all windows, too little would be attributed
 * to what it did when it was busiest.
 */
#include <math.h>
#include <string.h>

#include "calibrate/state.h"

#define ROUNDS     4
#define BISECTIONS 64
/* What threads that are awake do at least, relative to the same without probes. */
#define AWAKE_MIN 0x1p-32
/*
 * Of a busy target a part of the idle time is due to probes: its threads wait for locks of the
 * kernel. So only one that sleeps for so much of the time tells that there was a burst.
 */
#define IDLE_SURE 0.75
/* Windows miss at most that part of blocks otherwise, such as those that no look has shown. */
#define LOST_MOST 0.25

/*
 * All of its blocks were seen, and stand for themselves: it is no sample, and says nothing about
 * what windows show of others.
 */
static int post_is_whole(const struct post *post)
{
	return post->weights.seen >= post->blocks && post->weights.sum <= post->weights.seen;
}

/* Does its number of blocks say something about the progress? */
static int post_tells(const struct calibration *calibration, const struct post *post)
{
	return !post_is_whole(post) && !post->exceeded &&
	       post->blocks <= weights_limit(calibration, post->weights.sum, post->weights.square);
}

static double progress_in(const struct calibrate_window *window, double awake)
{
	return (1 - LOST_MOST * (1 - awake)) * (window->idle + (1 - window->idle) * awake);
}

static void post_share(struct calibration *calibration, const struct post *post)
{
	for (size_t i = post->sightings; i < post->sightings_end; i++) {
		const struct calibrate_sighting *sighting = sighting_at(calibration, i);
		struct window_share *share = &calibration->shares[sighting->window];
		double discount = discount_of(sighting, -1);
		double own = sighting->likeness ? 0 : discount;

		share->own += own;
		share->between += discount / sighting->inclusion - own;
	}
}

/* The weight of all shares. */
static double shares_weight(const struct calibration *calibration, double awake)
{
	double sum = 0;

	for (size_t i = 0; i < calibration->input->window_count; i++)
		sum += calibration->shares[i].own +
		       calibration->shares[i].between /
			       progress_in(&calibration->input->windows[i], awake);
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

static void progress_set(struct calibration *calibration, double awake)
{
	for (size_t i = 0; i < calibration->input->window_count; i++)
		calibration->progress[i] = progress_in(&calibration->input->windows[i], awake);
	posts_weigh(calibration);
}

/* Has it no likenesses? These tell about a part of a post-stratum, but not how large it is. */
static int post_is_sure(const struct post *post)
{
	return post->weights.seen_sum >= post->weights.sum;
}

/* Fills the shares of those that tell, and returns their blocks; 0: nothing tells. */
static double shares_fill(struct calibration *calibration, int sure)
{
	double blocks = 0;

	memset(calibration->shares, 0,
	       calibration->input->window_count * sizeof(*calibration->shares));
	for (size_t i = 0; i < calibration->post_count; i++) {
		const struct post *post = &calibration->posts[i];

		if (!post_tells(calibration, post) || (sure && !post_is_sure(post)))
			continue;
		post_share(calibration, post);
		blocks += post->blocks;
	}
	return shares_weight(calibration, 1) > 0 ? blocks : 0;
}

/*
 * Begins with that progress. What it leaves unexplained is taken for bursts. Returns 0 if more than
 * that must be: even threads that do next to nothing in windows do not explain the blocks.
 */
static int progress_solve(struct calibration *calibration, double awake)
{
	double blocks = 0;

	progress_set(calibration, awake);
	calibration->out.progress = 1;
	for (int round = 0; round < ROUNDS; round++) {
		blocks = shares_fill(calibration, 1);
		if (!(blocks > 0))
			blocks = shares_fill(calibration, 0);
		if (!(blocks > 0) && !round) /* nothing tells: as if windows slowed nothing */
			progress_set(calibration, 1);
		if (!(blocks > 0))
			return 1;
		awake = awake_find(calibration, blocks);
		calibration->out.progress =
			shares_weight(calibration, 1) / shares_weight(calibration, awake);
		progress_set(calibration, awake);
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

void progress_find(struct calibration *calibration)
{
	progress_set(calibration, 1);
	for (size_t i = 0; i < calibration->post_count; i++) {
		struct post *post = &calibration->posts[i];

		/* A lower bound says nothing if the sightings stand for more. */
		post->exceeded = post->least && post->blocks < post->weights.sum;
	}
	if (!progress_solve(calibration, AWAKE_MIN) && idle_mean(calibration) >= IDLE_SURE)
		progress_solve(calibration, 1);
}
