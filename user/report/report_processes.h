/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reports say of processes: those of a snapshot of several, and the owners that blocks are
 * grouped by.
 */
#ifndef TRACER_REPORT_REPORT_PROCESSES_H
#define TRACER_REPORT_REPORT_PROCESSES_H

#include "report/report.h"
#include "snapshot/estimate.h"

/* What blocks a process has, of those that pass the filters. */
struct process_sums {
	const struct snapshot_meta *process;
	struct estimate estimate, inherited_estimate; /* the figures before they were rounded */
	uint64_t size, count;
	struct statistic_error error;
	struct statistic_sums inherited; /* of these, what it has of its parent */
};

/*
 * Of every process, the largest first, into *out: snapshot_process_count() of them, the caller
 * frees. 0, -ENOMEM, -EOVERFLOW.
 */
int process_sums(const struct snapshot *snapshot, const struct filters *filters,
		 struct process_sums **out);

#define PROCESS_STATE_MAX 64
/* "running", "exited with status 3", …; returns out. */
const char *process_state(char out[PROCESS_STATE_MAX], const struct snapshot_meta *process);

/* A table of the processes, as many as opts->top says. Errors as above. */
int processes_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts);
/* An owner's name, for people. */
void owner_print(FILE *out, const struct snapshot_meta *process, enum group_by by);
/* How many processes hold an entry, where that says something: ", processes=3". */
void holders_print(FILE *out, const struct statistic *entry, enum group_by by);

/* "process", "comm", "container". */
const char *owner_word(enum group_by by);
/* The members of an owner in JSON, without braces, a comma behind them. */
void owner_json(FILE *out, const struct snapshot_meta *process, enum group_by by);

#endif
