/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filter, DomainFilter and Snapshot.filter_traces() of Lib/tracemalloc.py. A trace passes if at
 * least one inclusive filter matches it (or there is none) and no exclusive filter rejects it. File
 * and domain filters are treated alike.
 */
#pragma once

#include "snapshot/app.h"
#include "snapshot/snapshot.h"
#include "util/pattern.h"

struct filter {
	int inclusive;
	/* for the file name; NULL: a DomainFilter, which matches any frame */
	struct pattern *pattern;
	int has_line, all_frames, has_domain;
	uint64_t line; /* a value above UINT32_MAX matches no frame, as in Python */
	uint32_t domain;
};

/* Zero-initialise. */
struct filters {
	struct filter *items;
	size_t count, capacity;
	int no_inherited; /* additionally excludes blocks that were inherited by fork */
};

/*
 * Adds a Filter. text is PATTERN or PATTERN:LINE; digits after the last colon are a line ("a[:]12"
 * is a file name that ends in ":12"). 0, -ENOMEM.
 */
int filters_add_file(struct filters *filters, int inclusive, const char *text);
int filters_add_domain(struct filters *filters, int inclusive, uint32_t domain); /* 0, -ENOMEM */
void filters_all_frames(struct filters *filters); /* applies to the file filters added so far */
void filters_free(struct filters *filters);
/* Can any trace be rejected? NULL is legal. */
static inline int filters_any(const struct filters *filters)
{
	return filters && (filters->count || filters->no_inherited);
}

/* Filters applied to one snapshot; the result for each file name is cached. */
struct filter_run {
	const struct filters *filters;
	const struct snapshot *snapshot;
	signed char *matches; /* [filter * strings + file name]: 0 unknown, 1 match, -1 no match */
	uint32_t string_count;
	uint32_t refused; /* trace flags that are rejected */
};

/* filters may be NULL or empty: every trace passes. 0, -ENOMEM. */
int filter_run_begin(struct filter_run *run, const struct filters *filters,
		     const struct snapshot *snapshot);
int filter_run_match(struct filter_run *run, const struct snapshot_trace *trace);
static inline int filter_run_passes(struct filter_run *run,
				    const struct snapshot_trace *trace) /* 1, 0, -ENOMEM */
{
	if (trace->flags & run->refused)
		return 0;
	return run->matches ? filter_run_match(run, trace) : 1;
}
void filter_run_end(struct filter_run *run);

/*
 * Copies the traces that pass, and only the names and tracebacks that they use. shown: a view of
 * the snapshot (snapshot/frames/view.h), by which filters and app judge its tracebacks; NULL: the
 * snapshot itself. merge: equal {traceback, bytes, domain, flags} are merged at the position of the
 * first; otherwise the order is kept. app: tracebacks start at their most recent application frame,
 * if they have one; NULL: unchanged. 0, -ENOMEM. Caller frees with snapshot_free().
 */
int snapshot_select(const struct snapshot *snapshot, const struct snapshot *shown,
		    const struct filters *filters, const struct app *app, int merge,
		    struct snapshot **out);
