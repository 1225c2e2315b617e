/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "snapshot/builder.h"
#include "trace/process/process_tables.h"
#include "util/array.h"

struct activity *state_activity_of(struct process_state *process, enum event_layer layer,
				   const struct block *block)
{
	struct activities *activities = &process->activities;
	uint32_t *first = &process->stacks[block->stack].activity;

	for (uint32_t i = *first; i; i = activities->items[i - 1].next) {
		struct activity *activity = &activities->items[i - 1];

		if (activity->layer == layer && activity->domain == block->domain)
			return activity;
	}
	if (ARRAY_RESERVE(process->account, activities, items, count, capacity, 1))
		return NULL;
	activities->items[activities->count++] = (struct activity){
		.stack = block->stack, .domain = block->domain, .next = *first, .layer = layer};
	*first = (uint32_t)activities->count;
	return &activities->items[activities->count - 1];
}

uint64_t state_activity_units(const struct process_state *process, enum event_layer layer,
			      const struct block *block)
{
	double chance = state_chance(process, layer, block);

	return chance < 1 ? (uint64_t)(ACTIVITY_UNIT / chance + 0.5) : ACTIVITY_UNIT;
}

void state_activity_count(struct process_state *process, enum event_layer layer,
			  const struct block *block)
{
	struct activities *activities = &process->activities;
	struct activity *activity = state_activity_of(process, layer, block);
	uint64_t units = state_activity_units(process, layer, block);
	uint64_t bytes = state_bytes(process, layer, block);

	if (!activity || bytes > TRACE_BYTES_MAX - activities->bytes ||
	    units > TRACE_BYTES_MAX - activities->units) {
		activities->gap = 1;
		return;
	}
	if (layer == state_walked_layer(&process->info))
		activities->unfreed = 1;
	if (layer == EVENT_LAYER_PYTHON && process->info.mode != EVENT_MODE_CENSUS)
		activities->unwalked = 1;
	activity->units += units;
	activity->bytes += bytes;
	activity->changed = activities->telling;
	activities->units += units;
	activities->bytes += bytes;
	if (process->info.mode == EVENT_MODE_WINDOWS)
		state_window_allocs_count(process, activity, block, units, bytes);
}

static enum snapshot_lifetime lifetime_of(uint64_t ms)
{
	enum snapshot_lifetime lifetime = LIFETIME_10_MS;

	for (uint64_t below = 10; ms >= below && lifetime < LIFETIME_LONGER; below *= 10)
		lifetime++;
	return lifetime;
}

/* NULL: no memory. */
static struct activity_freed *freed_find(struct process_state *process, struct activity *activity,
					 enum snapshot_lifetime lifetime)
{
	struct activities *activities = &process->activities;

	for (uint32_t i = activity->freed; i; i = activities->freed[i - 1].next)
		if (activities->freed[i - 1].lifetime == lifetime)
			return &activities->freed[i - 1];
	if (ARRAY_RESERVE(process->account, activities, freed, freed_count, freed_capacity, 1))
		return NULL;
	activities->freed[activities->freed_count++] =
		(struct activity_freed){.lifetime = lifetime, .next = activity->freed};
	activity->freed = (uint32_t)activities->freed_count;
	return &activities->freed[activities->freed_count - 1];
}

static void freed_count(struct process_state *process, enum event_layer layer,
			const struct block *block, enum snapshot_lifetime lifetime)
{
	struct activities *activities = &process->activities;
	struct activity *activity = state_activity_of(process, layer, block);
	struct activity_freed *freed = activity ? freed_find(process, activity, lifetime) : NULL;
	uint64_t bytes = state_bytes(process, layer, block);
	uint64_t units = state_activity_units(process, layer, block);

	if (!freed || bytes > TRACE_BYTES_MAX - activities->freed_bytes ||
	    units > TRACE_BYTES_MAX - activities->freed_units) {
		activities->unfreed = activities->unwalked = 1;
		return;
	}
	freed->units += units;
	freed->bytes += bytes;
	activities->freed_units += units;
	activities->freed_bytes += bytes;
}

void state_activity_free(struct process_state *process, enum event_layer layer,
			 const struct block *block, uint64_t time_ns, uint32_t later)
{
	static const enum snapshot_lifetime soon[RECENT_BLOCKS] = {LIFETIME_TEMPORARY,
								   LIFETIME_ONE_OTHER};
	uint64_t ms = state_activity_ms(process, time_ns);
	enum snapshot_lifetime lifetime;

	if (block->inherited) /* the parent has allocated it */
		return;
	lifetime = later < RECENT_BLOCKS
			   ? soon[later]
			   : lifetime_of(ms > block->born_ms ? ms - block->born_ms : 0);
	freed_count(process, layer, block, lifetime);
}

void state_activity_gone(struct process_state *process, enum event_layer layer,
			 const struct block *block)
{
	/* In the walk's own millisecond: it may have been there, and is not counted. */
	if (layer == EVENT_LAYER_PYTHON && process->info.mode == EVENT_MODE_CENSUS &&
	    !block->inherited && block->born_ms > process->census.walked_ms)
		freed_count(process, layer, block, LIFETIME_WALK);
}

int state_activity_known(const struct process_state *process, enum snapshot_extras what,
			 enum event_layer layer)
{
	const struct trace_process *info = &process->info;
	int known;

	if (what == EXTRA_ALLOCATED && state_window_allocs_known(process, layer))
		return 1;
	if (what == EXTRA_THREAD && state_windows_by_owner(info))
		return layer == state_window_layer(info);
	known = layer < EVENT_LAYER_TABLES && info->layers & 1u << layer &&
		!process->activities.gap && !info->off &&
		(info->mode == EVENT_MODE_EXACT || info->mode == EVENT_MODE_CENSUS);

	if (what != EXTRA_FREED || !known || layer == EVENT_LAYER_NATIVE)
		return known;
	return state_needs_walk(info) ? !process->activities.unwalked
				      : !process->activities.unfreed;
}

uint32_t state_activity_ms(const struct process_state *process, uint64_t time_ns)
{
	uint64_t start_ns = process->births_ns;
	uint64_t ms = time_ns > start_ns ? (time_ns - start_ns) / 1000000 : 0;

	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

int state_sums_add(struct builder *builder, uint32_t layer, const struct snapshot_trace *like,
		   uint64_t units, uint64_t bytes)
{
	struct snapshot_trace trace = *like;
	uint64_t count = (units + ACTIVITY_UNIT / 2) / ACTIVITY_UNIT;
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

static int freed_add(const struct process_state *process, const struct activity *activity,
		     const struct snapshot_trace *like, struct builder *builder)
{
	uint32_t layer = SNAPSHOT_EXTRA(EXTRA_FREED, activity->layer);
	int by_walk = activity->layer == EVENT_LAYER_PYTHON && state_needs_walk(&process->info);
	int err = 0;

	for (uint32_t i = activity->freed; !err && i; i = process->activities.freed[i - 1].next) {
		const struct activity_freed *freed = &process->activities.freed[i - 1];
		struct snapshot_trace trace = *like;

		if ((freed->lifetime == LIFETIME_WALK) != by_walk)
			continue;
		trace.flags = (freed->lifetime << SNAPSHOT_LIFETIME_SHIFT) & 0xf0u;
		err = state_sums_add(builder, layer, &trace, freed->units, freed->bytes);
	}
	return err;
}

static int peak_add(const struct process_state *process, const struct activity *activity,
		    const struct snapshot_trace *trace, struct builder *builder)
{
	uint64_t units, bytes;

	state_peak_of(process, activity, &units, &bytes);
	return state_sums_add(builder, SNAPSHOT_EXTRA(EXTRA_PEAK, activity->layer), trace, units,
			      bytes);
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
		if (state_activity_known(process, EXTRA_ALLOCATED, activity->layer) &&
		    !state_window_allocs_known(process, activity->layer))
			err = state_sums_add(builder,
					     SNAPSHOT_EXTRA(EXTRA_ALLOCATED, activity->layer),
					     &trace, activity->units, activity->bytes);
		if (!err && state_activity_known(process, EXTRA_FREED, activity->layer))
			err = freed_add(process, activity, &trace, builder);
		if (!err && state_activity_known(process, EXTRA_PEAK, activity->layer))
			err = peak_add(process, activity, &trace, builder);
	}
	return err ?: state_window_allocs_add(process, tracebacks, builder);
}

void state_activity_clear(struct process_state *process, uint64_t time_ns)
{
	struct activities *activities = &process->activities;

	ARRAY_RELEASE(process->account, activities, items, capacity);
	ARRAY_RELEASE(process->account, activities, freed, freed_capacity);
	*activities = (struct activities){.since_ns = time_ns};
	state_window_allocs_clear(process, time_ns);
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i].activity = 0;
}
