/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups blocks by process, command or container instead of by line. A process is identified by PID
 * and command: the same PID with another command, after an exec or PID reuse, is another process.
 */
#ifndef TRACER_STATS_OWNER_H
#define TRACER_STATS_OWNER_H

#include "stats/group.h"

/* by is one of the owner groupings. Equal owners have equal hashes. */
uint64_t owner_hash(const struct snapshot_meta *process, enum group_by by, uint64_t seed);
int owner_compare(const struct snapshot_meta *a, const struct snapshot_meta *b, enum group_by by);

#endif
