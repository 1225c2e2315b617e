/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "snapshot/ages.h"
#include "snapshot/group/group_entries.h"
#include "util/error.h"
#include "util/sorted.h"

/*
 * What entries have allocated, and the processes that hold blocks of them: passes over traces
 * beside the one that sums up live blocks.
 */

static uint32_t group_trace_row(const struct grouping *grouping, const struct side *side,
				const struct snapshot_trace *trace)
{
	if (group_is_owner(grouping->opts->by))
		return side->snapshot->process_count ? trace->process : 0;
	return trace->traceback;
}

/* Owners use each process's own first layer; other groupings use the snapshot's. NULL: end. */
static const struct snapshot_trace *group_trace_next(const struct grouping *grouping,
						     const struct snapshot *snapshot,
						     struct snapshot_cursor *cursor)
{
	if (group_is_owner(grouping->opts->by))
		return snapshot_own_next(snapshot, cursor);
	return cursor->trace < snapshot->trace_count ? &snapshot->traces[cursor->trace++] : NULL;
}

/* Is it known of every process? */
static int group_extra_known(const struct snapshot *snapshot, enum snapshot_extras what,
			     enum group_by by)
{
	return snapshot_knows(snapshot, what) &&
	       (!group_is_owner(by) || !snapshot->meta.extra[what].gaps);
}

/* Of owners, the traces of each process's own first layer count. */
static bool is_counted(const struct grouping *grouping, const struct snapshot *snapshot,
		       const struct snapshot_trace *trace, enum event_layer layer)
{
	return group_is_owner(grouping->opts->by)
		       ? snapshot_process(snapshot, trace->process)->layer == layer
		       : snapshot->meta.layer == layer;
}

static bool is_temporary(const struct grouping *grouping, const struct snapshot_trace *trace)
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

/* Sums up struct sums.beside of each row of the side. 0, -EOVERFLOW, -ENOMEM. */
static int group_extra_sum(struct grouping *grouping, const struct side *side)
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

/* Adds a row to an entry; repeats: it was added already, and counts once. */
static void group_extra_count(struct statistic *entry, const struct side *side,
			      const struct sums *sums, int repeats)
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

/* Drops the entries that hold nothing, unless they are asked for or are owners. */
static void group_dead_drop(struct grouping *grouping)
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

/* Sets the number of processes that hold blocks of each entry. 0, -ENOMEM. */
/* With a single process, that process holds every entry. */
static int group_processes_count(struct grouping *grouping)
{
	if (grouping->sides[0].snapshot->process_count)
		return holders_count(grouping);
	for (size_t i = 0; i < grouping->out->count; i++)
		grouping->out->entries[i].processes = grouping->out->entries[i].count != 0;
	return 0;
}

/* A trace whose age is known, and what its blocks count as. */
struct aged {
	const struct snapshot_trace *trace;
	double blocks;
};

/* What is known of an entry's ages: its blocks, those that were visited, the last trace of them. */
struct entry_ages {
	double blocks, visited;
	size_t last; /* 1 + its number: recursion does not count */
};

static int aged_compare(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	return CMP(x->trace->age, y->trace->age);
}

/* Lists the traces in order of their ages. 0; -ENOMEM. */
static int aged_list(struct grouping *grouping, struct aged *aged, size_t *count)
{
	const struct snapshot *snapshot = grouping->sides[0].snapshot;
	const struct snapshot_trace *trace;
	struct snapshot_cursor cursor = {0};
	struct filter_run run;
	int err = filter_run_begin(&run, grouping->opts->filters, snapshot), passes;

	*count = 0;
	while (!err && (trace = group_trace_next(grouping, snapshot, &cursor))) {
		passes = filter_run_passes(&run, trace);
		err = passes < 0 ? passes : 0;
		if (passes > 0 && trace->age != AGE_UNKNOWN)
			aged[(*count)++] = (struct aged){
				trace, (double)trace->count / estimate_chance_of(snapshot, trace)};
	}
	filter_run_end(&run);
	if (!err && *count)
		qsort(aged, *count, sizeof(*aged), aged_compare);
	return err;
}

/* The oldest one so far, and the median once half of the blocks are visited. */
static void age_note(struct statistic_ages *ages, const struct aged *aged, struct entry_ages *entry)
{
	ages->oldest_ns = aged->trace->age * AGE_UNIT_NS;
	entry->visited += aged->blocks;
	if (!ages->median_ns && entry->visited * 2 >= entry->blocks)
		ages->median_ns = ages->oldest_ns;
}

/* Adds up the blocks of each entry; then notes their ages. entries: the last one is of all. */
static int aged_visit(struct grouping *grouping, const struct aged *aged, size_t number, int notes,
		      struct entry_ages *entries)
{
	struct statistics *out = grouping->out;
	struct side *side = &grouping->sides[0];
	struct row_cursor cursor = {0};
	uint32_t row = group_trace_row(grouping, side, aged->trace), entry;
	int found;

	while ((found = group_row_next(grouping, side, row, &cursor, &entry)) > 0) {
		if (entries[entry].last == number)
			continue;
		entries[entry].last = number;
		if (notes)
			age_note(&out->entries[entry].ages, aged, &entries[entry]);
		else
			entries[entry].blocks += aged->blocks;
	}
	if (notes)
		age_note(&out->ages, aged, &entries[out->count]);
	else
		entries[out->count].blocks += aged->blocks;
	return found;
}

/* How old the blocks of each entry are, if the snapshot tells. 0; -ENOMEM. */
static int group_ages_set(struct grouping *grouping)
{
	const struct snapshot *snapshot = grouping->sides[0].snapshot;
	struct entry_ages *entries;
	struct aged *aged;
	size_t count = snapshot->trace_count;
	int err = -ENOMEM;

	grouping->out->ages_known = snapshot->meta.ages && !grouping->sides[1].snapshot;
	if (!grouping->out->ages_known)
		return 0;
	for (size_t i = 0; group_is_owner(grouping->opts->by) && i < EVENT_LAYERS; i++)
		count += snapshot->layers[i].trace_count;
	entries = calloc(grouping->out->count + 1, sizeof(*entries));
	aged = calloc(count + 1, sizeof(*aged));
	if (entries && aged)
		err = aged_list(grouping, aged, &count);
	for (size_t i = 0; !err && i < 2 * count; i++)
		err = aged_visit(grouping, &aged[i % count], i + 1, i >= count, entries);
	free(entries);
	free(aged);
	return err;
}

/*
 * Implements Snapshot._group_by(), statistics() and compare_to() of Lib/tracemalloc.py. Tracebacks
 * are equal if their (file name, line) pairs are. Function names count only for frames without a
 * line, and total_nframe does not count. In cumulative mode every frame of a traceback adds to its
 * group, a recursive frame as often as it occurs unless opts.once is set. Ties are broken by
 * comparing tracebacks, oldest frame first, file names by code points (the byte order of UTF-8),
 * all descending.
 *
 * Traces are first summed per traceback, or per process for owners (group_entries.c), so that each
 * traceback is inspected once. If there are several processes, a second pass counts those that hold
 * an entry. To compare two snapshots, the old one's string ids are translated to the new one's;
 * strings that only the old one has get ids beyond them.
 *
 * For a sampled or windowed snapshot, estimates are summed instead of the traces' figures, and
 * rounded at the end.
 */

static int sum_add(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum) || *sum > INT64_MAX)
		return error_set(-EOVERFLOW, "the sums exceed 2^63");
	return 0;
}

/* Cannot overflow: a row counted once is part of the totals, which have been checked. */
static void row_add(const struct grouping *grouping, uint32_t row, struct statistic_sums *sums,
		    struct estimate *estimate)
{
	sums->size += grouping->rows[row].size;
	sums->count += grouping->rows[row].count;
	if (grouping->row_estimates)
		estimate_join(estimate, &grouping->row_estimates[row]);
}

static void once_count(struct grouping *grouping, const struct side *side, uint32_t index,
		       uint32_t row)
{
	struct statistic *entry = &grouping->out->entries[index];

	row_add(grouping, row, side->old ? &entry->old_once : &entry->once,
		grouping->row_estimates ? entry_estimate(grouping, index, side->old, 1) : NULL);
}

/* Has this row already been added to the entry? Marks it as added. */
static int row_repeats(struct grouping *grouping, uint32_t index, uint32_t row)
{
	uint32_t last;

	if (!grouping->opts->cumulative)
		return 0;
	last = grouping->last_rows[index];
	grouping->last_rows[index] = row + 1;
	return last == row + 1;
}

static int entry_count(struct grouping *grouping, const struct side *side, uint32_t index,
		       uint32_t row)
{
	struct statistic *entry = &grouping->out->entries[index];
	const struct sums *sums = &grouping->rows[row];
	int repeats = row_repeats(grouping, index, row);

	if (grouping->opts->cumulative && !repeats)
		once_count(grouping, side, index, row);
	if (!side->old && !repeats)
		entry->rounded += sums->rounded;
	group_extra_count(entry, side, sums, repeats);
	if (repeats && grouping->opts->once)
		return 0;
	if (grouping->row_estimates) {
		estimate_join(entry_estimate(grouping, index, side->old, 0),
			      &grouping->row_estimates[row]);
		return 0;
	}
	int err = sum_add(side->old ? &entry->old_size : &entry->size, sums->size);

	return err ?: sum_add(side->old ? &entry->old_count : &entry->count, sums->count);
}

static void part_count(struct grouping *grouping, const struct side *side,
		       enum statistics_kind kind, uint32_t row)
{
	struct statistics *out = grouping->out;

	row_add(grouping, row, &(side->old ? out->old_parts : out->parts)[kind],
		&grouping->parts[kind][side->old]);
}

static void outside_count(struct grouping *grouping, const struct side *side, uint32_t row)
{
	const struct snapshot_traceback *traceback = &side->snapshot->tracebacks[row];

	part_count(grouping, side, PART_OUTSIDE, row);
	if (traceback->total != SNAPSHOT_TOTAL_UNKNOWN && traceback->total > traceback->nframe)
		part_count(grouping, side, PART_OUTSIDE_CUT, row);
}

static int row_count(struct grouping *grouping, struct side *side, uint32_t row)
{
	struct row_cursor cursor = {0};
	uint32_t entry;
	int found, err = 0;

	while (!err && (found = group_row_next(grouping, side, row, &cursor, &entry)))
		err = found < 0 ? found : entry_count(grouping, side, entry, row);
	if (!err && cursor.outside)
		outside_count(grouping, side, row);
	return err;
}

/* Called after the totals were checked, so this part of them cannot overflow. */
static void trace_inherited_count(struct grouping *grouping, const struct side *side,
				  const struct snapshot_trace *trace)
{
	struct statistics *out = grouping->out;
	struct statistic_sums *part = &(side->old ? out->old_parts : out->parts)[PART_INHERITED];

	if (!(trace->flags & SNAPSHOT_INHERITED))
		return;
	if (grouping->row_estimates) {
		estimate_add_trace(&grouping->parts[PART_INHERITED][side->old], side->snapshot,
				   trace);
		return;
	}
	part->size += trace->bytes * trace->count;
	part->count += trace->count;
}

/* Sums the traces per row, into grouping->rows and the totals. */
static int rows_sum(struct grouping *grouping, const struct side *side)
{
	const struct snapshot *snapshot = side->snapshot;
	uint64_t *size = side->old ? &grouping->out->old_total_size : &grouping->out->total_size;
	uint64_t *count = side->old ? &grouping->out->old_total_count : &grouping->out->total_count;
	const struct snapshot_trace *trace;
	struct snapshot_cursor cursor = {0};
	struct filter_run run;
	int err = filter_run_begin(&run, grouping->opts->filters, snapshot);

	while (!err && (trace = group_trace_next(grouping, snapshot, &cursor))) {
		uint32_t at = group_trace_row(grouping, side, trace);
		struct sums *row = &grouping->rows[at];
		int passes = filter_run_passes(&run, trace);

		if (passes <= 0) {
			err = passes;
			continue;
		}
		double chance = grouping->row_estimates ? estimate_chance_of(snapshot, trace) : 1;
		if (trace->flags & SNAPSHOT_ROUNDED)
			row->rounded += (double)trace->count / chance;
		if (grouping->row_estimates) {
			row->count = 1; /* any value but 0: marks the row as used */
			estimate_add_trace(&grouping->row_estimates[at], snapshot, trace);
			trace_inherited_count(grouping, side, trace);
			continue;
		}
		/* Cannot overflow before the totals do, which are checked below. */
		row->size += trace->bytes * trace->count;
		row->count += trace->count;
		err = sum_add(size, trace->bytes * trace->count) ?: sum_add(count, trace->count);
		if (!err)
			trace_inherited_count(grouping, side, trace);
	}
	filter_run_end(&run);
	for (size_t i = 0; grouping->row_estimates && i < group_row_total(grouping, side); i++)
		estimate_join(&grouping->total[side->old], &grouping->row_estimates[i]);
	return err;
}

static int side_group(struct grouping *grouping, struct side *side)
{
	size_t count = group_row_total(grouping, side);
	int estimated = snapshot_is_estimated(&side->snapshot->meta), err = 0;

	grouping->rows = calloc(count ? count : 1, sizeof(*grouping->rows));
	if (grouping->rows && estimated)
		grouping->row_estimates =
			calloc(count ? count : 1, sizeof(*grouping->row_estimates));
	if (!grouping->rows || (estimated && !grouping->row_estimates))
		err = -ENOMEM;
	if (!err)
		err = app_run_begin(&side->app, grouping->opts->app, side->snapshot);
	if (grouping->last_rows)
		memset(grouping->last_rows, 0, grouping->out->count * sizeof(*grouping->last_rows));
	if (!err)
		err = rows_sum(grouping, side) ?: group_extra_sum(grouping, side);
	for (uint32_t i = 0; !err && i < count; i++)
		if (grouping->rows[i].count || grouping->rows[i].extra.allocated.count ||
		    group_is_owner(grouping->opts->by))
			err = row_count(grouping, side, i);
	free(grouping->rows);
	free(grouping->row_estimates);
	grouping->rows = NULL;
	grouping->row_estimates = NULL;
	return err;
}

static int estimate_set(const struct estimate *estimate, uint64_t *size, uint64_t *count,
			struct statistic_error *error)
{
	int err = estimate_round(estimate->size, size);

	error->size = estimate_size_error(estimate);
	error->count = estimate_count_error(estimate);
	return err ?: estimate_round(estimate->count, count);
}

static int sums_set(const struct estimate *estimate, struct statistic_sums *sums)
{
	return estimate_set(estimate, &sums->size, &sums->count, &sums->error);
}

/* Rows that no window has shown are a part of the total, unless filters leave them out. */
static void unseen_rows_include(const struct grouping *grouping, struct estimate *total)
{
	if (filters_any(grouping->opts->filters))
		return;
	estimate_include_unseen(total);
}

/* Rounds the estimates of the sides that are samples. */
static int estimates_set(struct grouping *grouping)
{
	struct statistics *out = grouping->out;
	int err = 0;

	for (int old = 0; !err && old < 2; old++) {
		const struct snapshot *snapshot = grouping->sides[old].snapshot;

		if (!snapshot || !snapshot_is_estimated(&snapshot->meta))
			continue;
		for (size_t i = 0; !err && i < out->count; i++) {
			struct statistic *entry = &out->entries[i];

			err = estimate_set(entry_estimate(grouping, i, old, 0),
					   old ? &entry->old_size : &entry->size,
					   old ? &entry->old_count : &entry->count,
					   old ? &entry->old_error : &entry->error);
			if (!err && grouping->opts->cumulative)
				err = sums_set(entry_estimate(grouping, i, old, 1),
					       old ? &entry->old_once : &entry->once);
		}
		unseen_rows_include(grouping, &grouping->total[old]);
		if (!err)
			err = estimate_set(&grouping->total[old],
					   old ? &out->old_total_size : &out->total_size,
					   old ? &out->old_total_count : &out->total_count,
					   old ? &out->old_total_error : &out->total_error);
		for (size_t i = 0; !err && i < STATISTICS_PARTS; i++)
			err = sums_set(&grouping->parts[i][old],
				       old ? &out->old_parts[i] : &out->parts[i]);
	}
	return err;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a < b ? b - a : a - b;
}

static uint64_t sort_value(const struct statistic *entry, enum statistics_sort sort)
{
	const struct statistic_extra *now = &entry->extra, *old = &entry->old_extra;

	if (sort == SORT_ALLOCATED)
		return distance(now->allocated.size, old->allocated.size);
	return sort == SORT_TEMPORARY ? distance(now->temporary.count, old->temporary.count) : 0;
}

/* Descending. Without an old snapshot the differences equal the sizes and counts. */
static int entry_compare(const void *a, const void *b, void *context)
{
	const struct statistic *x = a, *y = b;
	const struct grouping *grouping = context;
	const uint64_t keys[][2] = {
		{sort_value(x, grouping->opts->sort), sort_value(y, grouping->opts->sort)},
		{distance(x->size, x->old_size), distance(y->size, y->old_size)},
		{x->size, y->size},
		{distance(x->count, x->old_count), distance(y->count, y->old_count)},
		{x->count, y->count},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? 1 : -1;
	return group_entry_compare(context, y, x);
}

/* Maps each string id of the old snapshot to the new one's, or to an id beyond those. */
static int strings_translate(struct side *old, const struct snapshot *snapshot)
{
	uint32_t count = strings_count(old->snapshot->strings),
		 beyond = strings_count(snapshot->strings);

	if (count > UINT32_MAX - beyond)
		return -EOVERFLOW;
	old->strings = calloc(count, sizeof(*old->strings));
	if (!old->strings)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const char *text = strings_get(old->snapshot->strings, i);

		if (!strings_find(snapshot->strings, text, &old->strings[i]))
			old->strings[i] = beyond + i;
	}
	return 0;
}

/* Which figures beside those of live blocks are there, and the one that is sorted by? */
static int extra_judge(const struct snapshot *snapshot, const struct snapshot *old,
		       const struct statistics_opts *opts, struct statistics *out)
{
	out->allocated_known = group_extra_known(snapshot, EXTRA_ALLOCATED, opts->by) &&
			       (!old || group_extra_known(old, EXTRA_ALLOCATED, opts->by));
	out->temporary_known = group_extra_known(snapshot, EXTRA_FREED, opts->by) &&
			       (!old || group_extra_known(old, EXTRA_FREED, opts->by));
	out->temporary_by_walk = snapshot_frees_by_walk(snapshot);
	/* two rules do not compare */
	if (old && out->temporary_by_walk != snapshot_frees_by_walk(old))
		out->temporary_known = 0;
	if (opts->temporary_others && (!out->temporary_known || out->temporary_by_walk))
		return error_set(-EINVAL, "only exact mode sees what a thread allocates before it "
					  "frees a block (-m exact)");
	if (opts->sort == SORT_ALLOCATED && !out->allocated_known)
		return error_set(-EINVAL, "not all allocations were counted, so lines cannot be "
					  "sorted by them");
	if (opts->sort == SORT_TEMPORARY && !out->temporary_known)
		return error_set(-EINVAL,
				 "it is not known which blocks are temporary: only exact mode sees "
				 "that (-m exact), and census mode which did not live to a heap "
				 "walk");
	return 0;
}

static int group(const struct snapshot *snapshot, const struct snapshot *old,
		 const struct statistics_opts *opts, struct statistics *out)
{
	struct side sides[2] = {{.snapshot = snapshot}, {.snapshot = old, .old = 1}};
	struct statistics result = {0};
	struct grouping grouping = {.opts = opts, .out = &result, .sides = sides};
	int err = 0;

	result.sampled = snapshot_is_estimated(&snapshot->meta) ||
			 (old && snapshot_is_estimated(&old->meta));
	grouping.estimates_each = (old ? 2 : 1) * (opts->cumulative ? 2 : 1);
	if (opts->cumulative && opts->by >= GROUP_TRACEBACK)
		return error_set(-EINVAL, "cumulative statistics cannot be grouped by %s",
				 opts->by == GROUP_TRACEBACK ? "traceback"
							     : "process, command or container");
	err = extra_judge(snapshot, old, opts, &result);
	if (err)
		return err;
	/*
	 * Seeded, because the author of the file controls file names and lines and must not be able
	 * to cause collisions.
	 */
	if (getrandom(&grouping.groups.seed, sizeof(grouping.groups.seed), GRND_NONBLOCK) < 0)
		grouping.groups.seed = (uintptr_t)&grouping;
	if (old)
		err = strings_translate(&sides[1], snapshot);
	if (!err)
		err = side_group(&grouping, &sides[0]);
	if (!err && old)
		err = side_group(&grouping, &sides[1]);
	if (!err)
		err = estimates_set(&grouping)
			      ?: group_processes_count(&grouping)
			      ?: group_ages_set(&grouping);
	if (!err)
		group_dead_drop(&grouping);
	id_map_free(&grouping.groups);
	free(grouping.next);
	free(grouping.last_rows);
	free(grouping.estimates);
	if (!err && result.count)
		qsort_r(result.entries, result.count, sizeof(*result.entries), entry_compare,
			&grouping);
	free(sides[1].strings);
	for (size_t i = 0; i < 2; i++)
		app_run_end(&sides[i].app);
	if (err)
		statistics_free(&result);
	else
		*out = result;
	return err;
}

int statistics_compute(const struct snapshot *snapshot, const struct statistics_opts *opts,
		       struct statistics *out)
{
	return group(snapshot, NULL, opts, out);
}

int statistics_compare(const struct snapshot *snapshot, const struct snapshot *old,
		       const struct statistics_opts *opts, struct statistics *out)
{
	return group(snapshot, old, opts, out);
}

void statistics_free(struct statistics *statistics)
{
	free(statistics->entries);
	*statistics = (struct statistics){0};
}
