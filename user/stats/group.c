/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot._group_by(), statistics() and compare_to() of Lib/tracemalloc.py. Tracebacks are equal there when their
 * (file name, line) pairs are: function names and total_nframe do not count. In cumulative mode every frame of a
 * traceback adds to its group, a recursive one as often as it occurs. Ties are broken by comparing tracebacks
 * oldest frame first, file names by code points (which is the byte order of UTF-8), all descending.
 *
 * Traces are summed up by traceback first, so that what a traceback says is looked at once however many blocks it has.
 * Two snapshots have file names in common: an old one's ids are translated into the new one's, and those that only the
 * old one has get numbers behind.
 *
 * Of a snapshot that holds a sample, estimates are summed up in place of the traces' figures, and rounded at the very end.
 */
#include "stats/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "stats/estimate.h"
#include "trace/id_map.h"

struct sums {
	uint64_t size, count;
};

/* One of the snapshots that are grouped. */
struct side {
	const struct snapshot *snapshot;
	uint32_t *files; /* string id -> the same in both; NULL: as it is */
	int old;
};

struct entry_estimates {
	struct estimate sides[2];
};

struct grouping {
	const struct statistics_opts *opts;
	struct id_map groups; /* (file name, line) or hash of a traceback -> index in entries */
	uint32_t *next;       /* GROUP_TRACEBACK: the next entry of the same hash, or ID_MAP_NONE */
	size_t next_room;
	struct statistics *out;
	size_t room;
	const struct side *sides;          /* the new snapshot, the old one */
	struct sums *rows;                 /* of the side at hand, by traceback */
	struct estimate *row_estimates;    /* the same of a side that is a sample */
	struct entry_estimates *estimates; /* of entries, if either side is a sample */
	size_t estimates_room;
	struct entry_estimates total;
};

static int sum_add(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum) || *sum > INT64_MAX)
		return error_set(-EOVERFLOW, "the sums are greater than 2^63");
	return 0;
}

static uint32_t file_id(const struct side *side, uint32_t filename)
{
	return side->files ? side->files[filename] : filename;
}

static const struct side *entry_side(const struct grouping *grouping, const struct statistic *entry)
{
	return &grouping->sides[entry->snapshot != grouping->sides[0].snapshot];
}

static int entry_add(struct grouping *grouping, const struct statistic *entry, uint32_t *index)
{
	struct statistics *out = grouping->out;
	int err = array_reserve(&out->entries, &grouping->room, out->count, 1, sizeof(*out->entries));

	if (!err && grouping->opts->by == GROUP_TRACEBACK)
		err = array_reserve(&grouping->next, &grouping->next_room, out->count, 1,
				    sizeof(*grouping->next));
	if (!err && out->sampled)
		err = array_reserve(&grouping->estimates, &grouping->estimates_room, out->count, 1,
				    sizeof(*grouping->estimates));
	if (err)
		return err;
	if (out->sampled)
		grouping->estimates[out->count] = (struct entry_estimates){0};
	*index = (uint32_t)out->count;
	out->entries[out->count++] = *entry;
	return 0;
}

/* The entry of a frame, by file name or by line. */
static int frame_entry(struct grouping *grouping, const struct side *side, const struct snapshot_frame *frame,
		       uint32_t *index)
{
	struct statistic entry = {.snapshot = side->snapshot, .frame = {.filename = frame->filename}};

	if (grouping->opts->by == GROUP_LINENO)
		entry.frame.line = frame->line;
	uint64_t key = (uint64_t)file_id(side, frame->filename) << 32 | entry.frame.line;
	*index = id_map_find(&grouping->groups, key);
	if (*index != ID_MAP_NONE)
		return 0;
	int err = entry_add(grouping, &entry, index);
	return err ? err : id_map_put(&grouping->groups, key, *index);
}

static int frame_compare(const struct side *a, const struct snapshot_frame *x, const struct side *b,
			 const struct snapshot_frame *y)
{
	if (file_id(a, x->filename) != file_id(b, y->filename))
		return strcmp(strings_get(a->snapshot->strings, x->filename),
			      strings_get(b->snapshot->strings, y->filename));
	return x->line < y->line ? -1 : x->line > y->line;
}

const struct snapshot_frame *statistic_frames(const struct statistic *statistic, enum group_by by,
					      uint32_t *nframe)
{
	const struct snapshot_traceback *traceback;

	*nframe = 1;
	if (by != GROUP_TRACEBACK)
		return &statistic->frame;
	traceback = &statistic->snapshot->tracebacks[statistic->traceback];
	*nframe = traceback->nframe;
	return statistic->snapshot->frames + traceback->first;
}

/* As Python compares Traceback._frames: oldest frame first, then the shorter one first. */
static int entry_traceback_compare(const struct grouping *grouping, const struct statistic *x,
				   const struct statistic *y)
{
	const struct side *a = entry_side(grouping, x), *b = entry_side(grouping, y);
	uint32_t m, n;
	const struct snapshot_frame *xs = statistic_frames(x, grouping->opts->by, &m);
	const struct snapshot_frame *ys = statistic_frames(y, grouping->opts->by, &n);

	for (uint32_t i = 1; i <= m && i <= n; i++) {
		int order = frame_compare(a, &xs[m - i], b, &ys[n - i]);

		if (order)
			return order;
	}
	return m < n ? -1 : m > n;
}

static uint64_t traceback_hash(const struct side *side, uint32_t traceback, uint64_t seed)
{
	const struct snapshot_traceback *x = &side->snapshot->tracebacks[traceback];
	const struct snapshot_frame *frames = side->snapshot->frames + x->first;
	uint64_t hash = seed ^ x->nframe;

	for (uint32_t i = 0; i < x->nframe; i++)
		hash = hash_u64(hash * 31 +
				((uint64_t)file_id(side, frames[i].filename) << 32 | frames[i].line));
	return hash;
}

static int traceback_entry(struct grouping *grouping, const struct side *side, uint32_t traceback,
			   uint32_t *index)
{
	struct statistic entry = {.snapshot = side->snapshot, .traceback = traceback};
	uint64_t key = traceback_hash(side, traceback, grouping->groups.seed);
	uint32_t head = id_map_find(&grouping->groups, key);

	for (*index = head; *index != ID_MAP_NONE; *index = grouping->next[*index])
		if (!entry_traceback_compare(grouping, &grouping->out->entries[*index], &entry))
			return 0;
	int err = entry_add(grouping, &entry, index);
	if (err)
		return err;
	grouping->next[*index] = head;
	return id_map_put(&grouping->groups, key, *index);
}

static int entry_count(struct grouping *grouping, const struct side *side, uint32_t index, uint32_t traceback)
{
	struct statistic *entry = &grouping->out->entries[index];
	const struct sums *row = &grouping->rows[traceback];

	if (grouping->row_estimates) {
		estimate_join(&grouping->estimates[index].sides[side->old],
			      &grouping->row_estimates[traceback]);
		return 0;
	}
	int err = sum_add(side->old ? &entry->old_size : &entry->size, row->size);

	return err ? err : sum_add(side->old ? &entry->old_count : &entry->count, row->count);
}

static int row_count(struct grouping *grouping, const struct side *side, uint32_t index)
{
	const struct snapshot_traceback *traceback = &side->snapshot->tracebacks[index];
	uint32_t nframe = grouping->opts->cumulative ? traceback->nframe : 1, entry;
	int err = 0;

	if (grouping->opts->by == GROUP_TRACEBACK) {
		err = traceback_entry(grouping, side, index, &entry);
		return err ? err : entry_count(grouping, side, entry, index);
	}
	for (uint32_t i = 0; !err && i < nframe; i++) {
		err = frame_entry(grouping, side, &side->snapshot->frames[traceback->first + i], &entry);
		if (!err)
			err = entry_count(grouping, side, entry, index);
	}
	return err;
}

/* Sums the traces up by traceback, into grouping->rows and the totals. */
static int rows_sum(struct grouping *grouping, const struct side *side)
{
	const struct snapshot *snapshot = side->snapshot;
	uint64_t *size = side->old ? &grouping->out->old_total_size : &grouping->out->total_size;
	uint64_t *count = side->old ? &grouping->out->old_total_count : &grouping->out->total_count;
	struct filter_run run;
	int err = filter_run_begin(&run, grouping->opts->filters, snapshot);

	for (size_t i = 0; !err && i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		struct sums *row = &grouping->rows[trace->traceback];
		int passes = filter_run_passes(&run, trace);

		if (passes <= 0) {
			err = passes;
			continue;
		}
		if (grouping->row_estimates) {
			row->count = 1; /* it is not 0: that is all that is asked for */
			estimate_add(&grouping->row_estimates[trace->traceback], snapshot->meta.sample_bytes,
				     trace->bytes, trace->count);
			continue;
		}
		/* A row is part of the totals: what they hold without an overflow, it does. */
		row->size += trace->bytes * trace->count;
		row->count += trace->count;
		err = sum_add(size, trace->bytes * trace->count);
		if (!err)
			err = sum_add(count, trace->count);
	}
	filter_run_end(&run);
	for (size_t i = 0; grouping->row_estimates && i < snapshot->traceback_count; i++)
		estimate_join(&grouping->total.sides[side->old], &grouping->row_estimates[i]);
	return err;
}

static int side_group(struct grouping *grouping, const struct side *side)
{
	size_t count = side->snapshot->traceback_count;
	int err = 0;

	grouping->rows = calloc(count ? count : 1, sizeof(*grouping->rows));
	if (grouping->rows && side->snapshot->meta.sample_bytes)
		grouping->row_estimates = calloc(count ? count : 1, sizeof(*grouping->row_estimates));
	if (!grouping->rows || (side->snapshot->meta.sample_bytes && !grouping->row_estimates))
		err = -ENOMEM;
	if (!err)
		err = rows_sum(grouping, side);
	for (uint32_t i = 0; !err && i < count; i++)
		if (grouping->rows[i].count)
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

	error->size = estimate_error(estimate->size_variance);
	error->count = estimate_error(estimate->count_variance);
	return err ? err : estimate_round(estimate->count, count);
}

/* The sides that are samples get their figures. */
static int estimates_set(struct grouping *grouping)
{
	struct statistics *out = grouping->out;
	int err = 0;

	for (int old = 0; !err && old < 2; old++) {
		const struct snapshot *snapshot = grouping->sides[old].snapshot;

		if (!snapshot || !snapshot->meta.sample_bytes)
			continue;
		for (size_t i = 0; !err && i < out->count; i++) {
			struct statistic *entry = &out->entries[i];

			err = estimate_set(&grouping->estimates[i].sides[old],
					   old ? &entry->old_size : &entry->size,
					   old ? &entry->old_count : &entry->count,
					   old ? &entry->old_error : &entry->error);
		}
		if (!err)
			err = estimate_set(&grouping->total.sides[old],
					   old ? &out->old_total_size : &out->total_size,
					   old ? &out->old_total_count : &out->total_count,
					   old ? &out->old_total_error : &out->total_error);
	}
	return err;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a < b ? b - a : a - b;
}

/* Descending. Without an old snapshot the differences are all the same as the sizes and counts themselves. */
static int entry_compare(const void *a, const void *b, void *context)
{
	const struct statistic *x = a, *y = b;
	const uint64_t keys[][2] = {
		{distance(x->size, x->old_size), distance(y->size, y->old_size)},
		{x->size, y->size},
		{distance(x->count, x->old_count), distance(y->count, y->old_count)},
		{x->count, y->count},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? 1 : -1;
	return entry_traceback_compare(context, y, x);
}

/* Every string's id, as the new snapshot knows it or beyond all that it has. */
static int files_translate(struct side *old, const struct snapshot *snapshot)
{
	uint32_t count = strings_count(old->snapshot->strings), beyond = strings_count(snapshot->strings);

	if (count > UINT32_MAX - beyond)
		return -EOVERFLOW;
	old->files = calloc(count, sizeof(*old->files));
	if (!old->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const char *text = strings_get(old->snapshot->strings, i);

		if (!strings_find(snapshot->strings, text, &old->files[i]))
			old->files[i] = beyond + i;
	}
	return 0;
}

static int group(const struct snapshot *snapshot, const struct snapshot *old,
		 const struct statistics_opts *opts, struct statistics *out)
{
	struct side sides[2] = {{.snapshot = snapshot}, {.snapshot = old, .old = 1}};
	struct statistics result = {0};
	struct grouping grouping = {.opts = opts, .out = &result, .sides = sides};
	int err = 0;

	result.sampled = snapshot->meta.sample_bytes || (old && old->meta.sample_bytes);
	if (opts->cumulative && opts->by == GROUP_TRACEBACK)
		return error_set(-EINVAL, "cumulative statistics cannot be grouped by traceback");
	/* Lines and names are the file's: whoever wrote it must not know what collides. */
	if (getrandom(&grouping.groups.seed, sizeof(grouping.groups.seed), GRND_NONBLOCK) < 0)
		grouping.groups.seed = (uintptr_t)&grouping;
	if (old)
		err = files_translate(&sides[1], snapshot);
	if (!err)
		err = side_group(&grouping, &sides[0]);
	if (!err && old)
		err = side_group(&grouping, &sides[1]);
	if (!err)
		err = estimates_set(&grouping);
	id_map_free(&grouping.groups);
	free(grouping.next);
	free(grouping.estimates);
	if (!err && result.count)
		qsort_r(result.entries, result.count, sizeof(*result.entries), entry_compare, &grouping);
	free(sides[1].files);
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
