/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/array.h"
#include "process_tables/process_tables.h"
#include "snapshot/builder.h"

/* NULL: no memory. Borrowed until the next call. */
static struct activity *activity_find(struct process_state *process, enum event_layer layer,
				      const struct block *block)
{
	struct activities *activities = &process->activities;
	uint32_t *first = &process->stacks[block->stack].activity;

	for (uint32_t i = *first; i; i = activities->items[i - 1].next) {
		struct activity *activity = &activities->items[i - 1];

		if (activity->layer == layer && activity->domain == block->domain)
			return activity;
	}
	if (array_reserve_in(process->account, &activities->items, &activities->capacity,
			     activities->count, 1, sizeof(*activities->items)))
		return NULL;
	activities->items[activities->count++] = (struct activity){
		.stack = block->stack, .domain = block->domain, .next = *first, .layer = layer};
	*first = (uint32_t)activities->count;
	return &activities->items[activities->count - 1];
}

void state_activity_count(struct process_state *process, enum event_layer layer,
			  const struct block *block)
{
	struct activities *activities = &process->activities;
	struct activity *activity = activity_find(process, layer, block);
	double chance = state_chance(process, layer, block);
	uint64_t units = chance < 1 ? (uint64_t)(ACTIVITY_UNIT / chance + 0.5) : ACTIVITY_UNIT;
	uint64_t bytes = state_bytes(process, layer, block);

	if (!activity || bytes > TRACE_BYTES_MAX - activities->bytes ||
	    units > TRACE_BYTES_MAX - activities->units) {
		activities->gap = 1;
		return;
	}
	activity->units += units;
	activity->bytes += bytes;
	activities->units += units;
	activities->bytes += bytes;
}

int state_activity_known(const struct process_state *process, enum event_layer layer)
{
	const struct trace_process *info = &process->info;

	return layer < EVENT_LAYER_TABLES && info->layers & 1u << layer &&
	       !process->activities.gap && !info->off &&
	       (info->mode == EVENT_MODE_EXACT || info->mode == EVENT_MODE_CENSUS);
}

/* Only the sums are known: two sizes that differ by 1 add up to them. */
static int sums_add(struct builder *builder, uint32_t layer, const struct snapshot_trace *like,
		    uint64_t count, uint64_t bytes)
{
	struct snapshot_trace trace = *like;
	uint64_t larger = count ? bytes % count : 0;
	int err = 0;

	trace.bytes = count ? bytes / count : 0;
	trace.count = count - larger;
	if (trace.count)
		err = builder_layer(builder, layer, &trace);
	trace.bytes++;
	trace.count = larger;
	return err || !larger ? err : builder_layer(builder, layer, &trace);
}

int state_activities_add(const struct process_state *process, const uint32_t *tracebacks,
			 struct builder *builder)
{
	const struct activities *activities = &process->activities;
	int err = 0;

	for (size_t i = 0; !err && i < activities->count; i++) {
		const struct activity *activity = &activities->items[i];
		const struct snapshot_trace trace = {.traceback = tracebacks[activity->stack],
						     .domain = activity->domain};

		if (trace.traceback == UINT32_MAX)
			return -EDQUOT;
		if (state_activity_known(process, activity->layer))
			err = sums_add(builder, SNAPSHOT_ALLOCATED + activity->layer, &trace,
				       (activity->units + ACTIVITY_UNIT / 2) / ACTIVITY_UNIT,
				       activity->bytes);
	}
	return err;
}

void state_activity_clear(struct process_state *process, uint64_t time_ns)
{
	struct activities *activities = &process->activities;

	array_release(process->account, &activities->items, &activities->capacity,
		      sizeof(*activities->items));
	*activities = (struct activities){.since_ns = time_ns};
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i].activity = 0;
}
