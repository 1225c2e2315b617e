/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of a snapshot and differences of two, computed and sorted exactly as
 * tracemalloc.Snapshot.statistics() and compare_to() do (Lib/tracemalloc.py).
 */
#pragma once

#include <stdbool.h>

#include "snapshot/app.h"
#include "snapshot/group/filter.h"
#include "snapshot/snapshot.h"

/* The groupings of tracemalloc, followed by those by owner (group_entries.c). */
enum group_by {
	GROUP_FILENAME,
	GROUP_LINENO,
	/* mainly for native blocks: programs without debug information have no lines */
	GROUP_FUNCTION,
	GROUP_TRACEBACK,
	GROUP_PROCESS,
	GROUP_COMM, /* by process name */
	GROUP_CONTAINER,
	/* by block, not by line: not for statistics_compute() (report/report_histogram.h) */
	GROUP_SIZE,
	GROUP_LIFETIME,
	/* the same by thread, or by asyncio task (report/report_histogram.c) */
	GROUP_THREAD,
	GROUP_TASK,
	GROUP_LABEL, /* the same by the value of a variable: snapshot_meta.label */
};

static inline bool group_is_owner(enum group_by by)
{
	return by >= GROUP_PROCESS && by <= GROUP_CONTAINER;
}

/* By bytes alive, bytes allocated, temporary blocks; these two list what holds nothing, too. */
enum statistics_sort { SORT_SIZE, SORT_ALLOCATED, SORT_TEMPORARY };

struct statistics_opts {
	enum group_by by;
	enum statistics_sort sort;
	/* temporary blocks: so many other allocations may come before their free; 0 or 1 */
	uint32_t temporary_others;
	int cumulative;
	/* cumulative: a traceback counts once per entry, even if recursion repeats it */
	int once;
	/* NULL: all traces; applies to both snapshots of a comparison */
	const struct filters *filters;
	/*
	 * NULL or off: a traceback is charged to its most recent frame. Otherwise to the most
	 * recent frame of the application; more recent ones do not count, and in cumulative mode
	 * only frames of the application do. A traceback without such a frame is charged as usual
	 * and marked outside. Owners and filters are not affected.
	 */
	const struct app *app;
};

/*
 * Standard errors of estimates, rounded up; 0: exact. For a difference the two samples are treated
 * as independent (root of the sum of squares). Two snapshots of one session share blocks, so their
 * real error is smaller.
 */
struct statistic_error {
	uint64_t size, count;
};

struct statistic_sums {
	uint64_t size, count;
	struct statistic_error error;
};

/* Of blocks whose age is known (snapshot/ages.h); 0: of none. */
struct statistic_ages {
	uint64_t oldest_ns, median_ns; /* half of the blocks are not older */
};

/* Since the traces began. */
struct statistic_extra {
	struct statistic_sums allocated; /* alive or not */
	/* of these, freed before their thread's next allocation (or statistics_opts says else) */
	struct statistic_sums temporary;
};

#define STATISTIC_NO_FUNCTION UINT32_MAX

/* Statistic or StatisticDiff. size and count are the new snapshot's, 0 if it lacks the entry. */
struct statistic {
	/*
	 * The snapshot that the indices refer to: the new one, or the old one if only it has the
	 * entry.
	 */
	const struct snapshot *snapshot;
	/* owner groupings: the owner or one of its processes; otherwise NULL */
	const struct snapshot_meta *process;
	/*
	 * GROUP_TRACEBACK: index in the snapshot's tracebacks. GROUP_FILENAME, GROUP_LINENO,
	 * GROUP_FUNCTION: see frame. The function is also set for frames without a line, because
	 * nothing else distinguishes frames of one file.
	 */
	uint32_t traceback;
	/* GROUP_TRACEBACK: number of most recent frames that do not count (statistics_opts.app) */
	uint32_t skipped;
	int outside; /* no frame of the application: charged to the most recent frame */
	/*
	 * line is 0 except with GROUP_LINENO; function is STATISTIC_NO_FUNCTION where it does not
	 * count.
	 */
	struct snapshot_frame frame;
	uint64_t size, count; /* at most INT64_MAX, like all sums here */
	uint64_t old_size, old_count;
	/*
	 * Cumulative statistics: the figures with statistics_opts.once. Entries are sorted by them
	 * only if that option is set.
	 */
	struct statistic_sums once, old_once;
	/*
	 * In cumulative statistics once for each traceback. 0 unless statistics.allocated_known and
	 * temporary_known are set.
	 */
	struct statistic_extra extra, old_extra;
	int held;           /* blocks of it are alive, in one of the snapshots */
	uint32_t processes; /* of the new snapshot, that hold blocks of this entry */
	/* the new snapshot's blocks with rounded sizes; with sampling, an estimate */
	double rounded;
	struct statistic_error error, old_error;
	struct statistic_ages ages; /* with statistics.ages_known */
};

/* Subsets of the totals. */
enum statistics_kind {
	/* tracebacks without a frame of the application (statistics_opts.app) */
	PART_OUTSIDE,
	PART_OUTSIDE_CUT, /* those of them that were truncated */
	PART_INHERITED,   /* blocks that forked processes inherited */
	STATISTICS_PARTS
};

struct statistics {
	struct statistic *entries; /* sorted */
	size_t count;
	/* Of the traces that passed the filters; recursion counts once. */
	uint64_t total_size, total_count;
	uint64_t old_total_size, old_total_count;
	struct statistic_error total_error, old_total_error;
	struct statistic_sums parts[STATISTICS_PARTS], old_parts[STATISTICS_PARTS];
	/* of the traces that passed the filters */
	struct statistic_extra extra, old_extra;
	struct statistic_ages ages; /* the same */
	int ages_known;             /* not in a comparison */
	int allocated_known, temporary_known;
	/* those are counted that did not live to the next heap walk: "short-lived" */
	int temporary_by_walk;
	/* figures are estimates, because a snapshot is sampled or windowed (snapshot/estimate.h) */
	int sampled;
};

/*
 * statistics(): sorted by size, count, then traceback or owner, all descending (enum
 * statistics_sort: by that first). 0; -EINVAL: cumulative with GROUP_TRACEBACK or owners, an order
 * without such figures, temporary_others without lifetimes (error_set); -EOVERFLOW: a sum exceeds
 * INT64_MAX; -ENOMEM. statistics_free() releases. As in CPython, cumulative statistics with a
 * traceback limit of one frame equal plain ones, although PEP 454 discourages that. Every owner has
 * an entry, even without blocks.
 */
int statistics_compute(const struct snapshot *snapshot, const struct statistics_opts *opts,
		       struct statistics *out);
/*
 * snapshot.compare_to(old): sorted by |size difference|, size, |count difference|, count,
 * traceback, all descending. Errors as above. The result borrows both snapshots.
 */
int statistics_compare(const struct snapshot *snapshot, const struct snapshot *old,
		       const struct statistics_opts *opts, struct statistics *out);
void statistics_free(struct statistics *statistics);

/*
 * The frames of an entry, most recent first, and their number in *nframe; borrowed from the entry
 * or its snapshot.
 */
const struct snapshot_frame *statistic_frames(const struct statistic *statistic, enum group_by by,
					      uint32_t *nframe);
