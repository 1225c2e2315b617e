/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filter, DomainFilter and Snapshot.filter_traces() of Lib/tracemalloc.py. A trace passes when any
 * of the inclusive filters matches it (or there is none) and every exclusive one does; filters of
 * files and of domains count alike.
 */
#ifndef TRACER_STATS_FILTER_H
#define TRACER_STATS_FILTER_H

#include "base/pattern.h"
#include "snapshot/app.h"
#include "snapshot/snapshot.h"

struct filter {
	int inclusive;
	struct pattern *pattern; /* of the file name; NULL: any frame matches, a DomainFilter */
	int has_line, all_frames, has_domain;
	uint64_t line; /* beyond UINT32_MAX it matches no frame, as in Python */
	uint32_t domain;
};

/* Zero-initialise. */
struct filters {
	struct filter *items;
	size_t count, room;
	int no_inherited; /* beside them: no block that a forked process has of its parent */
};

/*
 * Adds a Filter. text is PATTERN or PATTERN:LINE: digits behind the last colon are a line ("a[:]12"
 * is a file name that ends in ":12"). 0, -ENOMEM.
 */
int filters_add_file(struct filters *filters, int inclusive, const char *text);
int filters_add_domain(struct filters *filters, int inclusive, uint32_t domain); /* 0, -ENOMEM */
void filters_all_frames(struct filters *filters); /* of every filter of files so far */
void filters_free(struct filters *filters);
/* Is there anything that a trace may not pass? NULL is legal. */
static inline int filters_any(const struct filters *filters)
{
	return filters && (filters->count || filters->no_inherited);
}

/* Filters at work on one snapshot: what a pattern says of a file name is asked once. */
struct filter_run {
	const struct filters *filters;
	const struct snapshot *snapshot;
	signed char *matches; /* filter * strings + file name: 0 unknown, 1 it does, -1 not */
	uint32_t string_count;
	uint32_t refused; /* flags of traces */
};

/* filters may be NULL or empty: all pass. 0, -ENOMEM. */
int filter_run_begin(struct filter_run *run, const struct filters *filters,
		     const struct snapshot *snapshot);
int filter_run_ask(struct filter_run *run, const struct snapshot_trace *trace);
static inline int filter_run_passes(struct filter_run *run,
				    const struct snapshot_trace *trace) /* 1, 0, -ENOMEM */
{
	if (trace->flags & run->refused)
		return 0;
	return run->matches ? filter_run_ask(run, trace) : 1;
}
void filter_run_end(struct filter_run *run);

/*
 * A copy of what passes, with nothing that only others used. merge: equal {traceback, bytes,
 * domain, flags} become one, at the place of the first; else the order stays. app (NULL: none):
 * tracebacks then begin at their most recent frame of the application, if they have one. 0,
 * -ENOMEM. Caller frees with snapshot_free().
 */
int snapshot_select(const struct snapshot *snapshot, const struct filters *filters,
		    const struct app *app, int merge, struct snapshot **out);

#endif
