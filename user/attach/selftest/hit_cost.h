/* SPDX-License-Identifier: Apache-2.0 */
/* What a hit of a probe costs: the trap and the BPF program. */
#pragma once

#include <stdint.h>

#include "attach/attach.h"
#include "attach/selftest/trap_cost.h"

/*
 * Programs run for different times on probes that are in place all the time and on those of
 * windows: a pool that is taken into use needs a stack, a block that is freed does not.
 */
enum hit_phase {
	HIT_STEADY, /* no window is open */
	HIT_WINDOW,
	HIT_PHASES,
};

struct hit_runs {
	uint64_t ns, count; /* of programs, while the kernel counts */
};

struct hit_cost {
	double trap_ns;            /* before and after the program */
	double run_ns[HIT_PHASES]; /* the program itself; 0: not known yet */
	int stats;                 /* descriptor while the kernel counts; else -1 */
	enum hit_phase phase;
	struct hit_runs seen;                /* the kernel's counts, when last looked at */
	struct hit_runs counted[HIT_PHASES]; /* since it began to count */
	unsigned int periods;                /* since it began, or ended, to count */
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
/*
 * What the hits from one count to the next cost a program that does something else, too, in that
 * phase (or another one, if only that is known). A count begins at zero after attach_target().
 */
double hit_cost_ns(const struct hit_cost *cost, uint64_t before, uint64_t now,
		   enum hit_phase phase);
/* Has the kernel count run time from here on, if it does not; without the right to, nothing. */
void hit_cost_count(struct hit_cost *cost, struct attach *attach);
/* Takes over the kernel's counts; to be called once a period. */
void hit_cost_update(struct hit_cost *cost, struct attach *attach);
/* Another phase begins. */
void hit_cost_enter(struct hit_cost *cost, struct attach *attach, enum hit_phase phase);
/* Stops counting. */
void hit_cost_end(struct hit_cost *cost);
/* The same, and waits for the child that measures. */
void hit_cost_free(struct hit_cost *cost);
