/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/selftest/hit_cost.h"

#include <string.h>

#include "attach/selftest/trap_cost.h"
#include "util/descriptor.h"

/*
 * The kernel's run-time counters cost each program 50 ns themselves, so they are on at the start
 * only, for STATS_LEAST periods and until each phase has STATS_RUNS runs, or one of them after
 * STATS_PERIODS. If the tracer keeps the right to, it has them on again after as many.
 */
#define STATS_RUNS    1000
#define STATS_LEAST   8
#define STATS_PERIODS 40

/*
 * Traps are measured in a loop that does nothing else. Where they interrupt work, hits were found
 * to cost 1 to 1.5 times as much, and up to three times on a busy machine. Windows, which are most
 * of what the budget is for, are paid at that price.
 */
static const double in_work[HIT_PHASES] = {[HIT_STEADY] = 1.5, [HIT_WINDOW] = 3};

void hit_cost_init(struct hit_cost *cost)
{
	*cost = (struct hit_cost){.stats = -1};
}

double hit_cost_ns(const struct hit_cost *cost, uint64_t before, uint64_t now, enum hit_phase phase)
{
	double hits = (double)(now >= before ? now - before : now), run_ns = cost->run_ns[phase];

	if (!(run_ns > 0))
		run_ns = cost->run_ns[phase == HIT_STEADY ? HIT_WINDOW : HIT_STEADY];
	return hits * in_work[phase] * (cost->trap_ns + run_ns);
}

static bool is_enough(const struct hit_runs *runs)
{
	return runs->count >= STATS_RUNS;
}

/* What the kernel has counted since the last look is of this phase. */
static void count_take(struct hit_cost *cost, struct attach *attach)
{
	struct hit_runs *counted = &cost->counted[cost->phase], now;

	if (cost->stats < 0 || attach_run_time(attach, &now.ns, &now.count))
		return;
	counted->ns += now.ns - cost->seen.ns;
	counted->count += now.count - cost->seen.count;
	cost->seen = now;
	if (is_enough(counted))
		cost->run_ns[cost->phase] = (double)counted->ns / (double)counted->count;
}

void hit_cost_count(struct hit_cost *cost, struct attach *attach)
{
	if (cost->stats >= 0)
		return;
	cost->stats = attach_stats();
	cost->periods = 0;
	memset(cost->counted, 0, sizeof(cost->counted));
	if (cost->stats >= 0 && attach_run_time(attach, &cost->seen.ns, &cost->seen.count))
		hit_cost_end(cost);
}

/* There may be no probe but in windows, or no window at all. */
static bool is_counted(const struct hit_cost *cost)
{
	unsigned int phases = 0;

	for (int i = 0; i < HIT_PHASES; i++)
		phases += is_enough(&cost->counted[i]) != 0;
	return phases && cost->periods >= (phases == HIT_PHASES ? STATS_LEAST : STATS_PERIODS);
}

void hit_cost_update(struct hit_cost *cost, struct attach *attach)
{
	cost->periods++;
	if (cost->stats < 0) {
		if (cost->periods >= STATS_PERIODS)
			hit_cost_count(cost, attach);
		return;
	}
	count_take(cost, attach);
	if (is_counted(cost)) {
		hit_cost_end(cost);
		cost->periods = 0;
	}
}

void hit_cost_enter(struct hit_cost *cost, struct attach *attach, enum hit_phase phase)
{
	count_take(cost, attach);
	cost->phase = phase;
}

int hit_cost_trap_begin(struct hit_cost *cost, struct attach *attach)
{
	if (attach_hits_are_ns(attach)) {
		cost->trap_ns = 1;
		return 0;
	}
	return cost->trial.child ? 0 : trap_trial_begin(&cost->trial, attach);
}

int hit_cost_trap(struct hit_cost *cost, struct attach *attach)
{
	int err = hit_cost_trap_begin(cost, attach);

	return err || !cost->trial.child ? err
					 : trap_trial_end(&cost->trial, attach, &cost->trap_ns);
}

void hit_cost_end(struct hit_cost *cost)
{
	descriptor_close(cost->stats);
	cost->stats = -1;
}

void hit_cost_free(struct hit_cost *cost)
{
	hit_cost_end(cost);
	if (cost->trial.child)
		trap_trial_end(&cost->trial, NULL, NULL);
}
