/* SPDX-License-Identifier: Apache-2.0 */
/* Events that were lost, and what was dropped, malformed or unreadable. For not_seen.c. */
#ifndef TRACER_REMARKS_NOT_SEEN_LOSSES_H
#define TRACER_REMARKS_NOT_SEEN_LOSSES_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/* The line of lost events: their kinds, and which figures they make wrong. */
void not_seen_lost_print(FILE *out, const struct snapshot *snapshot);
/* Frames, stacks and blocks that could not be read, attributed or kept. */
void not_seen_unread_print(FILE *out, const struct snapshot_meta *meta);

#endif
