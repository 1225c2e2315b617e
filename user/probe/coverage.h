/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coverage, measured and not assumed: of the blocks that are on pymalloc's heap now and were not when the trace
 * began, how many does the table know? Blocks are told apart by address: a block of before the trace that was
 * freed and whose address was given out again counts as old, which leaves the share unbiased and the number low.
 */
#ifndef TRACER_PROBE_COVERAGE_H
#define TRACER_PROBE_COVERAGE_H

#include "abi/events.h"
#include "python/runtime.h"

struct coverage;

/* from_start: nothing is on the heap yet. Else reads the heap as it is now. 0, -ENOTSUP no heap to read, -errno. */
int coverage_new(struct coverage **out, const struct python_runtime *runtime, int from_start);
void coverage_free(struct coverage *coverage);

/* Does the table know the block at address? Called for each block; must be quick. */
typedef int (*coverage_knows_fn)(void *context, uint64_t address);
/* Brings the table up to date. */
typedef void (*coverage_refresh_fn)(void *context);

/*
 * Fills the record but for its header's tgid, tid and time and for large_seen. Blocks not in the table are looked up again after a
 * refresh and must still be on the heap, and unknown, in further readings: what came and went meanwhile does not count.
 * elapsed_ns: what it took. 0, -errno.
 */
int coverage_measure(struct coverage *coverage, coverage_knows_fn knows, coverage_refresh_fn refresh,
		     void *context, struct event_coverage *record, uint64_t *elapsed_ns);

#endif
