/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a snapshot, or of the differences from an older one: for people (text) and for
 * programs (JSON, CSV; docs/json.md is the contract). The text has the top entries in tracemalloc's
 * format ("file:line: size=1234 KiB, count=5, average=247 KiB"), the totals, and what was not seen.
 */
#pragma once

#include <stdio.h>

#include "snapshot/group/group.h"

#define REPORT_BRIEF_LINES 24 /* of 80 columns */

struct json;
struct source_roots;

/* What a caller adds to a report of the first layer. json: NULL: lines, on standard output. */
struct report_notes {
	void (*head)(void *context, struct json *json); /* before the entries */
	void (*entry)(void *context, struct json *json, const struct statistic *entry);
	void *context;
};

struct report_opts {
	enum group_by by;
	const char *label; /* GROUP_LABEL: as in snapshot_meta.label; borrowed */
	int cumulative;
	/* as in struct statistics_opts; the text always sets it, JSON and CSV have both figures */
	int once;
	enum statistics_sort sort;
	uint32_t temporary_others; /* as in struct statistics_opts; of the first layer */
	size_t top;                /* 0: all */
	int color;                 /* only for a terminal */
	int tables; /* text: for a terminal: entries are the rows of a table (util/terminal.h) */
	/*
	 * text: not 0: a page of so many columns, and of REPORT_BRIEF_LINES at most: how good the
	 * figures are is one line, and tables share the page unless top_asked
	 */
	size_t brief;
	int top_asked;
	const char *next; /* the command that follows, told on a terminal; NULL: none */
	int source;       /* text: print the source line under each frame, as linecache finds it */
	const struct source_roots *roots; /* where source files are searched; NULL: in our root */
	const struct filters *filters;    /* NULL: all traces */
	/* the application, to whose frames blocks are charged; NULL: the most recent frames */
	const struct app *app;
	const struct snapshot *old;       /* NULL: statistics; else the differences from it */
	const char *name, *old_name;      /* the files' names, for the text; NULL: not shown */
	const struct report_notes *notes; /* NULL: none */
};

/* How many of so many rows are shown. */
static inline size_t report_rows(const struct report_opts *opts, size_t count)
{
	return opts->top && opts->top < count ? opts->top : count;
}

/* 0, -EINVAL and -EOVERFLOW as statistics_compute(), -ENOMEM, -EIO. */
int report_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int report_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
/*
 * A line of field names, then one line per entry: filename and lineno of its most recent frame
 * (also the function, for native blocks and by function), then the fields of the JSON.
 * GROUP_TRACEBACK adds all frames as the last field, in the JSON's form. Fields are quoted by RFC
 * 4180; file names are the bytes on disk. Grouped by owner, a line begins with the owner's names
 * (pid,comm,container). Grouped by owner, or with several processes, the number of processes that
 * hold an entry follows its sums. Cumulative statistics add the figures that count each traceback
 * once.
 */
int report_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
/*
 * The members of report_json() that describe the snapshot and what it lacks, without enclosing
 * braces.
 */
void report_json_meta(const struct snapshot *snapshot, FILE *out);
/* The lines before a text report's entries: which processes, and how they were traced. */
void report_title_print(FILE *out, const struct snapshot *snapshot);
