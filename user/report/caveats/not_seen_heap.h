/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the walks of Python's heap say of the figures: the share of the new blocks that is traced,
 * and the time that no walk covers. For not_seen.c.
 */
#ifndef TRACER_REPORT_CAVEATS_NOT_SEEN_HEAP_H
#define TRACER_REPORT_CAVEATS_NOT_SEEN_HEAP_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/* Tenths of a percent, rounded down: 1000 only if part is at least whole. */
unsigned int not_seen_permille(uint64_t part, uint64_t whole);
/* The coverage, and the blocks of the whole heap: traced, older than the trace, unseen. */
void not_seen_coverage_print(FILE *out, const struct snapshot *snapshot);
/*
 * Windows: of the new blocks that none has shown, the large ones that were not traced. The
 * interpreter's count alone tells of them: so many at least, of unknown size.
 */
uint64_t not_seen_sizeless(const struct snapshot_meta *meta);
/*
 * The time between the last heap walk and the end. Nothing if the last walk is recent, or if there
 * are several processes: each has a remark then.
 */
void not_seen_unread_heap_print(FILE *out, const struct snapshot *snapshot);

#endif
