/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the cost of tracing a process within a budget: the policy, pure. There are steps from the
 * requested mode down to off, each cheaper than the one before. The caller reports for each period
 * how much of the process's CPU time the probes took. Cost beyond the budget adds to a debt, and
 * time within the budget pays it off. When the debt reaches a quarter of the budget of
 * GOVERNOR_WINDOW_NS, the governor goes one step down. After a hold time on the same step, if the
 * cost allows it, it tries the step above again; if that is too expensive, the hold time doubles.
 * Windows of probes hold to the budget by themselves (windows.h), and longer ones follow where they
 * cost little: there is no step up from them, which would begin a new table. A process may begin in
 * windows; only the first of them in which it is busy, before there is much in the table, may show
 * that the requested mode is cheap enough.
 * The closer the debt is to its limit, the sooner the next measurement, so that no try takes more
 * than the budget of the window. Between two measurements the cost is looked at
 * (governor_is_exceeded()): an idle process may become busy at any moment.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"

#define GOVERNOR_PERIOD_NS 250000000ull /* between two measurements */
#define GOVERNOR_FIRST_NS  20000000ull  /* from a change of step to the first measurement */
#define GOVERNOR_SHORT_NS  2000000ull   /* the shortest period */
#define GOVERNOR_WINDOW_NS 10000000000ull
/* the debt limit is 1/4 of the window's budget: removing the probes costs something, too */
#define GOVERNOR_DEBT        4
#define GOVERNOR_DEBT_EARLY  20   /* the same before the first window, which is yet to be paid */
#define GOVERNOR_RATE_MIN    0.05 /* CPUs; a try is judged as if the process took at least this */
#define GOVERNOR_RATE_EARLY  0.2  /* the same for one that begins in windows, and may be idle */
#define GOVERNOR_HOLD_NS     10000000000ull
#define GOVERNOR_HOLD_MAX_NS 640000000000ull
/* of one CPU: below it, the cost is neither measurable nor worth saving */
#define GOVERNOR_IDLE_PERCENT 1
/* of one CPU: from there on, a window shows what the requested mode would cost */
#define GOVERNOR_BUSY_PERCENT 5

/* What is traced between windows, too. */
enum governor_between {
	GOVERNOR_BETWEEN_LARGE, /* large blocks, and pools that are taken into use */
	GOVERNOR_BETWEEN_POOLS, /* these pools */
	GOVERNOR_BETWEEN_NOTHING,
};

struct governor_step {
	enum event_mode mode;
	uint64_t sample_bytes;         /* 0: every block */
	enum governor_between between; /* windows of Python's layer */
};

#define GOVERNOR_STEPS 7

/* What its steps are made of. */
enum governor_kind {
	GOVERNOR_NATIVE,
	GOVERNOR_HEAP, /* it has a Python heap that can be walked */
	/* Page faults: there are no windows, and a smaller sample cannot become a larger one. */
	GOVERNOR_PAGES,
};

/* The caller sets budget, steps and count (governor_plan()); the rest is zero-initialised. */
struct governor {
	double budget; /* share of the process's CPU time, 0 to 1 */
	/* the requested mode first, EVENT_MODE_OFF last */
	struct governor_step steps[GOVERNOR_STEPS];
	size_t count; /* of steps, at least one */
	int narrows;  /* there is no step up */

	size_t step;         /* the current one */
	double share;        /* cost by CPU time in the last period that was not idle */
	double debt_ns;      /* cost beyond the budget */
	double cpu_ns;       /* CPU time of the process since the last change */
	double rate;         /* CPUs that it took on the previous step */
	int looked;          /* it was measured since the last change */
	uint64_t hold_ns;    /* the hold time; 0: GOVERNOR_HOLD_NS */
	uint64_t changed_ns; /* when the step was last changed */
	int tried;           /* the last change was a step up */
	int early;           /* it began in windows, and none of a busy process is judged yet */
};

struct governor_period {
	uint64_t now_ns, elapsed_ns;
	uint64_t cpu_ns; /* of all threads, including the cost of the probes */
	double cost_ns;  /* of the probes */
};

/* Judges a period. 1: governor.step has changed, and the caller makes the change; 0. */
int governor_judge(struct governor *governor, const struct governor_period *period);
/* Is the next step down one in the same mode? */
bool governor_is_followed(const struct governor *governor);
/* Steps down, if there is a step below: the current one cannot be held to the budget. */
void governor_narrow(struct governor *governor, uint64_t now_ns);
/*
 * Begins at the first step in windows, if there is one: 1. 0: at the requested mode. rate: the CPUs
 * that the process takes.
 */
int governor_begin_early(struct governor *governor, double rate);
/* All probes are in place, and it is not known yet what they cost: little debt is allowed. */
void governor_be_careful(struct governor *governor, double rate);
/*
 * A window after governor_begin_early() has ended: the time in it. 1: the requested mode is tried,
 * and the caller makes the change; 0. A process that was idle for GOVERNOR_WINDOW_NS stays in
 * windows.
 */
int governor_first_window(struct governor *governor, const struct governor_period *window);
/*
 * Would the debt be too large with what the probes took since the last measurement, at the least?
 * Then the next one is due at once.
 */
bool governor_is_exceeded(const struct governor *governor, double cost_ns, uint64_t now_ns);
/* The change was complete at now_ns; cost_ns is what the probes took meanwhile. */
void governor_changed(struct governor *governor, uint64_t now_ns, double cost_ns);
/* The time from a measurement or a change at now_ns to the next measurement. */
uint64_t governor_wait(const struct governor *governor, uint64_t now_ns);
/*
 * The current step cannot be taken: removes it, so that the next cheaper one is current. There
 * always is one, since off cannot fail.
 */
void governor_refuse(struct governor *governor);

/*
 * Makes the steps of a process that is traced in the mode of first. With a heap the steps are
 * exact, census, windows with less and less between them (not with a sample), growth, off,
 * beginning with that mode. Natively windows (not with a sample) are followed by samples, for
 * processes in which windows are not possible. Of page faults there are samples only.
 */
void governor_plan(struct governor *governor, double budget, const struct governor_step *first,
		   enum governor_kind kind);
