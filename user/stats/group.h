/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of a snapshot and differences of two, exactly as tracemalloc.Snapshot.statistics() and
 * compare_to() compute and sort them. Rules: Lib/tracemalloc.py.
 */
#ifndef TRACER_STATS_GROUP_H
#define TRACER_STATS_GROUP_H

#include "snapshot/app.h"
#include "snapshot/snapshot.h"
#include "stats/filter.h"

/* What tracemalloc groups by, and behind it whose the blocks are (owner.h). */
enum group_by {
	GROUP_FILENAME,
	GROUP_LINENO,
	/* of native blocks above all: programs without debug information have no lines */
	GROUP_FUNCTION,
	GROUP_TRACEBACK,
	GROUP_PROCESS,
	GROUP_COMM, /* by the processes' names */
	GROUP_CONTAINER,
};

static inline int group_is_owner(enum group_by by)
{
	return by >= GROUP_PROCESS;
}

struct statistics_opts {
	enum group_by by;
	int cumulative;
	/*
	 * cumulative: a traceback counts once in an entry, also where a recursion has it more often
	 */
	int once;
	/* NULL: all traces; of both snapshots, when they are compared */
	const struct filters *filters;
	/*
	 * NULL, or not asked for: a traceback is charged to its most recent frame. Else to the most
	 * recent one of the application: the frames before it do not count, and of cumulative
	 * statistics no others either. Without such a frame it is charged as ever, and is outside.
	 * Owners are not concerned, nor is whether a trace passes the filters.
	 */
	const struct app *app;
};

/*
 * Of estimates: the standard errors, rounded up; 0: the figures are exact. Of a difference it is
 * the root of the sum of both squares, as of two independent samples; of two snapshots of one
 * session, which have blocks in common, it is less.
 */
struct statistic_error {
	uint64_t size, count;
};

struct statistic_sums {
	uint64_t size, count;
	struct statistic_error error;
};

#define STATISTIC_NO_FUNCTION UINT32_MAX

/* Statistic, or StatisticDiff: size and count are the new snapshot's, 0 when it lacks the entry. */
struct statistic {
	const struct snapshot
		/* whose indices these are: the new one, or the old when only it has it */
		*snapshot;
	/* of an owner: it, or any of its processes; else NULL */
	const struct snapshot_meta *process;
	/*
	 * GROUP_TRACEBACK: index in the snapshot's tracebacks. GROUP_FILENAME, GROUP_LINENO,
	 * GROUP_FUNCTION: frame says filename (and line, and function; the function also where no
	 * line is known, since it is all that tells frames of one file apart then).
	 */
	uint32_t traceback;
	/* GROUP_TRACEBACK: its first frames that do not count (statistics_opts.app) */
	uint32_t skipped;
	int outside; /* no frame of the application: the most recent one stands here */
	struct snapshot_frame
		/*
		 * line 0 but with GROUP_LINENO; function STATISTIC_NO_FUNCTION where it does not
		 * count
		 */
		frame;
	uint64_t size, count; /* at most INT64_MAX, like all sums here */
	uint64_t old_size, old_count;
	/*
	 * Cumulative statistics: the same with statistics_opts.once, in whose order entries are not
	 * unless that is set.
	 */
	struct statistic_sums once, old_once;
	uint32_t processes; /* of the new snapshot, that hold some of it */
	/*
	 * of its blocks there, those whose sizes are rounded up; of a sample, what they stand for
	 */
	double rounded;
	struct statistic_error error, old_error;
};

/* What of the totals is of some kind. */
enum statistics_kind {
	/* in tracebacks without a frame of the application (statistics_opts.app) */
	PART_OUTSIDE,
	PART_OUTSIDE_CUT, /* in those of these that had more frames than were kept */
	PART_INHERITED,   /* that forked processes have of their parents */
	STATISTICS_PARTS
};

struct statistics {
	struct statistic *entries; /* sorted */
	size_t count;
	uint64_t total_size,
		/* of the traces that passed the filters; a recursive one counts once */
		total_count;
	uint64_t old_total_size, old_total_count;
	struct statistic_error total_error, old_total_error;
	struct statistic_sums parts[STATISTICS_PARTS], old_parts[STATISTICS_PARTS];
	/* figures are estimates, from a sample (snapshot/estimate.h) of either snapshot */
	int sampled;
};

/*
 * statistics(): by size, count, then traceback (or owner), all descending. 0; -EINVAL cumulative
 * with GROUP_TRACEBACK or owners (error_set tells); -EOVERFLOW when a sum exceeds INT64_MAX;
 * -ENOMEM. statistics_free() releases. Cumulative with one frame a traceback is, as in CPython, the
 * same as without; PEP 454 would rather not have it asked for. Owners are all there, those that
 * hold nothing of what passes too.
 */
int statistics_compute(const struct snapshot *snapshot, const struct statistics_opts *opts,
		       struct statistics *out);
/*
 * snapshot.compare_to(old): by |size difference|, size, |count difference|, count, traceback, all
 * descending. Errors as above. Both snapshots are borrowed by the result.
 */
int statistics_compare(const struct snapshot *snapshot, const struct snapshot *old,
		       const struct statistics_opts *opts, struct statistics *out);
void statistics_free(struct statistics *statistics);

/*
 * The frames of an entry that has some, most recent first: *nframe of them, borrowed from it or its
 * snapshot.
 */
const struct snapshot_frame *statistic_frames(const struct statistic *statistic, enum group_by by,
					      uint32_t *nframe);

#endif
