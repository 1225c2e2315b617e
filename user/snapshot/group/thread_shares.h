/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is alive, by the thread that has allocated it, by its asyncio task, or by the value of a
 * variable that it had then: GROUP_THREAD, GROUP_TASK, GROUP_LABEL.
 */
#pragma once

#include "snapshot/estimate.h"
#include "snapshot/group/filter.h"
#include "snapshot/group/group.h"
#include "util/id_map.h"

struct thread_share {
	const struct snapshot_trace *trace; /* its traceback and process; borrowed */
	uint32_t tid;
	const char *name; /* "": not known, or among snapshot->threads; borrowed */
	uint32_t task;    /* its name in snapshot->strings; 0: none, or not known */
	uint64_t size, count;
};

/*
 * Calls visit() for each share of the first layer that passes run (NULL: for all); several of one
 * thread and traceback add up. 0; -EINVAL: the snapshot does not know threads (error_set); errors
 * of filter_run_passes(); what visit() returns.
 */
int thread_shares_visit(const struct snapshot *snapshot, struct filter_run *run,
			int (*visit)(void *context, const struct thread_share *share),
			void *context);

/* Of one thread, or of one task or value of a process. */
struct thread_row {
	uint32_t tid, pid; /* tid: 0 by task */
	/* of the thread, "": not known; of the task, or the value, "": there was none. Borrowed */
	const char *name;
	struct statistic_sums sums;            /* errors: of estimates from windows; else 0 */
	struct estimate_deviations deviations; /* of the size, as these */
};

struct thread_rows {
	const struct snapshot *snapshot; /* borrowed */
	int by_task;                     /* or by a value */
	int are_estimates;               /* from windows: rows have errors */
	struct thread_row *items;        /* the one that holds most first */
	struct estimate *estimates;      /* are_estimates: by row, in the order of the index */
	size_t count, capacity, estimate_capacity;
	struct id_map index; /* by the thread's number, or by process and task */
	struct statistic_sums total;
	struct estimate total_estimate;
};

struct thread_question {
	enum group_by by;
	const char *label;             /* GROUP_LABEL: as in snapshot_meta.label */
	const struct filters *filters; /* NULL: none */
};

/*
 * The sums of the first layer's blocks that pass. 0; -EINVAL: the snapshot does not tell what is
 * asked for (error_set); errors as above. thread_rows_free() releases.
 */
int thread_shares_rows(const struct snapshot *snapshot, const struct thread_question *question,
		       struct thread_rows *out);
void thread_rows_free(struct thread_rows *rows);

/*
 * A row's blocks as a snapshot, which borrows everything but its traces from rows->snapshot; it has
 * no other layers. 0; errors of thread_shares_visit(). The caller frees out->traces.
 */
int thread_row_snapshot(const struct thread_rows *rows, const struct thread_row *row,
			struct snapshot *out);
