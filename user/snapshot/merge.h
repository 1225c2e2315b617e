/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of several processes. What a whole says of itself: counters are sums of its processes';
 * losses, which a session counts for all of them, the highest that one tells; times and the
 * traceback limit the highest; mode, moment, name, container, version and layer those that all have
 * (SNAPSHOT_MIXED, else "" or 0), "from the start" if all are; a reading of the heap, and mapped
 * memory, if there is one of any. A peak of the whole nobody knows: those of processes are not of
 * one moment.
 */
#ifndef TRACER_SNAPSHOT_MERGE_H
#define TRACER_SNAPSHOT_MERGE_H

#include "snapshot/builder.h"

/* One part after the other, so that not all of them need be there at once. */
struct merger {
	struct builder builder;
};

int merger_begin(struct merger *merger); /* 0, -ENOMEM */
/*
 * As builder_begin_in(). What there is no room for is left out, and counted as dropped with the
 * process that it is of: nothing fails for that.
 */
int merger_begin_in(struct merger *merger, struct account *account);
/*
 * Adds the processes of a part; wanted: 1 for each of them that is (NULL: all). Their order stays.
 * 0; -ENOMEM; -EFBIG too many processes; -EOVERFLOW as builder_trace(). After an error only
 * merger_abort() is left.
 */
int merger_add(struct merger *merger, const struct snapshot *part, const signed char *wanted);
/* Of one process: as that was. */
struct snapshot *merger_finish(struct merger *merger);
void merger_abort(struct merger *merger);

/* All of it; count at least 1. Errors as above. Caller frees. */
int snapshot_merge(const struct snapshot *const *parts, size_t count, struct snapshot **out);
/*
 * The processes that have one of the PIDs, as if there were no others. 0; -ESRCH where one of them
 * is of none (error_set says which, and which there are); errors as above. Caller frees.
 */
int snapshot_pick(const struct snapshot *snapshot, const uint32_t *pids, size_t count,
		  struct snapshot **out);

#endif
