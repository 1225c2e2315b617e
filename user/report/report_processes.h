/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes in reports: the table of a snapshot of several, and the owners by which blocks are
 * grouped.
 */
#pragma once

#include <stdbool.h>

#include "report/report.h"
#include "snapshot/estimate.h"

/* The sums of a process's blocks that pass the filters. */
struct process_sums {
	const struct snapshot_meta *process;
	struct estimate estimate, inherited_estimate; /* the figures before rounding */
	uint64_t size, count;
	struct statistic_error error;
	struct statistic_sums inherited; /* the part inherited from its parent */
};

/*
 * Writes the sums of every process to *out, the largest first: snapshot_process_count() elements,
 * the caller frees. 0, -ENOMEM, -EOVERFLOW.
 */
int process_sums(const struct snapshot *snapshot, const struct filters *filters,
		 struct process_sums **out);

#define PROCESS_STATE_MAX 64
/* "running", "exited with status 3", …; returns out. */
const char *process_state(char out[PROCESS_STATE_MAX], const struct snapshot_meta *process);

/* Do all run the same program in the same mode, and still run? Then one may stand for all. */
bool processes_are_alike(const struct snapshot *snapshot);
/* A table of the processes, of at most opts->top rows. Errors as above. */
int processes_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts);
/* An owner's name, for people. */
void owner_print(FILE *out, const struct snapshot_meta *process, enum group_by by);
/* The number of processes that hold an entry, where it is informative: ", processes=3". */
void holders_print(FILE *out, const struct statistic *entry, enum group_by by);

/* "process", "comm", "container". */
const char *owner_word(enum group_by by);
/* The members of an owner. */
void owner_json(struct json *json, const struct snapshot_meta *process, enum group_by by);
