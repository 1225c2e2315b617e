/* SPDX-License-Identifier: Apache-2.0 */
#include "trial/hit_cost.h"

#include <unistd.h>

#include "trial/trap_cost.h"

/*
 * The kernel's run-time counters cost each program 50 ns themselves: they count STATS_RUNS hits,
 * and then pause for STATS_PERIODS periods.
 */
#define STATS_RUNS    1000
#define STATS_PERIODS 40

void hit_cost_init(struct hit_cost *cost)
{
	*cost = (struct hit_cost){.stats = -1};
}

void hit_cost_count(struct hit_cost *cost, struct attach *attach)
{
	if (cost->stats >= 0)
		return;
	cost->stats = attach_stats();
	if (cost->stats >= 0 && attach_run_time(attach, &cost->stats_run_ns, &cost->stats_runs))
		hit_cost_end(cost);
}

void hit_cost_update(struct hit_cost *cost, struct attach *attach)
{
	uint64_t run_ns, runs;

	if (cost->stats < 0) {
		if (++cost->periods >= STATS_PERIODS)
			hit_cost_count(cost, attach);
		return;
	}
	if (attach_run_time(attach, &run_ns, &runs) || runs - cost->stats_runs < STATS_RUNS)
		return;
	cost->run_ns = (double)(run_ns - cost->stats_run_ns) / (double)(runs - cost->stats_runs);
	cost->periods = 0;
	hit_cost_end(cost);
}

int hit_cost_trap_begin(struct hit_cost *cost, struct attach *attach)
{
	return cost->trial.child ? 0 : trap_trial_begin(&cost->trial, attach);
}

int hit_cost_trap(struct hit_cost *cost, struct attach *attach)
{
	return hit_cost_trap_begin(cost, attach)
		       ?: trap_trial_end(&cost->trial, attach, &cost->trap_ns);
}

void hit_cost_end(struct hit_cost *cost)
{
	if (cost->stats >= 0)
		close(cost->stats);
	cost->stats = -1;
}

void hit_cost_free(struct hit_cost *cost)
{
	hit_cost_end(cost);
	if (cost->trial.child)
		trap_trial_end(&cost->trial, NULL, NULL);
}
