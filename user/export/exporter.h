/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formats that a snapshot can be written in, one file each: it defines its exporter and lists
 * it in exporter.c.
 */
#ifndef TRACER_EXPORT_EXPORTER_H
#define TRACER_EXPORT_EXPORTER_H

#include "base/outfile.h"
#include "stats/filter.h"

struct export_opts {
	uint32_t
		/* PY_VERSION_HEX of the Python that will load it; 0: as the snapshot's own */
		python_version;
	int counts; /* weights are numbers of blocks, not bytes */
	const struct app
		/* tracebacks begin at its most recent frame; NULL: at the most recent of all */
		*app;
};

struct exporter {
	const char *name; /* --format */
	const char *help;
	int merged; /* wants equal {traceback, bytes, domain} as one trace with a count */
	/* 0, -errno; error_set may say why. The caller commits or discards the file. */
	int (*write)(const struct snapshot *snapshot, const struct export_opts *opts,
		     struct outfile *file);
};

extern const struct exporter export_folded, export_perf, export_pprof, export_tracemalloc;

/* The index-th of all, NULL behind the last. */
const struct exporter *exporter_get(size_t index);
const struct exporter *exporter_find(const char *name); /* NULL: no such format */
/* Writes what passes the filters (NULL: everything). 0, -errno. */
int exporter_write(const struct exporter *exporter, const struct snapshot *snapshot,
		   const struct filters *filters, const struct export_opts *opts,
		   struct outfile *file);

#endif
