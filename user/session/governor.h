/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holding what tracing costs a process under a budget: the policy, pure. From what was asked for
 * down to nothing there are steps, each cheaper than the one before. Period by period the governor
 * is told what the probes took of the process's CPU time. What they take beyond the budget is a
 * debt, which time within the budget pays off; when the debt is a quarter of what the budget is
 * over GOVERNOR_WINDOW_NS, it goes down a step. When it has held still for a while and there is
 * room, it tries the step above again; if that does not do, the while doubles. The more of the debt
 * is used up, the sooner it measures again, so that no try takes more than the budget is over the
 * window.
 */
#ifndef TRACER_SESSION_GOVERNOR_H
#define TRACER_SESSION_GOVERNOR_H

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"

#define GOVERNOR_PERIOD_NS 250000000ull /* between two measurements */
#define GOVERNOR_FIRST_NS  50000000ull  /* from a change to the first one */
#define GOVERNOR_SHORT_NS  2000000ull   /* the least */
#define GOVERNOR_WINDOW_NS 10000000000ull
/* a share of the window's budget: to take probes out has a price, too */
#define GOVERNOR_DEBT        4
#define GOVERNOR_RATE_MIN    0.05 /* CPUs; of a process that takes less a try is worth as much */
#define GOVERNOR_HOLD_NS     10000000000ull
#define GOVERNOR_HOLD_MAX_NS 640000000000ull
/* of one CPU: with less there is nothing to measure, and nothing to save */
#define GOVERNOR_IDLE_PERCENT 1

struct governor_step {
	enum event_mode mode;
	uint64_t sample_bytes; /* 0: every block */
};

#define GOVERNOR_STEPS 6

/* What is set by whoever has it; the rest zero-initialised. */
struct governor {
	double budget; /* share of the process's CPU time, 0 to 1 */
	/* what was asked for first, EVENT_MODE_OFF last */
	struct governor_step steps[GOVERNOR_STEPS];
	size_t count; /* of them, at least one */

	size_t step;         /* now */
	double share;        /* of the last period that was no idle one */
	double debt_ns;      /* a cost */
	double cpu_ns;       /* what the process took since the step was changed */
	double rate;         /* CPUs that it took on the step before that */
	int looked;          /* it was measured since the step was changed */
	uint64_t hold_ns;    /* to hold still for; 0: as at first */
	uint64_t changed_ns; /* when the step was changed last */
	int tried;           /* that was a step up */
};

struct governor_period {
	uint64_t now_ns, elapsed_ns;
	uint64_t cpu_ns; /* of all threads, what the probes took in it */
	double cost_ns;  /* what they took */
};

/* The step to be on, governor.step, which is then the one: 1 when it is another; 0. */
int governor_judge(struct governor *governor, const struct governor_period *period);
/* The change has been made, by now_ns, and the probes took so much meanwhile. */
void governor_changed(struct governor *governor, uint64_t now_ns, double cost_ns);
/* So long it is from a measurement, or a change, at now_ns to the next measurement. */
uint64_t governor_wait(const struct governor *governor, uint64_t now_ns);
/*
 * That step cannot be taken: it is taken out, and the next cheaper one is to be. There always is
 * one: off cannot fail.
 */
void governor_refuse(struct governor *governor);

/*
 * The steps of a process that is traced in this mode. Python with a heap that can be read: exact,
 * census, growth, off, from the mode on; without, and a process whose malloc is traced, samples in
 * place of census and growth.
 */
void governor_plan(struct governor *governor, double budget, const struct governor_step *first,
		   int heap);

#endif
