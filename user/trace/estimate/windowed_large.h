/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's large blocks, if small ones are traced in windows. Where malloc's heap was walked, its
 * chunks of more than EVENT_SMALL_BYTES are strata by their size like the blocks of pools. They
 * contain those of other libraries. How many of them are Python's is known from the interpreter's
 * count of its large blocks, at the start of the trace and now, and taken to be the same share of
 * all sizes. If large blocks are traced all the time, only older ones are estimated.
 *
 * What else there is has strata of its own (enum large). If the heap was not walked, the
 * interpreter's count gives a lower bound of the new blocks of its object allocator: it is exact as
 * long as no older one is freed. The count itself is the upper bound. Of PyMem_Raw*'s blocks only
 * an upper bound is known: what else malloc has given out. So it is with blocks of 128 KiB and more
 * of either.
 */
#pragma once

#include "snapshot/builder.h"
#include "trace/estimate/windowed_seen.h"
#include "trace/process/process_tables.h"

/*
 * Python's part of malloc's chunks: of those older than the trace, and of the others. The first
 * walk of malloc's heap comes after the trace has begun, so some that it takes for older ones are
 * new. The interpreter counts these, too: they are added to the others, whose part may then be more
 * than 1.
 */
struct large_shares {
	double old, fresh;
};

struct large_shares large_shares_of(const struct process_state *process);
/* The chunks that were counted, and blocks that stand for themselves; 0: there was no walk. */
uint64_t large_chunks(const struct process_state *process);
/* So many blocks times a share, rounded. */
uint64_t large_share(uint64_t blocks, double share);
/*
 * Of a process whose large blocks are traced all the time: what is alive of them shows who
 * allocates such blocks, for those older than the trace. Adds to job->seen, which has room.
 */
void large_collect(struct job *job);
/* At most as many are added. */
size_t large_collect_most(const struct process_state *process);
/*
 * Blocks that are known one by one from before the change show which lines allocate such blocks.
 * What no window has shown of new chunks of their sizes is attributed to them, in proportion, and
 * all of it is their error: the windows may have missed as many. It is at least what windows miss
 * by chance. 0; -ENOMEM, and nothing has changed.
 */
int large_split(const struct job *job, const struct calibrate_input *input,
		struct calibrate_result *result);
/*
 * How many of Python's older blocks are among the chunks that have gone since the first walk of
 * malloc's heap is not known: large_shares_of() takes their part, but it may be none or all,
 * because a walk within a burst takes the burst's blocks for older ones. No walk tells the number
 * of the new ones then, so rows have this error in common, and their total has it, too. With none
 * gone the total is as exact as the interpreter's count.
 */
void large_doubt(const struct job *job, const struct calibrate_input *input,
		 struct calibrate_result *result);
/* The first LARGE_STRATA of job->strata. */
void large_strata_fill(struct job *job);

/*
 * rows: what result.rows is of; traceback: as in tracebacks. ages_error_ns: 0, or the ages of rows
 * are that far from those of their blocks at most. Returns 0 or an error.
 */
typedef int (*trace_windowed_fn)(void *context, const struct snapshot_trace *rows,
				 const struct calibrate_result *result, uint64_t ages_error_ns);
/* What rows are split by, besides stacks and sizes. */
struct windowed_split {
	uint64_t moment_ns; /* by the age of blocks then; 0: they are not */
	/*
	 * By task (EVENT_MODE_TASKS), else by thread. task of a row is as in struct block_owner.
	 * Not with moment_ns, which has the same member as the thread.
	 */
	bool by_owner;
};
/*
 * Passes the estimates to take, of the stacks that tracebacks has (UINT32_MAX: it has none). 0;
 * -ENOMEM; or what take returns.
 */
int trace_windowed_estimate(const struct process_state *process, const uint32_t *tracebacks,
			    const struct windowed_split *split, trace_windowed_fn take,
			    void *context);
/*
 * Adds the estimates for blocks of pymalloc's pools to a snapshot of a process in
 * EVENT_MODE_WINDOWS. tracebacks: by stack of the process, the snapshot's; UINT32_MAX: none.
 * moment_ns: as in struct windowed_split; meta.ages_error_ns is set. 0; -ENOMEM; errors of
 * windowed_add().
 */
int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       uint64_t moment_ns, struct builder *builder);
