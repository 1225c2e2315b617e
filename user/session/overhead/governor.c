/* SPDX-License-Identifier: Apache-2.0 */
#include "session/overhead/governor.h"

#include <string.h>

static void step_set(struct governor *governor, size_t step, uint64_t now_ns)
{
	if (now_ns > governor->changed_ns)
		governor->rate = governor->cpu_ns / (double)(now_ns - governor->changed_ns);
	governor->tried = step < governor->step;
	governor->early = 0;
	governor->step = step;
	governor_changed(governor, now_ns, 0);
}

void governor_changed(struct governor *governor, uint64_t now_ns, double cost_ns)
{
	governor->changed_ns = now_ns;
	governor->cpu_ns = 0;
	governor->debt_ns = cost_ns;
	governor->looked = 0;
}

static bool is_trying(const struct governor *governor, uint64_t now_ns)
{
	return governor->tried && now_ns - governor->changed_ns < GOVERNOR_WINDOW_NS;
}

/*
 * The allowed debt: a part of the window's budget. While a step up is tried, the budget is that of
 * the CPU time that the process took before, since more expensive probes increase it. Otherwise it
 * is that of one CPU, so that a mostly idle process is not stepped down for a short burst. Of a
 * process that begins in windows, the first of these is yet to be paid.
 */
static double debt_max(const struct governor *governor, uint64_t now_ns)
{
	double rate = 1, least = governor->early ? GOVERNOR_RATE_EARLY : GOVERNOR_RATE_MIN;

	if ((governor->early || is_trying(governor, now_ns)) && governor->rate < 1)
		rate = governor->rate > least ? governor->rate : least;
	return governor->budget * rate * GOVERNOR_WINDOW_NS /
	       (governor->early ? GOVERNOR_DEBT_EARLY : GOVERNOR_DEBT);
}

uint64_t governor_wait(const struct governor *governor, uint64_t now_ns)
{
	uint64_t wait_ns = governor->looked ? GOVERNOR_PERIOD_NS : GOVERNOR_FIRST_NS;
	double left_ns = debt_max(governor, now_ns) - governor->debt_ns;

	if (!is_trying(governor, now_ns) && governor->debt_ns <= 0)
		return wait_ns;
	if (left_ns >= (double)wait_ns)
		return wait_ns;
	return left_ns > GOVERNOR_SHORT_NS ? (uint64_t)left_ns : GOVERNOR_SHORT_NS;
}

/* A sample has all traps: it is no step below windows, but what is left where these fail. */
static size_t step_below(const struct governor *governor)
{
	size_t step = governor->step + 1;

	while (governor->steps[governor->step].mode == EVENT_MODE_WINDOWS &&
	       step + 1 < governor->count && governor->steps[step].sample_bytes)
		step++;
	return step;
}

bool governor_is_followed(const struct governor *governor)
{
	size_t next = governor->step + 1;

	return next < governor->count &&
	       governor->steps[next].mode == governor->steps[governor->step].mode;
}

void governor_narrow(struct governor *governor, uint64_t now_ns)
{
	if (governor->step + 1 >= governor->count)
		return;
	/* The step up was too expensive: the next try comes later. */
	if (governor->tried && governor->hold_ns < GOVERNOR_HOLD_MAX_NS)
		governor->hold_ns *= 2;
	step_set(governor, step_below(governor), now_ns);
}

/* Likewise, where there are windows, samples are no step up. */
static size_t step_above(const struct governor *governor)
{
	size_t above = governor->step - 1;

	for (size_t i = 0; i < above; i++)
		if (governor->steps[i].mode == EVENT_MODE_WINDOWS &&
		    governor->steps[above].sample_bytes)
			return i;
	return above;
}

static void widen(struct governor *governor, uint64_t now_ns)
{
	/* The last step up has held. */
	if (governor->tried)
		governor->hold_ns = GOVERNOR_HOLD_NS;
	step_set(governor, step_above(governor), now_ns);
}

void governor_be_careful(struct governor *governor, double rate)
{
	governor->rate = rate;
	governor->early = 1;
}

int governor_begin_early(struct governor *governor, double rate)
{
	governor->rate = rate;
	for (size_t i = 0; i < governor->count; i++)
		if (governor->steps[i].mode == EVENT_MODE_WINDOWS) {
			governor->step = i;
			governor->early = i > 0;
			return 1;
		}
	return 0;
}

int governor_first_window(struct governor *governor, const struct governor_period *window)
{
	uint64_t begun_ns = governor->changed_ns ? governor->changed_ns : window->now_ns;

	if (!governor->early || window->cpu_ns * 100 < window->elapsed_ns * GOVERNOR_BUSY_PERCENT)
		return 0;
	governor->early = 0;
	if (window->cost_ns > governor->budget / 2 * (double)window->cpu_ns ||
	    window->now_ns - begun_ns > GOVERNOR_WINDOW_NS ||
	    governor->steps[governor->step].mode != EVENT_MODE_WINDOWS)
		return 0;
	governor->share = window->cost_ns / (double)window->cpu_ns;
	step_set(governor, 0, window->now_ns);
	return 1;
}

bool governor_is_exceeded(const struct governor *governor, double cost_ns, uint64_t now_ns)
{
	/* It ran at least for as long. */
	return governor->debt_ns + cost_ns * (1 - governor->budget) > debt_max(governor, now_ns);
}

int governor_judge(struct governor *governor, const struct governor_period *period)
{
	if (!governor->hold_ns)
		governor->hold_ns = GOVERNOR_HOLD_NS;
	if (!governor->changed_ns)
		governor->changed_ns = period->now_ns;
	governor->looked = 1;
	governor->cpu_ns += (double)period->cpu_ns;
	governor->debt_ns += period->cost_ns - governor->budget * (double)period->cpu_ns;
	if (governor->debt_ns < 0)
		governor->debt_ns = 0;
	if (period->cpu_ns * 100 < period->elapsed_ns * GOVERNOR_IDLE_PERCENT)
		return 0;
	governor->share = period->cost_ns / (double)period->cpu_ns;
	/* The cost of a hit is a mean over all processes, so the share may exceed 1. */
	if (governor->share > 1)
		governor->share = 1;
	if (governor->debt_ns > debt_max(governor, period->now_ns) &&
	    governor->step + 1 < governor->count) {
		governor_narrow(governor, period->now_ns);
		return 1;
	}
	/* Above half of the budget, the next step up would probably exceed it. */
	if (governor->step && !governor->narrows &&
	    governor->steps[governor->step].mode != EVENT_MODE_WINDOWS &&
	    governor->share <= governor->budget / 2 &&
	    period->now_ns - governor->changed_ns >= governor->hold_ns) {
		widen(governor, period->now_ns);
		return 1;
	}
	return 0;
}

void governor_refuse(struct governor *governor)
{
	if (governor->step + 1 >= governor->count)
		return;
	memmove(&governor->steps[governor->step], &governor->steps[governor->step + 1],
		(governor->count - governor->step - 1) * sizeof(governor->steps[0]));
	governor->count--;
}

static void step_add(struct governor *governor, enum event_mode mode, uint64_t sample_bytes)
{
	governor->steps[governor->count++] =
		(struct governor_step){.mode = mode, .sample_bytes = sample_bytes};
}

void governor_plan(struct governor *governor, double budget, const struct governor_step *first,
		   enum governor_kind kind)
{
	static const uint64_t samples[] = {64 << 10, 1 << 20, 16 << 20};
	int heap = kind == GOVERNOR_HEAP;

	*governor = (struct governor){.budget = budget, .narrows = kind == GOVERNOR_PAGES};
	step_add(governor, first->mode, first->sample_bytes);
	if (heap && first->mode == EVENT_MODE_EXACT)
		step_add(governor, EVENT_MODE_CENSUS, first->sample_bytes);
	if (kind != GOVERNOR_PAGES && first->mode != EVENT_MODE_GROWTH &&
	    first->mode != EVENT_MODE_WINDOWS && !first->sample_bytes) {
		unsigned int last = heap ? GOVERNOR_BETWEEN_NOTHING : GOVERNOR_BETWEEN_LARGE;

		for (unsigned int i = GOVERNOR_BETWEEN_LARGE; i <= last; i++) {
			step_add(governor, EVENT_MODE_WINDOWS, 0);
			governor->steps[governor->count - 1].between = i;
		}
	}
	if (heap && first->mode != EVENT_MODE_GROWTH)
		step_add(governor, EVENT_MODE_GROWTH, 0);
	for (size_t i = 0; !heap && i < sizeof(samples) / sizeof(samples[0]); i++)
		if (samples[i] > first->sample_bytes)
			step_add(governor, first->mode, samples[i]);
	step_add(governor, EVENT_MODE_OFF, first->sample_bytes);
}
