/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Record handlers: what walks and looks show of the blocks of a process that is traced in windows.
 * They return as those of process_tables.h.
 */
#ifndef TRACER_TRACE_PROCESS_PROCESS_WALKS_H
#define TRACER_TRACE_PROCESS_PROCESS_WALKS_H

struct event_census_chunks;
struct event_census_kinds;
struct event_census_large;
struct process_state;

/* What is in the blocks of a pool. */
int state_census_kinds(struct process_state *process, const struct event_census_kinds *event);
/* What is at the addresses of Python's large blocks that were seen in windows. */
int state_census_large(struct process_state *process, const struct event_census_large *event);
/*
 * All allocated blocks, where the windows are those of the native layer. Blocks that were seen, and
 * at whose address it does not show a chunk of the same size, have died.
 */
int state_census_chunks(struct process_state *process, const struct event_census_chunks *event);

#endif
