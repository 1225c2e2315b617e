/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What windows have shown of allocations, alive or not, by activity, for estimates of all of them
 * (snapshot/estimate/allocated.h). Included by process_tables.h only.
 *
 * A window's last moment is told after it: records that are later are of no window, and those of
 * probes that are always in place are of the next span. So the last ones are kept one by one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/estimate/allocated.h"

#define WINDOW_ALLOCS_RECENT 64u    /* windows that the present rate is told from */
#define WINDOW_ALLOCS_KEPT   65536u /* records of the open window that are kept one by one */

/* Of an activity. */
struct window_allocs_row {
	/* that are in the activity, in a window or too late for it */
	uint64_t seen_units, seen_bytes;
	uint64_t open_units, open_bytes; /* in the open one, without those that are kept */
	/*
	 * 1 + index of the next one that the open window has shown; UINT32_MAX: none; 0: it has
	 * not shown this one
	 */
	uint32_t next;
	struct allocated_sums weighted_units, weighted_bytes;
};

/* A record in the open window. */
struct window_allocs_record {
	uint64_t time_ns, bytes;
	uint32_t row; /* UINT32_MAX: of a probe that is always in place */
	uint32_t units;
};

/* A window, and the time that it stands for. Sums of all rows. */
struct window_allocs_span {
	struct allocated_group group;
	double units, bytes;             /* seen in it, times span / length */
	uint64_t sure_units, sure_bytes; /* seen in the span, by probes that are always in place */
};

/* Of a process that is traced in windows: others have none. */
struct window_allocs {
	struct window_allocs_row *rows;
	size_t row_count, row_capacity;
	struct window_allocs_record *kept;
	size_t kept_count, kept_capacity;
	struct window_allocs_span spans[WINDOW_ALLOCS_RECENT]; /* by their numbers */
	struct allocated_group groups[CALIBRATE_GROUPS];       /* of all windows */
	struct window_allocs_span now; /* since the last window: work and what is sure */
	uint64_t count;                /* windows */
	uint64_t from_ns;              /* when the last one ended; 0: none has */
	uint32_t shown;                /* as row.next: the first of the open window */
	bool gap;                      /* there was no memory */
};

struct activity;
struct block;
struct builder;
struct process_state;
struct trace_rate;
struct trace_window;

/*
 * Windows begin at that time: what was counted before is known. Without memory there are no
 * estimates.
 */
void state_window_allocs_begin(struct process_state *process, uint64_t time_ns);
/* Forgets what was counted, where something was. */
void state_window_allocs_clear(struct process_state *process, uint64_t time_ns);
/* An allocation was counted, as that many units, in EVENT_MODE_WINDOWS. */
void state_window_allocs_count(struct process_state *process, struct activity *activity,
			       const struct block *block, uint64_t units, uint64_t bytes);
/* A record of a probe that is always in place, which is no allocation. */
void state_window_allocs_work(struct process_state *process);
/* A window has ended. */
void state_window_allocs_end(struct process_state *process, const struct trace_window *window);
/* Are there estimates of what a layer's stacks have allocated? */
bool state_window_allocs_known(const struct process_state *process, enum event_layer layer);
/*
 * Adds them to a snapshot. tracebacks: by stack, the snapshot's. 0; errors of builder_layer() and
 * builder_estimate().
 */
int state_window_allocs_add(const struct process_state *process, const uint32_t *tracebacks,
			    struct builder *builder);
/* As trace_rate(). */
void state_window_allocs_rate(const struct process_state *process, struct trace_rate *out);
void state_window_allocs_free(struct process_state *process);
