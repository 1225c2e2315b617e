/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a series of a line says about a leak: whether it grows, for how long, and what becomes of
 * the blocks that it allocates. Pure.
 *
 * A line grows if its slope is above 0 by its interval, over the whole time and over the second
 * half alone, and if what is left after each cleaning rises, too: the least of each third is more
 * than that of the third before. A cache that fills and then stays, a program that warms up and
 * what rises and falls do not; nor does what may only replace blocks older than the trace, which
 * belong to no line. It does not say that the growth is a mistake.
 */
#pragma once

#include "report/recording/slope.h"
#include "snapshot/estimate.h"

/* Below it nothing is said about growth. */
#define EVIDENCE_POINTS 8u

/* One moment of a line. */
struct evidence_point {
	double seconds; /* rising */
	double size;    /* bytes alive */
	double error;   /* standard error of the size; 0: it is no estimate */
	/* of the size; NULL: not known, then errors of two points are independent of each other */
	const struct estimate_deviations *deviations;
	double count;    /* blocks alive */
	double acquired; /* blocks allocated until then, alive or not */
	double old_gone; /* blocks of any line, older than the trace, that were freed until then */
	double alive;    /* blocks alive of all lines and older than the trace, up to a constant */
};

enum evidence_verdict { EVIDENCE_STEADY, EVIDENCE_UNCLEAR, EVIDENCE_GROWS };

/* Why growth is unclear. */
enum evidence_doubt {
	DOUBT_NONE,
	DOUBT_FEW,   /* fewer than EVIDENCE_POINTS */
	DOUBT_NOISE, /* the interval of the whole or of the second half includes 0 */
	DOUBT_FALLS, /* what is left after a cleaning does not rise */
	/*
	 * in the second half at least half as many blocks older than the trace were freed as it
	 * gained: it may have replaced them, as a cache does that was full before the trace. But
	 * not if it keeps what it allocates, and the heap as a whole gained four times as many
	 */
	DOUBT_OLD,
	DOUBT_SLOWS, /* the second half grows at less than half the rate of the first */
	DOUBT_LATE,  /* it has grown since evidence.late only, in the second half */
};

struct evidence {
	enum evidence_verdict verdict;
	enum evidence_doubt doubt;
	struct slope slope;         /* bytes a second, over the whole time */
	struct slope first, second; /* over the halves; all 0 where there are too few points */
	size_t late; /* DOUBT_LATE: index of the last point at which it had not grown */
	/*
	 * Of the blocks that were allocated since the first point, the share that there are more
	 * now, from 0 to 1; below 0: unknown, or nothing was allocated.
	 */
	double survivors;
	/*
	 * Blocks that were allocated and freed since the first point; unknown: 0. Whatever there is
	 * more was allocated, whether that was counted or not.
	 */
	double acquired, freed;
	/* Index of the first point after which none of its blocks was freed; the last: none. */
	size_t none_freed;
	/* at least half of the blocks alive at the end are this old, seconds; below 0: unknown */
	double age;
};

/*
 * acquired_known: struct evidence_point.acquired is set. 0; -EINVAL: fewer than 2 points, or more
 * than SLOPE_POINTS_MAX; -ENOMEM.
 */
int evidence_find(const struct evidence_point *points, size_t count, int acquired_known,
		  struct evidence *out);
