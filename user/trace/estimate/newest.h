/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimator of the youngest blocks. A block that lives shorter than the time between two
 * windows is seen only if a window was open shortly before the walk. Their number is therefore
 * taken from donors: blocks of earlier windows, observed for as long after the end of their window
 * as the walk comes after the last one. The cohort begins with a walk, which may have been long
 * before; what windows have shown of the time between counts for itself.
 *
 * The weight of a donor: let a line allocate at a steady rate. All of its blocks that are alive at
 * the end of a window of length L and younger than L have been seen. At the time x after the end,
 * those of an age between x and x + L have been seen. With n(x) the number of these that are older
 * than L, the number of blocks younger than A is
 *
 *	n(0) + 1/L * (the integral of n(x) over x from 0 to A - L)
 *
 * A block of age a at the end that lived for D after it adds 1 + (D + a - L) / L to this, at most
 * A / L and at least 1. Windows count by the time that each represents: those of a busy beginning
 * may be near to each other.
 */
#pragma once

#include <stdbool.h>

#include "trace/process/process_tables.h"

struct newest {
	uint32_t cohort;  /* it, and all later ones */
	uint64_t walk_ns; /* the end of the last walk */
	uint64_t from_ns; /* donors stand for what was allocated from here on */
	/* numbers of the windows that donors are from, and how many of these serve; 0: none */
	size_t like_from, like_end;
	uint32_t like_count;
	uint64_t like_ns; /* from the end of the window before to their end, together */
};

/* newest is all zeros. */
void newest_find(const struct trace_windows *windows, struct newest *newest);
/* Are blocks of that window donors? It is one, and has been over for as long as need be. */
bool newest_is_like(const struct trace_windows *windows, const struct newest *newest,
		    size_t number);
/* Until when a block that lived until died_ns stands for others. */
uint64_t newest_until(const struct trace_windows *windows, const struct newest *newest,
		      size_t number, uint64_t died_ns);
/* Of a block: when it was made, 0: not known; when it has died, or walk_ns. */
struct lifetime {
	uint64_t made_ns, died_ns;
};

/* How many blocks it stands for, if all windows were like its own. */
double newest_times(const struct trace_windows *windows, const struct newest *newest, size_t number,
		    const struct lifetime *life);
/* The inclusion (calibrate.h) of a block of such a window, as a donor. */
double newest_inclusion(const struct trace_windows *windows, const struct newest *newest,
			size_t number, const struct lifetime *life);
