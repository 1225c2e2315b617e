/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table at its peak, by stack and domain, without a copy of it at each new peak: every peak has
 * a number, and an activity keeps what it held at the peak of that number only when it first
 * changes after it. One that has not changed since still holds it.
 */
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

/* The activity is about to change. */
static void live_keep(const struct process_state *process, struct activity *activity)
{
	uint64_t peak = process->activities.peaks[activity->layer].number;

	if (activity->peak == peak)
		return;
	activity->peak = peak;
	activity->peak_units = activity->live_units;
	activity->peak_bytes = activity->live_bytes;
}

static void subtract(uint64_t *from, uint64_t value)
{
	*from -= value < *from ? value : *from;
}

void state_live_change(struct process_state *process, enum event_layer layer,
		       const struct block *block, int gone)
{
	struct activity *activity = state_activity_of(process, layer, block);
	uint64_t units = state_activity_units(process, layer, block);
	uint64_t bytes = state_bytes(process, layer, block);

	if (!activity) {
		process->activities.gap = 1;
		return;
	}
	live_keep(process, activity);
	activity->changed = process->activities.telling;
	if (gone) {
		subtract(&activity->live_units, units);
		subtract(&activity->live_bytes, bytes);
		return;
	}
	/* The table's sum of bytes is bounded, and so is the number of its blocks. */
	activity->live_units += units;
	activity->live_bytes += bytes;
}

void state_live_reset(struct process_state *process, enum event_layer layer)
{
	struct activities *activities = &process->activities;

	activities->told_first = 0;
	for (size_t i = 0; i < activities->count; i++) {
		if (activities->items[i].layer != layer)
			continue;
		live_keep(process, &activities->items[i]);
		activities->items[i].live_units = activities->items[i].live_bytes = 0;
	}
}

void state_peak_now(struct process_state *process, enum event_layer layer)
{
	struct trace_table *table = &process->info.tables[layer];

	table->peak_bytes = table->live_bytes;
	process->activities.peaks[layer].number++;
	process->activities.peaks[layer].time_ns = process->info.end_ns;
}

void state_peak_of(const struct process_state *process, const struct activity *activity,
		   uint64_t *units, uint64_t *bytes)
{
	const struct trace_table *table = &process->info.tables[activity->layer];
	/* Where heap walks find deaths, the table may have grown beyond the last walk's peak. */
	int is_now = activity->peak != process->activities.peaks[activity->layer].number ||
		     table->live_bytes > table->peak_bytes;

	*units = is_now ? activity->live_units : activity->peak_units;
	*bytes = is_now ? activity->live_bytes : activity->peak_bytes;
}

int state_live_inherit(struct process_state *child, const struct process_state *parent)
{
	const struct activities *from = &parent->activities;
	struct activities *to = &child->activities;
	int err = array_reserve_in(child->account, &to->items, &to->capacity, 0, from->count,
				   sizeof(*to->items));

	if (err || !from->count)
		return err;
	memcpy(to->items, from->items, from->count * sizeof(*to->items));
	to->count = from->count;
	for (size_t i = 0; i < to->count; i++) {
		struct activity *activity = &to->items[i];

		*activity = (struct activity){.stack = activity->stack,
					      .domain = activity->domain,
					      .next = activity->next,
					      .layer = activity->layer,
					      .live_units = activity->live_units,
					      .live_bytes = activity->live_bytes};
	}
	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++)
		to->peaks[layer].number = 1; /* as it began */
	return 0;
}
