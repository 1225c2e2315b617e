/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a snapshot, or of what changed since an older one: for people (text) and programs
 * (JSON, CSV; design contract in docs/json.md). The text has the top entries as tracemalloc prints
 * them ("file:line: size=1234 KiB, count=5, average=247 KiB"), the totals and then what was not
 * seen.
 */
#ifndef TRACER_REPORT_REPORT_H
#define TRACER_REPORT_REPORT_H

#include <stdio.h>

#include "stats/group.h"

struct source_roots;

struct report_opts {
	enum group_by by;
	int cumulative;
	/* as in struct statistics_opts; the text is always so, what programs read has both */
	int once;
	size_t top; /* 0: all */
	int color;  /* only for a terminal */
	int source; /* text: the source line under each frame, as linecache finds it */
	const struct source_roots *roots; /* where that file is looked for; NULL: in our root */
	const struct filters *filters;    /* NULL: all traces */
	/* whose frames blocks are charged to; NULL: the most recent ones */
	const struct app *app;
	const struct snapshot *old;  /* NULL: statistics; else the differences to it */
	const char *name, *old_name; /* of their files, for the text; NULL: not shown */
};

/* 0, -EINVAL and -EOVERFLOW as statistics_compute(), -ENOMEM, -EIO. */
int report_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int report_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
/*
 * A line of field names, a line an entry: filename and lineno of its most recent frame (of native
 * blocks and by function also that), then the JSON's fields; with GROUP_TRACEBACK, last, all frames
 * as the JSON has them. Quoted as RFC 4180 says; file names are the bytes that they are on disk. Of
 * owners their names come first (pid,comm,container); of them, and of several processes, the number
 * of processes that hold an entry follows its sums, of cumulative statistics what each traceback
 * adds once.
 */
int report_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
/*
 * The members of report_json() that tell what the snapshot is and what it lacks, without braces
 * around them.
 */
void report_json_meta(const struct snapshot *snapshot, FILE *out);
/* The lines before a text report's entries: whose memory it is, how it was traced. */
void report_title_print(FILE *out, const struct snapshot *snapshot);
/* "1234 B", "12.3 KiB" as Python's tracemalloc._format_size(size, False) does. Returns out. */
char *report_size(char out[32], uint64_t bytes);

#endif
