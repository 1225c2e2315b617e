/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges snapshots of several processes. Meta data of the result: counters are sums. Losses, which
 * a session counts for all processes together, are the maximum, as are times and the traceback
 * limit. Mode, moment, name, container, version and layer are kept if equal in all processes,
 * otherwise SNAPSHOT_MIXED, "" or 0. "From the start" holds if it holds for all. Heap walks and
 * mapped memory are present if any process has them. The peak is unknown, because processes peak at
 * different times.
 */
#ifndef TRACER_SNAPSHOT_MERGE_H
#define TRACER_SNAPSHOT_MERGE_H

#include "snapshot/builder.h"

/* Adds one part after the other, so that not all parts are in memory at once. */
struct merger {
	struct builder builder;
};

int merger_begin(struct merger *merger); /* 0, -ENOMEM */
/*
 * As builder_begin_in(). Without memory, blocks are dropped and counted with their process; no call
 * fails for that reason.
 */
int merger_begin_in(struct merger *merger, struct account *account);
/*
 * Adds processes of a part, in their order. wanted: 1 for each process to add; NULL: all. 0;
 * -ENOMEM; -EFBIG: too many processes; -EOVERFLOW as builder_trace(). After an error only
 * merger_abort() may follow.
 */
int merger_add(struct merger *merger, const struct snapshot *part, const signed char *wanted);
/* A result with one process equals that process's snapshot. */
struct snapshot *merger_finish(struct merger *merger);
void merger_abort(struct merger *merger);

/* Merges all parts; count is at least 1. Errors as above. Caller frees. */
int snapshot_merge(const struct snapshot *const *parts, size_t count, struct snapshot **out);
/*
 * Extracts the processes with one of the PIDs. 0; -ESRCH: a PID has no process (error_set names it
 * and those that exist); errors as above. Caller frees.
 */
int snapshot_pick(const struct snapshot *snapshot, const uint32_t *pids, size_t count,
		  struct snapshot **out);

#endif
