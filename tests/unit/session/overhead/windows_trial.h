/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated targets of the policy of windows. Included after cmocka.h. */
#pragma once

#include "session/overhead/windows.h"

#define MS 1000000ull
#define S  1000000000ull

/* What a target loses: CPU time for each ns of a window, and for placing and removing probes. */
struct target {
	double rate_ns;
	uint64_t edges_ns, own_ns;
	double rate, base;
};

/* Work at the beginning of each period, in which windows lose more. */
struct work {
	uint64_t period_ns, work_ns; /* 0: there is none */
	double rate_ns;
};

#define RUNS 4000

struct run {
	struct work work;
	struct windows windows;
	uint64_t now_ns;
	uint64_t over_ns; /* a window lasts so much longer than it was told to */
	size_t count;
	struct windows_next at[RUNS];
	double loss_ns[RUNS];
};

/* The time of the work in a window. */
static inline uint64_t work_in(const struct work *work, uint64_t start_ns, uint64_t length_ns)
{
	uint64_t sum = 0, end_ns = start_ns + length_ns;

	for (uint64_t at_ns = work->period_ns ? start_ns - start_ns % work->period_ns : end_ns;
	     at_ns < end_ns; at_ns += work->period_ns) {
		uint64_t from_ns = at_ns > start_ns ? at_ns : start_ns;
		uint64_t until_ns = at_ns + work->work_ns < end_ns ? at_ns + work->work_ns : end_ns;

		sum += until_ns > from_ns ? until_ns - from_ns : 0;
	}
	return sum;
}

/* Runs until a time, at most RUNS windows. The result of windows_next() that ended it. */
static inline int run_until(struct run *run, const struct target *target, uint64_t until_ns)
{
	uint64_t before_ns = run->now_ns;

	while (run->now_ns < until_ns && run->count < RUNS) {
		struct windows_next *next = &run->at[run->count];
		int err = windows_next(&run->windows, run->now_ns, next);

		if (err)
			return err;
		assert_true(next->start_ns >= run->now_ns);
		uint64_t length_ns = next->length_ns + run->over_ns;

		double worked_ns = (double)work_in(&run->work, next->start_ns, length_ns);

		run->now_ns = next->start_ns + length_ns + 10 * MS;
		struct windows_cost cost = {
			.length_ns = length_ns,
			.inside_ns = (uint64_t)(target->rate_ns * (double)length_ns +
						run->work.rate_ns * worked_ns),
			.edges_ns = target->edges_ns,
			.own_ns = target->own_ns,
			.cpu_ns = (uint64_t)(target->rate * (double)(run->now_ns - before_ns)),
			.elapsed_ns = run->now_ns - before_ns,
			.base = target->base,
		};

		run->loss_ns[run->count++] = (double)(cost.inside_ns + cost.edges_ns);
		before_ns = run->now_ns;
		windows_took(&run->windows, &cost);
	}
	return 0;
}

static inline uint64_t length_sum(const struct run *run)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < run->count; i++)
		sum += run->at[i].length_ns;
	return sum;
}
