/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording as series: the figures of the whole, and of each line, at each moment.
 */
#pragma once

#include "report/recording/markers.h"
#include "report/recording/recording.h"
#include "snapshot/estimate.h"
#include "snapshot/frames/view.h"
#include "snapshot/group/group.h"

struct series_opts {
	/*
	 * by GROUP_FILENAME, GROUP_LINENO or GROUP_FUNCTION; or GROUP_THREAD, GROUP_TASK or
	 * GROUP_LABEL: then "lines" are threads, tasks or values
	 */
	struct statistics_opts statistics;
	const char *label;              /* GROUP_LABEL: as in snapshot_meta.label */
	const struct view_choice *view; /* NULL: tracebacks as they are */
	int layer;                      /* enum event_layer; -1: the first one */
	/* at most so many moments, evenly spread, among them the first and the last; at least 2 */
	size_t moments;
};

/* Figures at one moment; all 0 where there is nothing. */
struct series_figures {
	uint64_t size, count;
	/* since the trace began, alive or not; 0 unless series.allocated_known */
	uint64_t allocated_size, allocated_count;
	uint64_t size_error; /* standard error of size; 0: no estimate */
	/* of the size; NULL: no estimate, or not known. Owned */
	struct estimate_deviations *deviations;
};

struct series_line {
	/*
	 * Owned; function is "" where it does not count. Of a thread, a task or a value the name is
	 * filename: "" of what has none
	 */
	char *filename, *function;
	uint32_t line; /* 0: unknown, or grouped by file or function */
	int native;
	struct series_figures *at; /* owned, one for each moment */
};

struct series_moment {
	struct recording_moment time;
	struct series_figures total;
	uint64_t rss_bytes; /* 0: unknown */
	/* as in struct snapshot_meta */
	uint64_t cpu_ns, wait_ns, probes_ns;
	uint32_t emptied;
	/*
	 * Blocks older than the trace that are gone: its differences count. Small ones by heap
	 * walks, others by frees of blocks that are not in the table.
	 */
	int64_t old_gone;
	/*
	 * Blocks of the whole heap, older ones included: its differences count. As heap walks find
	 * them, or those that are traced less old_gone.
	 */
	int64_t alive;
};

struct series {
	struct series_moment *moments;
	size_t moment_count, moment_capacity;
	size_t snapshots; /* in the recording: at least moment_count */
	struct series_line *lines;
	size_t line_count;
	int allocated_known; /* at all moments */
	int sampled;         /* figures are estimates, at one moment at least */
	struct snapshot *last;
	struct markers markers; /* of the moments, in the order of time */
	char damage[160];       /* recording_damage() */
};

/*
 * Reads a recording. 0; -EBADMSG: none, or no snapshot of it can be read (error_set); -ENOENT: a
 * snapshot lacks the layer (error_set); errors of recording_next(), recording_snapshot() and
 * statistics_compute(). series_free() releases.
 */
int series_read(const char *path, const struct series_opts *opts, struct series *out);
/* The same of a file that was opened twice: both are at its beginning. */
int series_read_files(struct infile *file, struct infile *again, const struct series_opts *opts,
		      struct series *out);
void series_free(struct series *series); /* also valid when zero-initialised */

/* The seconds from the first moment to that one. */
double series_seconds(const struct series *series, size_t moment);
/*
 * The first moment after the tables were emptied last: figures from before do not continue in those
 * after. 0: they were not.
 */
size_t series_begin(const struct series *series);
/* The CPU time of the processes since that moment that the probes took, its share; -1: unknown. */
double series_probes_share(const struct series *series, size_t from);
/*
 * The share of the time since that moment in which the probes ran, or waited to: without them the
 * processes do their work in as much less time, at most. Several processes: as if each waits for
 * the others. 0: unknown.
 */
double series_lost_share(const struct series *series, size_t from);
