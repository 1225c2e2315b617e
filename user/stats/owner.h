/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To whom blocks belong, where not lines are asked for but processes, commands or containers. A
 * process is its PID and its command: the same PID with another command, after an exec or because
 * it was used again, is another one.
 */
#ifndef TRACER_STATS_OWNER_H
#define TRACER_STATS_OWNER_H

#include "stats/group.h"

/* by: one of the owners. Equal ones hash alike. */
uint64_t owner_hash(const struct snapshot_meta *process, enum group_by by, uint64_t seed);
int owner_compare(const struct snapshot_meta *a, const struct snapshot_meta *b, enum group_by by);

#endif
