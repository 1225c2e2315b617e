/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges snapshots of several processes. Meta data of the result: counters are sums. Losses, which
 * a session counts for all processes together, are the maximum, as are times and the traceback
 * limit. Mode, moment, name, container, version and layer are kept if equal in all processes,
 * otherwise SNAPSHOT_MIXED, "" or 0. "From the start" holds if it holds for all. Heap walks and
 * mapped memory are present if any process has them. The peak is unknown, because processes peak at
 * different times.
 */
#pragma once

#include "snapshot/builder.h"

/*
 * Adds one part after the other to a builder, so that not all of them are in memory at once: its
 * processes, in their order. wanted: 1 for each process to add; NULL: all. If the builder has an
 * account, blocks that there is no memory for are dropped and counted with their process. 0;
 * -ENOMEM; -EFBIG: too many processes; -EOVERFLOW as builder_trace(). After an error only
 * builder_abort() may follow.
 */
int merge_add(struct builder *builder, const struct snapshot *part, const signed char *wanted);
/* As builder_finish(). A result with one process equals that process's snapshot. */
struct snapshot *merge_finish(struct builder *builder);

/* Merges all parts; count is at least 1. Errors as above. Caller frees. */
int snapshot_merge(const struct snapshot *const *parts, size_t count, struct snapshot **out);
/*
 * Extracts the processes with one of the PIDs. 0; -ESRCH: a PID has no process (error_set names it
 * and those that exist); errors as above. Caller frees.
 */
int snapshot_pick(const struct snapshot *snapshot, const uint32_t *pids, size_t count,
		  struct snapshot **out);
