/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What entries have allocated, and the processes that hold blocks of them: passes over traces
 * beside the one that sums up live blocks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/group/group_entries.h"
#include "util/error.h"

uint32_t group_trace_row(const struct grouping *grouping, const struct side *side,
			 const struct snapshot_trace *trace)
{
	if (group_is_owner(grouping->opts->by))
		return side->snapshot->process_count ? trace->process : 0;
	return trace->traceback;
}

const struct snapshot_trace *group_trace_next(const struct grouping *grouping,
					      const struct snapshot *snapshot,
					      struct snapshot_cursor *cursor)
{
	if (group_is_owner(grouping->opts->by))
		return snapshot_own_next(snapshot, cursor);
	return cursor->trace < snapshot->trace_count ? &snapshot->traces[cursor->trace++] : NULL;
}

int group_extra_known(const struct snapshot *snapshot, enum snapshot_extras what, enum group_by by)
{
	return snapshot_knows(snapshot, what) &&
	       (!group_is_owner(by) || !snapshot->meta.extra[what].gaps);
}

/* Of owners, the traces of each process's own first layer count. */
static int is_counted(const struct grouping *grouping, const struct snapshot *snapshot,
		      const struct snapshot_trace *trace, enum event_layer layer)
{
	return group_is_owner(grouping->opts->by)
		       ? snapshot_process(snapshot, trace->process)->layer == layer
		       : snapshot->meta.layer == layer;
}

static int is_temporary(const struct grouping *grouping, const struct snapshot_trace *trace)
{
	uint32_t lifetime = trace->flags >> SNAPSHOT_LIFETIME_SHIFT;

	return lifetime == LIFETIME_TEMPORARY || lifetime == LIFETIME_WALK ||
	       (lifetime == LIFETIME_ONE_OTHER && grouping->opts->temporary_others);
}

/* Of what was freed, only temporary blocks are summed up. */
static struct statistic_sums *extra_sums(struct statistic_extra *extra, enum snapshot_extras what)
{
	return what == EXTRA_FREED ? &extra->temporary : &extra->allocated;
}

static int total_add(struct statistic_sums *total, const struct snapshot_trace *trace)
{
	/* Sizes are limited by the snapshot's builder. */
	total->size += trace->bytes * trace->count;
	if (__builtin_add_overflow(total->count, trace->count, &total->count) ||
	    total->count > INT64_MAX || total->size > INT64_MAX)
		return error_set(-EOVERFLOW, "the sums exceed 2^63");
	return 0;
}

/* No row exceeds the total. */
static int layer_sum(struct grouping *grouping, const struct side *side, struct filter_run *run,
		     enum snapshot_extras what, enum event_layer which)
{
	const struct snapshot_layer *layer = &side->snapshot->layers[SNAPSHOT_EXTRA(what, which)];
	int temporary = what == EXTRA_FREED;

	for (size_t i = 0; i < layer->trace_count; i++) {
		const struct snapshot_trace *trace = &layer->traces[i];
		struct sums *row;
		int err, passes = filter_run_passes(run, trace);

		if (passes < 0)
			return passes;
		if (!passes || !is_counted(grouping, side->snapshot, trace, which) ||
		    (temporary && !is_temporary(grouping, trace)))
			continue;
		row = &grouping->rows[group_trace_row(grouping, side, trace)];
		err = total_add(
			extra_sums(side->old ? &grouping->out->old_extra : &grouping->out->extra,
				   what),
			trace);
		if (err)
			return err;
		total_add(extra_sums(&row->extra, what), trace);
	}
	return 0;
}

int group_extra_sum(struct grouping *grouping, const struct side *side)
{
	struct filter_run run;
	int err = filter_run_begin(&run, grouping->opts->filters, side->snapshot);

	for (enum event_layer layer = 0; !err && layer < EVENT_LAYER_TABLES; layer++) {
		if (grouping->out->allocated_known)
			err = layer_sum(grouping, side, &run, EXTRA_ALLOCATED, layer);
		if (!err && grouping->out->temporary_known)
			err = layer_sum(grouping, side, &run, EXTRA_FREED, layer);
	}
	filter_run_end(&run);
	return err;
}

void group_extra_count(struct statistic *entry, const struct side *side, const struct sums *sums,
		       int repeats)
{
	struct statistic_extra *out = side->old ? &entry->old_extra : &entry->extra;

	entry->held |= sums->count != 0;
	if (repeats)
		return;
	out->allocated.size += sums->extra.allocated.size;
	out->allocated.count += sums->extra.allocated.count;
	out->temporary.size += sums->extra.temporary.size;
	out->temporary.count += sums->extra.temporary.count;
}

void group_dead_drop(struct grouping *grouping)
{
	struct statistics *out = grouping->out;
	size_t kept = 0;

	if (grouping->opts->sort != SORT_SIZE || group_is_owner(grouping->opts->by))
		return;
	for (size_t i = 0; i < out->count; i++)
		if (out->entries[i].held)
			out->entries[kept++] = out->entries[i];
	out->count = kept;
}

/*
 * Counts the trace's process for each entry that the trace adds to. last: per entry, the last
 * process counted.
 */
static int holder_count(struct grouping *grouping, const struct snapshot_trace *trace,
			uint32_t *last)
{
	struct side *side = &grouping->sides[0];
	struct row_cursor cursor = {0};
	uint32_t entry, row = group_trace_row(grouping, side, trace);
	int found;

	while ((found = group_row_next(grouping, side, row, &cursor, &entry)) > 0) {
		if (last[entry] == trace->process)
			continue;
		last[entry] = trace->process;
		grouping->out->entries[entry].processes++;
	}
	return found;
}

/* Relies on traces being sorted by process. */
static int holders_count(struct grouping *grouping)
{
	const struct snapshot *snapshot = grouping->sides[0].snapshot;
	size_t count = grouping->out->count;
	uint32_t *last = malloc((count ? count : 1) * sizeof(*last));
	const struct snapshot_trace *trace;
	struct snapshot_cursor cursor = {0};
	struct filter_run run;
	int err = last ? filter_run_begin(&run, grouping->opts->filters, snapshot) : -ENOMEM;

	if (err) {
		free(last);
		return err;
	}
	memset(last, 0xff, count * sizeof(*last));
	while (!err && (trace = group_trace_next(grouping, snapshot, &cursor))) {
		int passes = filter_run_passes(&run, trace);

		err = passes < 0 ? passes : passes ? holder_count(grouping, trace, last) : 0;
	}
	filter_run_end(&run);
	free(last);
	return err;
}

/* With a single process, that process holds every entry. */
int group_processes_count(struct grouping *grouping)
{
	if (grouping->sides[0].snapshot->process_count)
		return holders_count(grouping);
	for (size_t i = 0; i < grouping->out->count; i++)
		grouping->out->entries[i].processes = grouping->out->entries[i].count != 0;
	return 0;
}
