/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot._group_by() and statistics() of Lib/tracemalloc.py. Tracebacks are equal there when their (file
 * name, line) pairs are: function names and total_nframe do not count. In cumulative mode every frame of a
 * traceback adds to its group, a recursive one as often as it occurs. Ties are broken by comparing tracebacks
 * oldest frame first, file names by code points (which is the byte order of UTF-8), all descending.
 */
#include "stats/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "trace/id_map.h"

struct grouping {
	const struct snapshot *snapshot;
	enum group_by by;
	struct id_map groups; /* (file name, line) or hash of a traceback -> index in entries */
	uint32_t *next;       /* GROUP_TRACEBACK: the next entry of the same hash */
	struct statistics *out;
	size_t room;
};

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static int entry_add(struct grouping *grouping, const struct statistic *entry, uint32_t *index)
{
	struct statistics *out = grouping->out;

	if (out->count >= ID_MAP_NONE - 1)
		return -EOVERFLOW;
	if (out->count == grouping->room) {
		size_t room = grouping->room * 2 + 64;
		void *entries = reallocarray(out->entries, room, sizeof(*out->entries));

		if (!entries)
			return -ENOMEM;
		out->entries = entries;
		if (grouping->by == GROUP_TRACEBACK) {
			void *next = reallocarray(grouping->next, room, sizeof(*grouping->next));

			if (!next)
				return -ENOMEM;
			grouping->next = next;
		}
		grouping->room = room;
	}
	*index = (uint32_t)out->count;
	out->entries[out->count++] = *entry;
	return 0;
}

/* The entry of a frame, by file name or by line. */
static int frame_entry(struct grouping *grouping, const struct snapshot_frame *frame, uint32_t *index)
{
	struct statistic entry = {.frame = {.filename = frame->filename, .function = frame->function}};

	if (grouping->by == GROUP_LINENO)
		entry.frame.line = frame->line;
	uint64_t key = (uint64_t)entry.frame.filename << 32 | entry.frame.line;
	*index = id_map_find(&grouping->groups, key);
	if (*index != ID_MAP_NONE)
		return 0;
	int err = entry_add(grouping, &entry, index);
	return err ? err : id_map_put(&grouping->groups, key, *index);
}

static int frame_compare(const struct snapshot *snapshot, const struct snapshot_frame *a,
			 const struct snapshot_frame *b)
{
	if (a->filename != b->filename)
		return strcmp(strings_get(snapshot->strings, a->filename),
			      strings_get(snapshot->strings, b->filename));
	return a->line < b->line ? -1 : a->line > b->line;
}

/* As Python compares Traceback._frames: oldest frame first, then the shorter one first. */
static int traceback_compare(const struct snapshot *snapshot, uint32_t a, uint32_t b)
{
	const struct snapshot_traceback *x = &snapshot->tracebacks[a], *y = &snapshot->tracebacks[b];
	const struct snapshot_frame *xs = snapshot->frames + x->first, *ys = snapshot->frames + y->first;
	uint32_t common = x->nframe < y->nframe ? x->nframe : y->nframe;

	for (uint32_t i = 1; i <= common; i++) {
		int order = frame_compare(snapshot, &xs[x->nframe - i], &ys[y->nframe - i]);

		if (order)
			return order;
	}
	return x->nframe < y->nframe ? -1 : x->nframe > y->nframe;
}

static uint64_t traceback_hash(const struct snapshot *snapshot, uint32_t traceback)
{
	const struct snapshot_traceback *x = &snapshot->tracebacks[traceback];
	const struct snapshot_frame *frames = snapshot->frames + x->first;
	uint64_t hash = x->nframe;

	for (uint32_t i = 0; i < x->nframe; i++)
		hash = hash_u64(hash * 31 + ((uint64_t)frames[i].filename << 32 | frames[i].line));
	return hash;
}

static int traceback_entry(struct grouping *grouping, uint32_t traceback, uint32_t *index)
{
	uint64_t key = traceback_hash(grouping->snapshot, traceback);
	uint32_t head = id_map_find(&grouping->groups, key);

	for (*index = head; *index != ID_MAP_NONE; *index = grouping->next[*index]) {
		uint32_t known = grouping->out->entries[*index].traceback;

		if (known == traceback || !traceback_compare(grouping->snapshot, known, traceback))
			return 0;
	}
	struct statistic entry = {.traceback = traceback};
	int err = entry_add(grouping, &entry, index);
	if (err)
		return err;
	grouping->next[*index] = head;
	return id_map_put(&grouping->groups, key, *index);
}

static void entry_count(struct grouping *grouping, uint32_t index, uint64_t size, uint64_t count)
{
	struct statistic *entry = &grouping->out->entries[index];

	entry->size = add_saturating(entry->size, size);
	entry->count = add_saturating(entry->count, count);
}

static int trace_count(struct grouping *grouping, const struct snapshot_trace *trace, int cumulative)
{
	const struct snapshot *snapshot = grouping->snapshot;
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[trace->traceback];
	uint32_t nframe = cumulative ? traceback->nframe : 1;
	uint64_t size = trace->bytes * trace->count;
	uint32_t index;
	int err;

	grouping->out->total_size = add_saturating(grouping->out->total_size, size);
	grouping->out->total_count = add_saturating(grouping->out->total_count, trace->count);
	if (grouping->by == GROUP_TRACEBACK) {
		err = traceback_entry(grouping, trace->traceback, &index);
		if (!err)
			entry_count(grouping, index, size, trace->count);
		return err;
	}
	for (uint32_t i = 0; i < nframe; i++) {
		err = frame_entry(grouping, &snapshot->frames[traceback->first + i], &index);
		if (err)
			return err;
		entry_count(grouping, index, size, trace->count);
	}
	return 0;
}

/* Descending. */
static int entry_compare(const void *a, const void *b, void *context)
{
	const struct grouping *grouping = context;
	const struct statistic *x = a, *y = b;

	if (x->size != y->size)
		return x->size < y->size ? 1 : -1;
	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	if (grouping->by == GROUP_TRACEBACK)
		return traceback_compare(grouping->snapshot, y->traceback, x->traceback);
	return frame_compare(grouping->snapshot, &y->frame, &x->frame);
}

int statistics_compute(const struct snapshot *snapshot, enum group_by by, int cumulative,
		       struct statistics *out)
{
	struct statistics result = {0};
	struct grouping grouping = {.snapshot = snapshot, .by = by, .out = &result};
	int err = 0;

	if (cumulative && by == GROUP_TRACEBACK)
		return error_set(-EINVAL, "cumulative statistics cannot be grouped by traceback");
	if (cumulative && snapshot->meta.traceback_limit == 1)
		return error_set(-EINVAL, "cumulative statistics need a traceback limit greater than 1");
	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = trace_count(&grouping, &snapshot->traces[i], cumulative);
	id_map_free(&grouping.groups);
	free(grouping.next);
	if (err) {
		statistics_free(&result);
		return err;
	}
	if (result.count)
		qsort_r(result.entries, result.count, sizeof(*result.entries), entry_compare, &grouping);
	*out = result;
	return 0;
}

void statistics_free(struct statistics *statistics)
{
	free(statistics->entries);
	*statistics = (struct statistics){0};
}
