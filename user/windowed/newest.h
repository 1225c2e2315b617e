/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that live shorter than the time between two windows are seen only if a window was open
 * shortly before the walk. So of the newest cohort, the blocks of the last seconds before the walk
 * are split by likeness: by what earlier windows have shown of as long a time after their end. The
 * cohort begins with a walk, which may have been long before; what windows have shown of the time
 * between stands for itself.
 *
 * Of blocks of one line that are allocated at a steady rate, those alive at the end of a window of
 * length L and younger than L have all been seen, and so have those from x to L + x old at the time
 * x after it. So the first ones, and the sum over x, divided by L, of those older than L by then,
 * stand for all that are younger than an age A. A block of age a at the end, which lived for D
 * after it, counts 1 + (D + a - L) / L times, at most A / L and at least once. Windows count by the
 * time for which each stands: those of a busy beginning may be near to each other.
 */
#ifndef TRACER_WINDOWED_NEWEST_H
#define TRACER_WINDOWED_NEWEST_H

#include "process_tables/process_tables.h"

struct newest {
	uint32_t cohort;  /* it, and all later ones */
	uint64_t walk_ns; /* the end of the last walk */
	uint64_t from_ns; /* likenesses stand for what was allocated from here on */
	/* numbers of the windows that likenesses are from, and how many of these serve; 0: none */
	size_t like_from, like_end;
	uint32_t like_count;
	uint64_t like_ns; /* from the end of the window before to their end, together */
};

/* newest is all zeros. */
void newest_find(const struct trace_windows *windows, struct newest *newest);
/* Are blocks of that window likenesses? It is one, and has been over for as long as need be. */
int newest_is_like(const struct trace_windows *windows, const struct newest *newest, size_t number);
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
/* The inclusion (calibrate.h) of a block of such a window, as a likeness. */
double newest_inclusion(const struct trace_windows *windows, const struct newest *newest,
			size_t number, const struct lifetime *life);

#endif
