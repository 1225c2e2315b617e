/* SPDX-License-Identifier: Apache-2.0 */
#include "session/governor.h"

#include <string.h>

static void step_set(struct governor *governor, size_t step, uint64_t now_ns)
{
	governor->tried = step < governor->step;
	governor->step = step;
	governor->over = 0;
	governor->changed_ns = now_ns;
}

static void narrow(struct governor *governor, uint64_t now_ns)
{
	/* The step up did not do: the next try comes later. */
	if (governor->tried && governor->hold_ns < GOVERNOR_HOLD_MAX_NS)
		governor->hold_ns *= 2;
	step_set(governor, governor->step + 1, now_ns);
}

static void widen(struct governor *governor, uint64_t now_ns)
{
	/* The last step up has held. */
	if (governor->tried)
		governor->hold_ns = GOVERNOR_HOLD_NS;
	step_set(governor, governor->step - 1, now_ns);
}

int governor_judge(struct governor *governor, const struct governor_period *period)
{
	if (!governor->hold_ns)
		governor->hold_ns = GOVERNOR_HOLD_NS;
	if (!governor->changed_ns)
		governor->changed_ns = period->now_ns;
	if (period->cpu_ns * 100 < period->elapsed_ns * GOVERNOR_IDLE_PERCENT) {
		governor->over = 0;
		return 0;
	}
	governor->share = period->cost_ns / (double)period->cpu_ns;
	/* What a hit costs is a mean: that of others may be more. */
	if (governor->share > 1)
		governor->share = 1;
	governor->over = governor->share > governor->budget ? governor->over + 1 : 0;
	if (governor->over >= GOVERNOR_OVER && governor->step + 1 < governor->count) {
		narrow(governor, period->now_ns);
		return 1;
	}
	/* With half of the budget taken the step above, which costs more, would hardly do. */
	if (governor->step && governor->share <= governor->budget / 2 &&
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

void governor_plan(struct governor *governor, double budget, const struct governor_step *first, int heap)
{
	static const uint64_t samples[] = {64 << 10, 1 << 20, 16 << 20};

	*governor = (struct governor){.budget = budget};
	step_add(governor, first->mode, first->sample_bytes);
	if (heap && first->mode == EVENT_MODE_EXACT)
		step_add(governor, EVENT_MODE_CENSUS, first->sample_bytes);
	if (heap && first->mode != EVENT_MODE_GROWTH)
		step_add(governor, EVENT_MODE_GROWTH, 0);
	for (size_t i = 0; !heap && i < sizeof(samples) / sizeof(samples[0]); i++)
		if (samples[i] > first->sample_bytes)
			step_add(governor, first->mode, samples[i]);
	step_add(governor, EVENT_MODE_OFF, first->sample_bytes);
}
