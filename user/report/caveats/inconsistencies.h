/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what a trace has seen against what the interpreter says: the heap's own counters, and the
 * code that was probed. An inconsistency means wrong figures, and is printed before them. Pure.
 */
#pragma once

#include <stdio.h>

#include "snapshot/snapshot.h"

/*
 * Prints one line per inconsistency, with the PID if there are several processes; nothing if there
 * is none. brief: only the first one, and how many more there are; quality.h tells which heaps
 * were not read.
 */
void inconsistencies_print(FILE *out, const struct snapshot *snapshot, int brief);
/*
 * For one process: the key "warnings" with an array of sentences and a trailing comma; nothing if
 * there is no inconsistency.
 */
void inconsistencies_json(FILE *out, const struct snapshot_meta *meta);
/*
 * For one process: copies the first sentence, cut to capacity, and returns 1; 0 if there is no
 * inconsistency.
 */
int inconsistencies_first(const struct snapshot_meta *meta, char *out, size_t capacity);
/* Are there more new small blocks on the heap than were seen, and that came while it was read? */
bool coverage_lacks_blocks(const struct snapshot_coverage *counts);
