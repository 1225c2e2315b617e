/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_WINDOWED_TRACE_WINDOWED_H
#define TRACER_WINDOWED_TRACE_WINDOWED_H

#include "process_tables/process_tables.h"
#include "snapshot/builder.h"

/*
 * Adds the estimates for blocks of pymalloc's pools to a snapshot of a process in
 * EVENT_MODE_WINDOWS. tracebacks: by stack of the process, the snapshot's; UINT32_MAX: none. 0;
 * -ENOMEM; errors of windowed_add().
 */
int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder);

#endif
