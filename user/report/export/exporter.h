/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formats that a snapshot can be written in. Each is a file that defines its exporter;
 * exporter.c lists them.
 */
#pragma once

#include <stdbool.h>

#include "snapshot/group/filter.h"
#include "util/outfile.h"

struct source;

struct export_opts {
	uint32_t
		/*
		 * PY_VERSION_HEX of the Python that will load the file; 0: the snapshot's own
		 * version
		 */
		python_version;
	int counts;                 /* weights are numbers of blocks, not bytes */
	const char *name;           /* the snapshot's file */
	const struct snapshot *old; /* to compare with; NULL: none. Only exporters that compare. */
	const char *old_name;
	struct source *source; /* where source lines are read; NULL: none are written */
	const struct app
		/* tracebacks begin at its most recent frame; NULL: at the most recent frame */
		*app;
	/*
	 * a view of the snapshot (snapshot/frames/view.h), which the filters and app judge; NULL:
	 * the snapshot
	 */
	const struct snapshot *shown;
	bool is_part; /* filters have left blocks out; exporter_write() sets it */
};

struct exporter {
	const char *name; /* --format */
	const char *help;
	int whole;    /* holds whole tracebacks and names, not a view of them */
	int compares; /* takes export_opts.old */
	int merged;   /* equal {traceback, bytes, domain} are passed as one trace with a count */
	/* 0, -errno; error_set may say why. The caller commits or discards the file. */
	int (*write)(const struct snapshot *snapshot, const struct export_opts *opts,
		     struct outfile *file);
};

extern const struct exporter export_folded, export_html, export_otlp, export_perf, export_pprof,
	export_speedscope, export_tracemalloc;

/* The Content-Security-Policy that a page of export_html has in it, for servers of the page. */
extern const char export_html_policy[];

/* The exporter at an index; NULL after the last. */
const struct exporter *exporter_get(size_t index);
/* Writes the blocks that pass the filters (NULL: all). 0, -errno. */
int exporter_write(const struct exporter *exporter, const struct snapshot *snapshot,
		   const struct filters *filters, const struct export_opts *opts,
		   struct outfile *file);
