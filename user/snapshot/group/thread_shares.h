/* SPDX-License-Identifier: Apache-2.0 */
/* What is alive, by the thread, and the asyncio task, that has allocated it. */
#pragma once

#include "snapshot/group/filter.h"

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
