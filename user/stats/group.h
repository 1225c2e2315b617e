/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of a snapshot, exactly as tracemalloc.Snapshot.statistics() computes and sorts them: by size,
 * count, then traceback, all descending. Rules: Lib/tracemalloc.py.
 */
#ifndef TRACER_STATS_GROUP_H
#define TRACER_STATS_GROUP_H

#include "stats/snapshot.h"

enum group_by { GROUP_FILENAME, GROUP_LINENO, GROUP_TRACEBACK };

struct statistic {
	/* GROUP_TRACEBACK: index in the snapshot's tracebacks. Else frame says filename (and line, GROUP_LINENO). */
	uint32_t traceback;
	struct snapshot_frame frame; /* line 0 with GROUP_FILENAME */
	uint64_t size, count;
};

struct statistics {
	struct statistic *entries; /* sorted */
	size_t count;
	uint64_t total_size, total_count;
};

/*
 * 0; -EINVAL cumulative with GROUP_TRACEBACK or a traceback limit of 1 (error_set tells, tracemalloc's own
 * rule); -ENOMEM. statistics_free() releases.
 */
int statistics_compute(const struct snapshot *snapshot, enum group_by by, int cumulative,
		       struct statistics *out);
void statistics_free(struct statistics *statistics);

#endif
