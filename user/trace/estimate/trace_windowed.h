/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_TRACE_ESTIMATE_TRACE_WINDOWED_H
#define TRACER_TRACE_ESTIMATE_TRACE_WINDOWED_H

#include "snapshot/builder.h"
#include "trace/process/process_tables.h"

/* rows: what result.rows is of; traceback: as in tracebacks. Returns 0 or an error. */
typedef int (*trace_windowed_fn)(void *context, const struct snapshot_trace *rows,
				 const struct calibrate_result *result);
/*
 * Passes the estimates to take, of the stacks that tracebacks has (UINT32_MAX: it has none). 0;
 * -ENOMEM; or what take returns.
 */
int trace_windowed_estimate(const struct process_state *process, const uint32_t *tracebacks,
			    trace_windowed_fn take, void *context);
/*
 * Adds the estimates for blocks of pymalloc's pools to a snapshot of a process in
 * EVENT_MODE_WINDOWS. tracebacks: by stack of the process, the snapshot's; UINT32_MAX: none. 0;
 * -ENOMEM; errors of windowed_add().
 */
int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder);

#endif
