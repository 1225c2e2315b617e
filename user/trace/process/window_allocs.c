/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/builder.h"
#include "trace/process/process_tables.h"
#include "trace/trace.h"
#include "util/array.h"

#define WORK     UINT32_MAX /* window_allocs_record.row: of a probe that is always in place */
#define ROW_LAST UINT32_MAX

/* --- counting --------------------------------------------------------------------------------- */

/* Made when windows show something first. NULL: no memory, and nothing is known. */
static struct window_allocs *allocs_of(struct process_state *process)
{
	size_t bytes = sizeof(*process->allocs);

	if (process->allocs)
		return process->allocs;
	if (account_charge(process->account, bytes)) {
		process->activities.gap = 1;
		return NULL;
	}
	process->allocs = calloc(1, bytes);
	if (!process->allocs) {
		account_uncharge(process->account, bytes);
		process->activities.gap = 1;
	}
	return process->allocs;
}

void state_window_allocs_begin(struct process_state *process, uint64_t time_ns)
{
	struct window_allocs *allocs = allocs_of(process);

	if (!allocs)
		return;
	allocs->from_ns = time_ns;
	allocs->now = (struct window_allocs_span){0};
}

void state_window_allocs_clear(struct process_state *process, uint64_t time_ns)
{
	if (!process->allocs)
		return;
	state_window_allocs_free(process);
	state_window_allocs_begin(process, time_ns);
}

static void row_open(struct window_allocs *allocs, uint32_t index, uint64_t units, uint64_t bytes)
{
	struct window_allocs_row *row = &allocs->rows[index];

	row->open_units += units;
	row->open_bytes += bytes;
	if (row->next)
		return;
	row->next = allocs->shown ? allocs->shown : ROW_LAST;
	allocs->shown = index + 1;
}

/* Takes a record that is within the open window. */
static void record_take(struct window_allocs *allocs, const struct window_allocs_record *record)
{
	if (record->row == WORK)
		allocs->now.group.work_in++;
	else
		row_open(allocs, record->row, record->units, record->bytes);
}

static void record_put(struct process_state *process, const struct window_allocs_record *record)
{
	struct window_allocs *allocs = process->allocs;
	size_t half = WINDOW_ALLOCS_KEPT / 2;

	/* The older half is taken to be within it. */
	if (allocs->kept_count == WINDOW_ALLOCS_KEPT) {
		for (size_t i = 0; i < half; i++)
			record_take(allocs, &allocs->kept[i]);
		allocs->kept_count -= half;
		memmove(allocs->kept, allocs->kept + half,
			allocs->kept_count * sizeof(*allocs->kept));
	}
	if (ARRAY_RESERVE(process->account, allocs, kept, kept_count, kept_capacity, 1)) {
		allocs->gap = true;
		return;
	}
	allocs->kept[allocs->kept_count++] = *record;
}

void state_window_allocs_work(struct process_state *process)
{
	const struct window_allocs_record record = {.time_ns = process->info.end_ns, .row = WORK};
	struct window_allocs *allocs = allocs_of(process);

	if (!allocs)
		return;
	allocs->now.group.work++;
	if (process->windows.open)
		record_put(process, &record);
}

/* That of an activity, made if it is new. 0: no memory. */
static uint32_t row_of(struct process_state *process, struct activity *activity)
{
	struct window_allocs *allocs = process->allocs;

	if (activity->window_row)
		return activity->window_row;
	if (ARRAY_RESERVE(process->account, allocs, rows, row_count, row_capacity, 1)) {
		allocs->gap = true;
		return 0;
	}
	allocs->rows[allocs->row_count++] = (struct window_allocs_row){0};
	activity->window_row = (uint32_t)allocs->row_count;
	return activity->window_row;
}

void state_window_allocs_count(struct process_state *process, struct activity *activity,
			       const struct block *block, uint64_t units, uint64_t bytes)
{
	struct window_allocs_record record = {
		.time_ns = process->info.end_ns, .bytes = bytes, .units = (uint32_t)units};
	struct window_allocs *allocs = allocs_of(process);

	if (!allocs || activity->layer != state_window_layer(&process->info))
		return;
	if (!state_window_has(process, block)) {
		allocs->now.sure_units += units;
		allocs->now.sure_bytes += bytes;
		if (!block->domain)
			state_window_allocs_work(process);
		return;
	}
	record.row = row_of(process, activity);
	if (!record.row--)
		return;
	allocs->rows[record.row].seen_units += units;
	allocs->rows[record.row].seen_bytes += bytes;
	if (process->windows.open)
		record_put(process, &record);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* What the window has shown is counted, each span / length times. */
static void rows_close(struct window_allocs *allocs, double weight, uint32_t group)
{
	struct window_allocs_span *now = &allocs->now;

	for (uint32_t at = allocs->shown; at && at != ROW_LAST;) {
		struct window_allocs_row *row = &allocs->rows[at - 1];

		row->weighted_units.groups[group] += weight * (double)row->open_units;
		row->weighted_bytes.groups[group] += weight * (double)row->open_bytes;
		now->units += weight * (double)row->open_units;
		now->bytes += weight * (double)row->open_bytes;
		row->open_units = row->open_bytes = 0;
		at = row->next;
		row->next = 0;
	}
	allocs->shown = 0;
}

void state_window_allocs_end(struct process_state *process, const struct trace_window *window)
{
	struct window_allocs *allocs = allocs_of(process);

	if (!allocs)
		return;
	struct allocated_group *now = &allocs->now.group;
	uint64_t from_ns = allocs->from_ns ? allocs->from_ns : state_windows_since_ns(process);
	uint64_t start_ns = window->start_ns > from_ns ? window->start_ns : from_ns;
	uint32_t group = allocated_group_of(allocs->count);
	double length_ns = window->end_ns > start_ns ? (double)(window->end_ns - start_ns) : 0;
	double span_ns = window->end_ns > from_ns ? (double)(window->end_ns - from_ns) : 0, weight;
	uint64_t later = 0;

	for (size_t i = 0; i < allocs->kept_count; i++)
		if (allocs->kept[i].time_ns <= window->end_ns)
			record_take(allocs, &allocs->kept[i]);
		else
			later += allocs->kept[i].row == WORK;
	allocs->kept_count = 0;
	weight = length_ns > 0 ? span_ns / length_ns : 0;
	rows_close(allocs, weight, group);
	now->work -= (double)later;
	now->work_shown = weight * (double)now->work_in;
	now->span_ns = span_ns;
	now->on_ns = length_ns;
	now->idle_ns = fmin(length_ns, (double)window->idle_ns);
	/* A window of no length: what came before it is of the next one's span. */
	if (length_ns > 0) {
		allocated_group_add(&allocs->groups[group], now);
		allocs->spans[allocs->count++ % WINDOW_ALLOCS_RECENT] = allocs->now;
		state_window_allocs_begin(process, window->end_ns);
	}
	now->work += (double)later;
}

bool state_window_allocs_known(const struct process_state *process, enum event_layer layer)
{
	struct allocated_scale scale;

	return process->info.mode == EVENT_MODE_WINDOWS && !process->info.off &&
	       layer == state_window_layer(&process->info) && process->allocs &&
	       !process->allocs->gap && !process->activities.gap &&
	       allocated_scale_find(process->allocs->groups, &scale);
}

/* --- estimates -------------------------------------------------------------------------------- */

/* Blocks of one size: a part of an estimate, with the same part of its deviations. */
static int part_add(struct builder *builder, uint32_t layer, struct snapshot_trace *trace,
		    double part, const float deviations[CALIBRATE_DEVIATIONS])
{
	struct snapshot_estimate estimate;

	if (!trace->count)
		return 0;
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++)
		estimate.deviations[i] =
			roundf((float)part * deviations[i] * ESTIMATE_STEPS) / ESTIMATE_STEPS +
			0.0f;
	return builder_estimate(builder, &estimate, trace) ?: builder_layer(builder, layer, trace);
}

/* Only the sums are known: two sizes that differ by 1 add up to them. */
static int estimate_add(struct builder *builder, uint32_t layer, const struct snapshot_trace *like,
			double blocks, double bytes, const float deviations[CALIBRATE_DEVIATIONS])
{
	struct snapshot_trace trace = *like;
	uint64_t count = (uint64_t)llround(blocks), sum = (uint64_t)llround(bytes);
	uint64_t larger = count ? sum % count : 0;
	int err;

	if (!count)
		return 0;
	trace.bytes = sum / count;
	trace.count = count - larger;
	err = part_add(builder, layer, &trace, (double)trace.count / (double)count, deviations);
	trace.bytes++;
	trace.count = larger;
	return err ?: part_add(builder, layer, &trace, (double)larger / (double)count, deviations);
}

static int activity_add(const struct process_state *process, const struct allocated_scale *scale,
			const struct activity *activity, const struct snapshot_trace *like,
			struct builder *builder)
{
	static const struct window_allocs_row none;
	const struct window_allocs_row *row =
		activity->window_row ? &process->allocs->rows[activity->window_row - 1] : &none;
	uint32_t layer = SNAPSHOT_EXTRA(EXTRA_ALLOCATED, activity->layer);
	float deviations[CALIBRATE_DEVIATIONS];
	double units, bytes, blocks;

	/* What the open window has shown is in none of the sums yet, and left out. */
	units = (double)(activity->units - row->seen_units);
	bytes = (double)(activity->bytes - row->seen_bytes);
	units += allocated_estimate(scale, &row->weighted_units, deviations);
	bytes += allocated_estimate(scale, &row->weighted_bytes, deviations);
	blocks = units / ACTIVITY_UNIT;
	/* The error is that of the bytes, in blocks of their mean size. */
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++)
		deviations[i] *= (float)(bytes > 0 ? blocks / bytes : 0);
	return estimate_add(builder, layer, like, blocks, bytes, deviations);
}

static void windows_set(const struct process_state *process, const struct allocated_scale *scale,
			struct snapshot_windows *out)
{
	struct allocated_sums bytes = {0};
	struct allocated_range range;
	double sure = (double)process->activities.bytes;

	for (size_t i = 0; i < process->allocs->row_count; i++) {
		sure -= (double)process->allocs->rows[i].seen_bytes;
		for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
			bytes.groups[g] += process->allocs->rows[i].weighted_bytes.groups[g];
	}
	range = allocated_range_of(scale, &bytes, sure);
	out->allocated_bytes = (uint64_t)llround(range.estimate);
	out->allocated_low = (uint64_t)llround(range.low);
	out->allocated_high = (uint64_t)llround(range.high);
	out->allocated_by_work = scale->by_work;
}

int state_window_allocs_add(const struct process_state *process, const uint32_t *tracebacks,
			    struct builder *builder)
{
	struct allocated_scale scale;
	int err = 0;

	if (!state_window_allocs_known(process, state_window_layer(&process->info)) ||
	    !allocated_scale_find(process->allocs->groups, &scale))
		return 0;
	for (size_t i = 0; !err && i < process->activities.count; i++) {
		const struct activity *activity = &process->activities.items[i];
		const struct snapshot_trace like = {.traceback = tracebacks[activity->stack],
						    .domain = activity->domain};

		if (activity->layer != state_window_layer(&process->info))
			continue;
		if (like.traceback == UINT32_MAX)
			return -EDQUOT;
		err = activity_add(process, &scale, activity, &like, builder);
	}
	windows_set(process, &scale, &builder->snapshot->meta.windows);
	return err;
}

static struct allocated_range per_second(struct allocated_range range, double span_ns)
{
	double seconds = span_ns / 1e9;

	return (struct allocated_range){range.estimate / seconds, range.low / seconds,
					range.high / seconds};
}

void state_window_allocs_rate(const struct process_state *process, struct trace_rate *out)
{
	const struct window_allocs *allocs = process->allocs;
	struct allocated_group groups[CALIBRATE_GROUPS] = {0};
	struct allocated_sums bytes = {0}, blocks = {0};
	double sure_bytes = 0, sure_blocks = 0;
	struct allocated_scale scale;

	*out = (struct trace_rate){0};
	if (!state_window_allocs_known(process, state_window_layer(&process->info)))
		return;
	for (uint64_t i = allocs->count; i-- > 0 && allocs->count - i <= WINDOW_ALLOCS_RECENT;) {
		const struct window_allocs_span *span = &allocs->spans[i % WINDOW_ALLOCS_RECENT];
		uint32_t group = allocated_group_of(i);

		allocated_group_add(&groups[group], &span->group);
		bytes.groups[group] += span->bytes;
		blocks.groups[group] += span->units / ACTIVITY_UNIT;
		sure_bytes += (double)span->sure_bytes;
		sure_blocks += (double)span->sure_units / ACTIVITY_UNIT;
	}
	if (!allocated_scale_find(groups, &scale))
		return;
	out->bytes =
		per_second(allocated_range_of(&scale, &bytes, sure_bytes), (double)scale.span_ns);
	out->blocks =
		per_second(allocated_range_of(&scale, &blocks, sure_blocks), (double)scale.span_ns);
	out->span_ns = scale.span_ns;
	out->time_share = scale.time_share;
	out->by_work = scale.by_work;
}

void state_window_allocs_free(struct process_state *process)
{
	struct window_allocs *allocs = process->allocs;

	if (!allocs)
		return;
	ARRAY_RELEASE(process->account, allocs, rows, row_capacity);
	ARRAY_RELEASE(process->account, allocs, kept, kept_capacity);
	account_uncharge(process->account, sizeof(*allocs));
	free(allocs);
	process->allocs = NULL;
}
