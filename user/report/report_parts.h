/* SPDX-License-Identifier: Apache-2.0 */
/* What the reports in their formats share. */
#ifndef TRACER_REPORT_REPORT_PARTS_H
#define TRACER_REPORT_REPORT_PARTS_H

#include "report/report.h"

/* The statistics or differences that are asked for. As statistics_compute(). */
int report_statistics(const struct snapshot *snapshot, const struct report_opts *opts,
		      struct statistics *out);
/* A layer beside the first, as a snapshot that can be reported as that is. */
struct report_layer {
	struct snapshot layer, old; /* borrow from the snapshots */
	struct report_opts opts;    /* opts.old is old, where two are compared */
};
/* 1; 0: it was not followed, or not in both that are compared. *out must stay where it is. */
int report_layer(const struct snapshot *snapshot, const struct report_opts *opts,
		 enum event_layer layer, struct report_layer *out);
/* Are blocks charged to lines of the application (snapshot/app.h)? */
int report_is_of_app(const struct report_opts *opts);
/* Is the report about all that the snapshot holds, and nothing else? */
int report_is_whole(const struct report_opts *opts);
/* How many of its entries are shown. */
size_t report_shown(const struct statistics *statistics, const struct report_opts *opts);
/* The frames of an entry as JSON has them: [{"filename": …, "lineno": …}, …], most recent first. */
void report_frames_json(FILE *out, const struct statistic *entry, enum group_by by);
/*
 * The name of the function that tells a frame without a line from others; NULL: a line does, or
 * nothing.
 */
const char *report_function(const struct snapshot *snapshot, const struct snapshot_frame *frame);
/* A part of the totals, as an entry is. */
struct statistic report_part(const struct statistic_sums *part);
/* What each traceback adds once to an entry of cumulative statistics, as an entry of its own. */
struct statistic report_once(const struct statistic *entry);
/* The totals as an entry of their own. */
struct statistic report_total(const struct statistics *statistics);
/* The standard error of a difference, see struct statistic_error. */
struct statistic_error report_error_diff(const struct statistic *entry);
/* Flushes: 0, -EIO. */
int report_end(FILE *out);

static inline int64_t statistic_size_diff(const struct statistic *entry)
{
	return (int64_t)(entry->size - entry->old_size);
}
static inline int64_t statistic_count_diff(const struct statistic *entry)
{
	return (int64_t)(entry->count - entry->old_count);
}

#endif
