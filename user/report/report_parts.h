/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by the report formats. */
#pragma once

#include <stdbool.h>

#include "report/report.h"

/* The statistics or differences that opts asks for. Errors as statistics_compute(). */
int report_statistics(const struct snapshot *snapshot, const struct report_opts *opts,
		      struct statistics *out);
/* A layer beside the first, or SNAPSHOT_OLDER, as a snapshot of its own. */
struct report_layer {
	struct snapshot layer, old; /* borrow from the snapshots */
	struct report_opts opts;    /* opts.old is &old in a comparison */
};
/*
 * 1; 0: the layer was not traced, or not in both of the compared snapshots. *out must not be moved:
 * its members point into it.
 */
int report_layer(const struct snapshot *snapshot, const struct report_opts *opts, uint32_t layer,
		 struct report_layer *out);
/* Are blocks charged to lines of the application (snapshot/app.h)? */
bool report_is_of_app(const struct report_opts *opts);
/* Does the report cover all that was traced, without filters or a comparison? */
bool report_is_whole(const struct snapshot *snapshot, const struct report_opts *opts);
/* The number of entries to show. */
size_t report_shown(const struct statistics *statistics, const struct report_opts *opts);
/* The frames of an entry: [{"filename": …, "lineno": …}, …], most recent first. */
void report_frames_json(struct json *json, const char *key, const struct statistic *entry,
			enum group_by by);
/* The function's name, for a frame that has no line; NULL: it has a line, or no name is known. */
const char *report_function(const struct snapshot *snapshot, const struct snapshot_frame *frame);
/* A part of the totals, in the form of an entry. */
struct statistic report_part(const struct statistic_sums *part);
/* The figures of a cumulative entry that count each traceback once, as an entry of their own. */
struct statistic report_once(const struct statistic *entry);
/* The totals, in the form of an entry. */
struct statistic report_total(const struct statistics *statistics);
/* What files call temporary blocks, or those of which a walk told that they were gone. Static. */
const char *report_temporary_key(const struct statistics *statistics);
/* The standard error of a difference, see struct statistic_error. */
struct statistic_error report_error_diff(const struct statistic *entry);
/* report_title_print(), and in a comparison the title of the older snapshot. */
void report_titles_print(FILE *out, const struct snapshot *snapshot,
			 const struct report_opts *opts);
/* A text as a field of CSV, quoted if need be. */
void report_csv_field(FILE *out, const char *text);
void report_csv_quoted(FILE *out, const char *text); /* in any case */
/* Flushes: 0, -EIO. */
int report_end(FILE *out);

static inline int64_t statistic_size_diff(const struct statistic *entry)
{
	return (int64_t)(entry->size - entry->old_size);
}
static inline int64_t report_diff(uint64_t new, uint64_t old)
{
	return (int64_t)(new - old);
}
static inline int64_t statistic_count_diff(const struct statistic *entry)
{
	return (int64_t)(entry->count - entry->old_count);
}
