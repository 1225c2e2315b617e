/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In every 10 s there may be n windows of loss L each, with n * L within the budget for 10 s: they
 * begin at least 10 s / n apart, and at random up to half as much later.
 *
 * The length is the one at which the edges take half of the loss: shorter windows show little for
 * their price, and of longer ones there are few, so that errors are large (blocks of one window are
 * not independent of each other).
 */
#include "overhead/windows.h"

#include <errno.h>
#include <math.h>

#include "base/hash.h"

/* Of an old estimate and a new value. A rise counts at once, so that the budget holds. */
#define SMOOTH 4

static double smoothed(double old, double value)
{
	return value >= old ? value : old + (value - old) / SMOOTH;
}

/* Uniform in 0 to limit - 1; 0 if limit is 0. */
static uint64_t random_below(struct windows *windows, uint64_t limit)
{
	windows->random += 0x9e3779b97f4a7c15ull;
	return limit ? (uint64_t)((double)(hash_u64(windows->random) >> 11) * 0x1p-53 *
				  (double)limit)
		     : 0;
}

static void guess(struct windows *windows)
{
	if (windows->count)
		return;
	windows->edges_ns = WINDOWS_EDGES_GUESS;
	windows->own_ns = WINDOWS_OWN_GUESS;
	if (!(windows->rate > 0))
		windows->rate = 1;
	windows->rate_ns = windows->rate;
}

/* The loss that the budget allows in 10 s. */
static double allowed(const struct windows *windows)
{
	double rate = windows->rate > WINDOWS_RATE_MIN ? windows->rate : WINDOWS_RATE_MIN;
	double share = windows->budget - windows->base;

	return share > 0 ? share * rate * (double)WINDOWS_PERIOD_NS : 0;
}

static double loss_of(const struct windows *windows, uint64_t length_ns)
{
	return windows->edges_ns + windows->rate_ns * (double)length_ns;
}

static uint64_t length_limit(double length_ns)
{
	return length_ns < (double)WINDOWS_LENGTH_MIN   ? WINDOWS_LENGTH_MIN
	       : length_ns > (double)WINDOWS_LENGTH_MAX ? WINDOWS_LENGTH_MAX
							: (uint64_t)length_ns;
}

/* The pause that the tracer's own share of a CPU allows; of very many targets, a larger share. */
static double own_pause(const struct windows *windows)
{
	double targets = windows->targets ? (double)windows->targets : 1;

	return fmin(windows->own_ns * targets / WINDOWS_OWN_SHARE, (double)WINDOWS_PAUSE_MAX);
}

/* The shortest pause for windows of that loss; 0: there is none. */
static double pause_for(const struct windows *windows, double loss_ns)
{
	double most = allowed(windows), own_ns = own_pause(windows), pause_ns;

	if (!(most > 0))
		return 0;
	pause_ns = (double)WINDOWS_PERIOD_NS * loss_ns / most;
	if (pause_ns < (double)WINDOWS_PERIOD_NS && loss_ns > 0)
		pause_ns = (double)WINDOWS_PERIOD_NS / floor(most / loss_ns);
	return pause_ns > own_ns ? pause_ns : own_ns;
}

static int choose(struct windows *windows)
{
	double cost = windows->rate_ns > 1e-6 ? windows->rate_ns : 1e-6, pause_ns;
	double own_ns = own_pause(windows);
	double most_ns = (allowed(windows) - windows->edges_ns) / cost;

	windows->length_ns = length_limit(fmin(windows->edges_ns / cost, most_ns));
	if (!windows->count && windows->length_ns > WINDOWS_FIRST_MAX)
		windows->length_ns = WINDOWS_FIRST_MAX;
	pause_ns = pause_for(windows, loss_of(windows, windows->length_ns));
	/* The tracer's own cost makes windows rare: they may be longer. */
	if (pause_ns > 0 && pause_ns <= own_ns && windows->count) {
		double count = ceil((double)WINDOWS_PERIOD_NS / own_ns);

		windows->length_ns =
			length_limit((allowed(windows) / count - windows->edges_ns) / cost);
		pause_ns = pause_for(windows, loss_of(windows, windows->length_ns));
	}
	if (!(pause_ns > 0) || (pause_ns > (double)WINDOWS_PAUSE_MAX && windows->count &&
				windows->rate > WINDOWS_RATE_MIN))
		return -ENOSPC;
	/* The first one is a guess; a target that is idle loses next to nothing in a window. */
	windows->pause_ns = (uint64_t)fmin(ceil(pause_ns), (double)WINDOWS_PAUSE_MAX);
	return 0;
}

static int is_fixed(const struct windows *windows)
{
	return !(windows->budget > 0);
}

int windows_next(struct windows *windows, uint64_t now_ns, struct windows_next *out)
{
	uint64_t from_ns, jitter_ns;
	int err = 0;

	guess(windows);
	if (is_fixed(windows)) {
		windows->length_ns = windows->on_ns;
		windows->pause_ns = windows->on_ns + windows->off_ns / 2;
		jitter_ns = windows->off_ns;
	} else {
		err = choose(windows);
		jitter_ns = windows->pause_ns / 2;
	}
	if (err)
		return err;
	if (!windows->last_ns) {
		from_ns = now_ns;
		jitter_ns = WINDOWS_FIRST_NS;
	} else {
		from_ns = windows->last_ns + windows->pause_ns;
	}
	from_ns += random_below(windows, jitter_ns);
	/* A target that was stopped, or a suspended machine: no window is made up for. */
	windows->last_ns = from_ns > now_ns ? from_ns : now_ns;
	*out = (struct windows_next){.start_ns = windows->last_ns, .length_ns = windows->length_ns};
	return 0;
}

void windows_took(struct windows *windows, const struct windows_cost *cost)
{
	double inside = cost->length_ns ? (double)cost->inside_ns / (double)cost->length_ns : 0;
	double edges = (double)cost->edges_ns;

	/* The kernel ends a window later than it was told to: that is a part of its edges. */
	if (!is_fixed(windows) && cost->length_ns > windows->length_ns)
		edges += inside * (double)(cost->length_ns - windows->length_ns);
	windows->base = cost->base;
	if (cost->elapsed_ns >= WINDOWS_LENGTH_MIN)
		windows->rate = (double)cost->cpu_ns / (double)cost->elapsed_ns;
	if (windows->count) {
		windows->edges_ns = smoothed(windows->edges_ns, edges);
		windows->rate_ns = smoothed(windows->rate_ns, inside);
		windows->own_ns = smoothed(windows->own_ns, (double)cost->own_ns);
	} else {
		windows->edges_ns = edges;
		windows->rate_ns = inside;
		windows->own_ns = (double)cost->own_ns;
	}
	windows->count++;
}
