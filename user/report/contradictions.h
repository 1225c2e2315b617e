/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace has seen, held against what the interpreter says of itself: the heap's own counts,
 * and the code that was probed. What does not agree makes figures wrong, and is said before them.
 * Pure.
 */
#ifndef TRACER_REPORT_CONTRADICTIONS_H
#define TRACER_REPORT_CONTRADICTIONS_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/* Lines, each with its process where there are several; nothing where all agrees. */
void contradictions_print(FILE *out, const struct snapshot *snapshot);
/*
 * Of one process: the key "warnings" with an array of sentences and a comma behind it; nothing
 * where all agrees.
 */
void contradictions_json(FILE *out, const struct snapshot_meta *meta);
/* Of one process: the first sentence, cut to the room, and 1; 0 where all agrees. */
int contradictions_first(const struct snapshot_meta *meta, char *out, size_t room);

#endif
