/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In every 10 s there may be n windows of loss L each, with n * L within the budget for 10 s: they
 * begin about 10 s / n apart, at random up to a quarter sooner or later. L is a mean of the windows
 * so far. If a window would exceed the budget, with those of the last 10 s, it begins when enough
 * of these are older, at random again.
 *
 * What one window has cost must not decide when the next one begins, or work that costs more in a
 * window is shown too often: a pause after it that ends 10 s after its beginning ends in the same
 * phase of such work. So windows of the last 10 s count with the mean loss L, unless what they have
 * really taken is far more than the budget.
 *
 * With independent moments chance decides how many of a few windows show work that is done once a
 * second. Of some random moments the one is taken at which the phases of likely periods were shown
 * least (the least sum of Bernoulli polynomials of the differences, as for sequences of low
 * discrepancy). All phases remain equally probable, since the first window's is random.
 *
 * The length is about the one at which the edges take half of the loss: shorter windows show little
 * for their price, and of longer ones there are few, so that errors are large (blocks of one window
 * are not independent of each other). It is such that n windows use up the budget.
 */
#include "session/overhead/windows.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/hash.h"

/* The weight of a new value is 1 / SMOOTH. */
#define SMOOTH 6
/* of sums that use up the budget */
#define ROUNDING 1e-6
/* The actual losses of 10 s may be as many budgets. */
#define GUARD 1.5
/* A window ends early at so many mean losses, but not before that part of the loss of 10 s. */
#define LOSS_MOST  3
#define LOSS_LEAST (1.0 / 16)
/* Other probes may take more than their part for so long, as in a burst. */
#define DEAR_MOST_NS 2000000000ull
#define OTHERS_PART  0.5
/* A window's start is chosen among so many random moments. */
#define CANDIDATES 8

/* Periods of work that are likely, by timers and by the seconds of a clock. */
static const uint64_t periods_ns[] = {1000000000, 2000000000, 3000000000, 5000000000, 10000000000};

/* A mean, of which single values that are far off (a busy machine) change little. */
static double smoothed(double old, double value)
{
	return old + (value - old) / SMOOTH;
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

static double part_of(const struct windows *windows)
{
	return windows->part > 0 ? windows->part : 1;
}

static double budget_of(const struct windows *windows)
{
	return windows->budget * part_of(windows);
}

/* The longest pause. */
static double pause_max(const struct windows *windows)
{
	return (double)WINDOWS_PAUSE_MAX / part_of(windows);
}

/* The CPU time of 10 s that the budget is a share of. */
static double period_cpu(const struct windows *windows)
{
	return fmax(windows->rate, WINDOWS_RATE_MIN) * (double)WINDOWS_PERIOD_NS;
}

/* The loss that the budget allows in 10 s. */
static double allowed(const struct windows *windows)
{
	return fmax(budget_of(windows) - windows->base, 0) * period_cpu(windows);
}

static double loss_of(const struct windows *windows, uint64_t length_ns)
{
	return windows->edges_ns + windows->rate_ns * ((double)length_ns + windows->over_ns);
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
	double most = allowed(windows);

	if (!(most > 0))
		return 0;
	return fmax((double)WINDOWS_PERIOD_NS * loss_ns / most, own_pause(windows));
}

/*
 * When the next window fits into that loss, after those of the last 10 s; 0: at any time, or at
 * none. Several windows use up the budget, unless their length is at its limits. The loss of single
 * ones varies; so that this does not delay the last one of them, half of its loss may exceed the
 * budget.
 */
static uint64_t fits_into(const struct windows *windows, double most)
{
	int several =
		windows->length_ns > WINDOWS_LENGTH_MIN && windows->length_ns < WINDOWS_LENGTH_MAX;
	double mean_ns = loss_of(windows, windows->length_ns);
	double loss_ns = mean_ns * (several ? 0.5 : 1), actual_ns = loss_ns;

	for (uint64_t i = windows->count; i > 0 && windows->count - i < WINDOWS_RECENT; i--) {
		const struct windows_spent *spent = &windows->spent[(i - 1) % WINDOWS_RECENT];

		loss_ns += mean_ns;
		actual_ns += spent->loss_ns;
		if (loss_ns > most || actual_ns > GUARD * most)
			return spent->start_ns + WINDOWS_PERIOD_NS;
	}
	return 0;
}

/* When the next window fits into the budget; 0: at any time. */
static uint64_t fits_from(const struct windows *windows, uint64_t from_ns)
{
	double most = allowed(windows) * (1 + ROUNDING);
	uint64_t fits_ns = fits_into(windows, most), less_ns = UINT64_MAX;

	if (windows->gone_until_ns <= from_ns)
		return fits_ns;
	most -= windows->gone_ns;
	if (most > loss_of(windows, windows->length_ns))
		less_ns = fits_into(windows, most);
	if (less_ns > windows->gone_until_ns)
		less_ns = windows->gone_until_ns;
	return less_ns > fits_ns ? less_ns : fits_ns;
}

/* The length of windows of which so many, in 10 s, use up the budget. */
static uint64_t length_for(const struct windows *windows, double cost, double count)
{
	double inside_ns = (allowed(windows) / count - windows->edges_ns) / cost;

	return length_limit(inside_ns - windows->over_ns);
}

static int choose(struct windows *windows)
{
	double cost = windows->rate_ns > 1e-6 ? windows->rate_ns : 1e-6, pause_ns, count;

	windows->length_ns = length_limit(windows->edges_ns / cost - windows->over_ns);
	count = round(allowed(windows) / loss_of(windows, windows->length_ns) * (1 + ROUNDING));
	/* The tracer's own cost makes windows rare: they may be longer. */
	count = fmin(count, ceil((double)WINDOWS_PERIOD_NS / own_pause(windows)));
	windows->length_ns = length_for(windows, cost, fmax(count, 1));
	if ((!windows->count || windows->rate < WINDOWS_ASLEEP) &&
	    windows->length_ns > WINDOWS_UNKNOWN_MAX)
		windows->length_ns = WINDOWS_UNKNOWN_MAX;
	pause_ns = pause_for(windows, loss_of(windows, windows->length_ns));
	if (windows->yields && windows->dear_ns > DEAR_MOST_NS)
		return -ENOSPC;
	if (!(pause_ns > 0) ||
	    (pause_ns > pause_max(windows) && windows->count && windows->rate > WINDOWS_RATE_MIN))
		return -ENOSPC;
	/* The first one is a guess; a target that is idle loses next to nothing in a window. */
	windows->pause_ns = (uint64_t)fmin(ceil(pause_ns), pause_max(windows));
	return 0;
}

static bool is_fixed(const struct windows *windows)
{
	return !(windows->budget > 0);
}

/* How near two phases are that differ by so much of a period: Bernoulli's polynomial B2. */
static double phase_nearness(double phase)
{
	return phase * phase - phase + 1.0 / 6;
}

/* How much a window at that moment would show the same parts of a period as those before it. */
static double sameness(const struct windows *windows, uint64_t start_ns)
{
	double sum = 0;

	for (uint64_t i = windows->count; i > 0 && windows->count - i < WINDOWS_RECENT; i--) {
		uint64_t before_ns = start_ns - windows->spent[(i - 1) % WINDOWS_RECENT].start_ns;

		for (size_t j = 0; j < sizeof(periods_ns) / sizeof(periods_ns[0]); j++)
			sum += phase_nearness((double)(before_ns % periods_ns[j]) /
					      (double)periods_ns[j]);
	}
	return sum;
}

/* Of some random moments the one that is least like those before. */
static uint64_t moment_choose(struct windows *windows, uint64_t from_ns, uint64_t jitter_ns)
{
	uint64_t best_ns = from_ns + random_below(windows, jitter_ns);
	double least = sameness(windows, best_ns);

	for (int i = 1; i < CANDIDATES; i++) {
		uint64_t at_ns = from_ns + random_below(windows, jitter_ns);
		double found = sameness(windows, at_ns);

		if (found < least) {
			least = found;
			best_ns = at_ns;
		}
	}
	return best_ns;
}

int windows_next(struct windows *windows, uint64_t now_ns, struct windows_next *out)
{
	uint64_t from_ns, fits_ns, jitter_ns;
	int err = 0;

	guess(windows);
	if (is_fixed(windows)) {
		windows->length_ns = windows->on_ns;
		windows->pause_ns = windows->on_ns + windows->off_ns / 2;
		from_ns = windows->last_ns + windows->pause_ns;
		jitter_ns = windows->off_ns;
	} else {
		err = choose(windows);
		from_ns = windows->last_ns + windows->pause_ns - windows->pause_ns / 4;
		/* The first one came before the budget had allowed it. */
		if (windows->count == 1)
			from_ns += windows->pause_ns / 2;
		fits_ns = fits_from(windows, from_ns);
		from_ns = from_ns > fits_ns ? from_ns : fits_ns;
		jitter_ns = windows->pause_ns / 2;
	}
	if (err)
		return err;
	if (!windows->last_ns) {
		from_ns = now_ns;
		jitter_ns = WINDOWS_FIRST_NS;
	}
	from_ns = is_fixed(windows) ? from_ns + random_below(windows, jitter_ns)
				    : moment_choose(windows, from_ns, jitter_ns);
	/* A target that was stopped, or a suspended machine: no window is made up for. */
	windows->last_ns = from_ns > now_ns ? from_ns : now_ns;
	*out = (struct windows_next){.start_ns = windows->last_ns, .length_ns = windows->length_ns};
	return 0;
}

double windows_loss_most(const struct windows *windows)
{
	return fmax(LOSS_MOST * loss_of(windows, windows->length_ns),
		    LOSS_LEAST * allowed(windows));
}

void windows_others_took(struct windows *windows, double loss_ns, uint64_t elapsed_ns)
{
	double kept = fmax(0, 1 - (double)elapsed_ns / (double)WINDOWS_PERIOD_NS);

	windows->others_ns = windows->others_ns * kept + loss_ns;
}

void windows_others_gone(struct windows *windows, uint64_t now_ns)
{
	windows->gone_ns =
		windows->others_ns + (now_ns < windows->gone_until_ns ? windows->gone_ns : 0);
	windows->others_ns = 0;
	windows->gone_until_ns = now_ns + WINDOWS_PERIOD_NS;
	windows->base = 0;
	windows->dear_ns = 0;
}

double windows_share(const struct windows *windows, uint64_t now_ns)
{
	/* The longest time from one window to the next. */
	double period_ns = fmax((double)WINDOWS_PERIOD_NS, 1.25 * (double)windows->pause_ns);
	double cpu_ns = period_cpu(windows) * period_ns / (double)WINDOWS_PERIOD_NS, loss_ns = 0;

	for (uint64_t i = windows->count; i > 0 && windows->count - i < WINDOWS_RECENT; i--) {
		const struct windows_spent *spent = &windows->spent[(i - 1) % WINDOWS_RECENT];

		if ((double)spent->start_ns + period_ns > (double)now_ns)
			loss_ns += spent->loss_ns;
	}
	return fmin(windows->base + loss_ns / cpu_ns, 1);
}

void windows_took(struct windows *windows, const struct windows_cost *cost)
{
	double inside = cost->length_ns ? (double)cost->inside_ns / (double)cost->length_ns : 0;
	double loss_ns = (double)(cost->edges_ns + cost->inside_ns), over = 0;

	/* The kernel ends a window later than it was told to. */
	if (!is_fixed(windows) && cost->length_ns > windows->length_ns)
		over = fmin((double)(cost->length_ns - windows->length_ns), WINDOWS_LENGTH_MAX);
	windows->base = cost->base;
	windows->dear_ns = cost->base > OTHERS_PART * budget_of(windows)
				   ? windows->dear_ns + cost->elapsed_ns
				   : 0;
	if (cost->elapsed_ns >= WINDOWS_LENGTH_MIN)
		windows->rate = (double)cost->cpu_ns / (double)cost->elapsed_ns;
	windows->spent[windows->count % WINDOWS_RECENT] =
		(struct windows_spent){.start_ns = windows->last_ns, .loss_ns = loss_ns};
	/* What windows of an idle target took says nothing about one that is busy. */
	if (!windows->count || (windows->rate_ns < WINDOWS_IDLE && inside > windows->rate_ns)) {
		windows->edges_ns = (double)cost->edges_ns;
		windows->rate_ns = inside;
		windows->over_ns = over;
		windows->own_ns = (double)cost->own_ns;
	} else if (cost->cpu_ns || loss_ns > 0) { /* one that was stopped tells nothing */
		windows->edges_ns = smoothed(windows->edges_ns, (double)cost->edges_ns);
		windows->rate_ns = smoothed(windows->rate_ns, inside);
		windows->over_ns = smoothed(windows->over_ns, over);
		windows->own_ns = smoothed(windows->own_ns, (double)cost->own_ns);
	}
	windows->count++;
}
