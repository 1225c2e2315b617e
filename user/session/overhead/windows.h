/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the probes of allocations are in place, if they are only in windows of time: the policy,
 * pure. The time from one window to the next is random, so that windows do not keep in step with
 * periodic work; within the budget, the phases of likely periods are shown about equally often.
 *
 * A window costs the target what its traps take of its CPU time (the loss), within the window and
 * while probes are placed and removed (the edges). The loss of the windows that begin in any 10 s
 * stays within the budget for these on average; where it differs from window to window, it may
 * exceed that by half of the budget and of one window. Probes that are in place all the time leave
 * less for windows, for 10 s also when they are gone: if fewer of them would do, they may take half
 * of the budget. A window in which an idle target becomes busy ends before its time; those of one
 * that does nothing are short, since the end of a window takes some tens of milliseconds, too. The
 * first window comes before the budget has allowed it: the one after it comes half a pause later.
 * The tracer itself takes at most WINDOWS_OWN_SHARE of a CPU for placing and removing probes. If
 * edges are expensive, windows are longer and rarer. Where the machine's budget leaves a part of
 * the target's, windows are rarer than once in WINDOWS_PAUSE_MAX, too, by that part.
 */
#pragma once

#include <stdint.h>

#define WINDOWS_PERIOD_NS   10000000000ull /* over which the budget holds */
#define WINDOWS_OWN_SHARE   0.01           /* of a CPU */
#define WINDOWS_LENGTH_MIN  20000000ull
#define WINDOWS_LENGTH_MAX  1000000000ull
#define WINDOWS_FIRST_NS    100000000ull /* the first window begins before that */
#define WINDOWS_UNKNOWN_MAX 50000000ull  /* the length while the cost is not known */
#define WINDOWS_PAUSE_MAX   60000000000ull
#define WINDOWS_EDGES_GUESS 10000000ull /* CPU time, before the first window */
#define WINDOWS_OWN_GUESS   30000000ull
#define WINDOWS_RATE_MIN    0.2    /* CPUs; as if the target took at least this */
#define WINDOWS_IDLE        0.01   /* loss for each ns of a window; below it, a target was idle */
#define WINDOWS_ASLEEP      0.0005 /* CPUs; long windows of a target that takes less show nothing */

#define WINDOWS_RECENT 32u /* as many of the last 10 s count, at most */

/* When a window began, and its loss. */
struct windows_spent {
	uint64_t start_ns;
	double loss_ns;
};

/* The caller sets what is above the empty line; the rest is zero-initialised. */
struct windows {
	double budget;          /* share of the target's CPU time, 0 to 1; 0: fixed */
	double part;            /* of it, which the machine's budget leaves (machine.h); 0: all */
	uint64_t on_ns, off_ns; /* fixed: by hand */
	/* the target is one of that many: they share what the tracer may take; 0: one */
	uint64_t targets;
	int yields;      /* there is a way to trace less between windows */
	uint64_t random; /* state of the random source; any value */
	double rate;     /* CPUs that the target takes; 0: not known yet */

	uint64_t last_ns;  /* when the last window began */
	uint64_t pause_ns; /* from the beginning of a window to that of the next, on average */
	uint64_t length_ns;
	double edges_ns, rate_ns; /* loss of the edges; loss for each ns of a window */
	double over_ns;           /* the time by which windows are longer than they were told to */
	double own_ns;            /* CPU time of the tracer for a window */
	double base;      /* what other probes take of its CPU time, or of WINDOWS_RATE_MIN */
	uint64_t dear_ns; /* how long base has exceeded half of the budget */
	double others_ns; /* what other probes took of the last 10 s */
	double gone_ns;   /* what probes that are gone took of the 10 s until gone_until_ns */
	uint64_t gone_until_ns;
	uint64_t count;                             /* windows so far */
	struct windows_spent spent[WINDOWS_RECENT]; /* the last ones, by their numbers */
};

struct windows_next {
	uint64_t start_ns, length_ns;
};

/* What a window has cost. */
struct windows_cost {
	uint64_t length_ns; /* its actual length */
	uint64_t inside_ns; /* loss, CPU time of the target, within the window */
	uint64_t edges_ns;  /* loss before and after it */
	uint64_t own_ns;    /* CPU time of the tracer */
	/* between the last window and this one: CPU time of the target, and the time */
	uint64_t cpu_ns, elapsed_ns;
	double base; /* as in struct windows */
};

/*
 * The next window: not before now_ns. 0; -ENOSPC: the budget allows no window, even the shortest
 * one once in WINDOWS_PAUSE_MAX, of a target that takes more than WINDOWS_RATE_MIN; or too little
 * of it is left for windows, and less can be traced between them.
 */
int windows_next(struct windows *windows, uint64_t now_ns, struct windows_next *out);
/*
 * The loss at which an open window ends before its time, since the target has become busy: far more
 * than windows lose on average.
 */
double windows_loss_most(const struct windows *windows);
/* Probes between windows have taken loss_ns of the last elapsed_ns. */
void windows_others_took(struct windows *windows, double loss_ns, uint64_t elapsed_ns);
/* There are fewer of them: what they took of the last 10 s is not left for windows. */
void windows_others_gone(struct windows *windows, uint64_t now_ns);
/*
 * What the probes took in the 10 s before now_ns, or as long as windows may be apart if that is
 * more, as a share of what the budget is a share of: the target's CPU time, or WINDOWS_RATE_MIN.
 */
double windows_share(const struct windows *windows, uint64_t now_ns);
/* A window has ended. */
void windows_took(struct windows *windows, const struct windows_cost *cost);
