/* SPDX-License-Identifier: Apache-2.0 */
/* What a hit of a probe costs: the trap and the BPF program. */
#ifndef TRACER_TRIAL_HIT_COST_H
#define TRACER_TRIAL_HIT_COST_H

#include <stdint.h>

#include "attach/attach.h"
#include "trial/trap_cost.h"

struct hit_cost {
	double trap_ns, run_ns; /* before and after the program; the program itself */
	int stats; /* descriptor while the kernel counts run time since the two below; else -1 */
	uint64_t stats_run_ns, stats_runs;
	unsigned int periods; /* since the last count */
	struct trap_trial trial;
};

/* Nothing is counted. */
void hit_cost_init(struct hit_cost *cost);
/* Has a child measure the trap, for hit_cost_trap(). 0, -errno with its reason. */
int hit_cost_trap_begin(struct hit_cost *cost, struct attach *attach);
/*
 * The measured trap, which takes a tenth of a second if it was not begun before. 0, -errno with its
 * reason.
 */
int hit_cost_trap(struct hit_cost *cost, struct attach *attach);
/* Has the kernel count run time from here on, if it does not; without the right to, nothing. */
void hit_cost_count(struct hit_cost *cost, struct attach *attach);
/* Takes over the kernel's counts; to be called once a period. */
void hit_cost_update(struct hit_cost *cost, struct attach *attach);
/* Stops counting. */
void hit_cost_end(struct hit_cost *cost);
/* The same, and waits for the child that measures. */
void hit_cost_free(struct hit_cost *cost);

#endif
