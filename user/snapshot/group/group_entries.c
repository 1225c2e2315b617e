/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/group_entries.h"

#include <string.h>

#include "snapshot/group/group.h"
#include "util/array.h"
#include "util/hash.h"
#include "util/sorted.h"

/* --- owner ------------------------------------------------------------------------------------ */

/*
 * Groups blocks by process, command or container instead of by line. A process is identified by PID
 * and command: the same PID with another command, after an exec or PID reuse, is another process.
 */

/* The name of an owner, used besides the PID. */
static const char *owner_name(const struct snapshot_meta *process, enum group_by by)
{
	return by == GROUP_CONTAINER ? process->container : process->name;
}

/* by is one of the owner groupings. Equal owners have equal hashes. */
static uint64_t owner_hash(const struct snapshot_meta *process, enum group_by by, uint64_t seed)
{
	uint64_t hash = hash_u64(seed ^ (by == GROUP_PROCESS ? process->pid : 0));

	for (const char *at = owner_name(process, by); *at; at++)
		hash = hash_u64(hash * 31 + (unsigned char)*at);
	return hash;
}

static int owner_compare(const struct snapshot_meta *a, const struct snapshot_meta *b,
			 enum group_by by)
{
	return (by == GROUP_PROCESS ? CMP(a->pid, b->pid) : 0)
		       ?: strcmp(owner_name(a, by), owner_name(b, by));
}

/* --- group entries ---------------------------------------------------------------------------- */

/* The id of a file or function name, common to both sides. */
static uint32_t string_id(const struct side *side, uint32_t string)
{
	return side->strings && string != STATISTIC_NO_FUNCTION ? side->strings[string] : string;
}

static const struct side *entry_side(const struct grouping *grouping, const struct statistic *entry)
{
	return &grouping->sides[entry->snapshot != grouping->sides[0].snapshot];
}

static int entry_add(struct grouping *grouping, const struct statistic *entry, uint32_t *index)
{
	struct statistics *out = grouping->out;
	size_t each = grouping->estimates_each;
	int err = array_reserve(&out->entries, &grouping->capacity, out->count, 1,
				sizeof(*out->entries))
			  ?: array_reserve(&grouping->next, &grouping->next_capacity, out->count, 1,
					   sizeof(*grouping->next));

	if (!err && out->sampled)
		err = array_reserve(&grouping->estimates, &grouping->estimates_capacity,
				    out->count * each, each, sizeof(*grouping->estimates));
	if (!err && grouping->opts->cumulative)
		err = array_reserve(&grouping->last_rows, &grouping->last_rows_capacity, out->count,
				    1, sizeof(*grouping->last_rows));
	if (err)
		return err;
	if (grouping->opts->cumulative)
		grouping->last_rows[out->count] = 0;
	if (out->sampled)
		memset(&grouping->estimates[out->count * each], 0,
		       each * sizeof(*grouping->estimates));
	*index = (uint32_t)out->count;
	out->entries[out->count++] = *entry;
	return 0;
}

static int string_compare(const struct side *a, uint32_t x, const struct side *b, uint32_t y)
{
	return string_id(a, x) == string_id(b, y) ? 0
						  : strcmp(strings_get(a->snapshot->strings, x),
							   strings_get(b->snapshot->strings, y));
}

static int frame_compare(const struct side *a, const struct snapshot_frame *x, const struct side *b,
			 const struct snapshot_frame *y)
{
	int order = string_compare(a, x->filename, b, y->filename);

	if (order)
		return order;
	if (x->line || y->line)
		return CMP(x->line, y->line);
	return string_compare(a, x->function, b, y->function);
}

/* Equal frames have equal keys. */
static uint64_t frame_key(const struct side *side, const struct snapshot_frame *frame)
{
	uint64_t key = (uint64_t)string_id(side, frame->filename) << 32 | frame->line;

	return frame->line ? key : hash_u64(key | string_id(side, frame->function));
}

const struct snapshot_frame *statistic_frames(const struct statistic *statistic, enum group_by by,
					      uint32_t *nframe)
{
	const struct snapshot_traceback *traceback;

	*nframe = 1;
	if (by != GROUP_TRACEBACK)
		return &statistic->frame;
	traceback = &statistic->snapshot->tracebacks[statistic->traceback];
	*nframe = traceback->nframe - statistic->skipped;
	return statistic->snapshot->frames + traceback->first + statistic->skipped;
}

/* As Python compares Traceback._frames: oldest frame first; a prefix sorts first. */
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
	return CMP(m, n);
}

int group_entry_compare(const struct grouping *grouping, const struct statistic *x,
			const struct statistic *y)
{
	return group_is_owner(grouping->opts->by)
		       ? owner_compare(x->process, y->process, grouping->opts->by)
		       : entry_traceback_compare(grouping, x, y);
}

static uint64_t traceback_hash(const struct side *side, const struct statistic *entry,
			       uint64_t seed)
{
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, GROUP_TRACEBACK, &nframe);
	uint64_t hash = seed ^ nframe;

	for (uint32_t i = 0; i < nframe; i++)
		hash = hash_u64(hash * 31 + frame_key(side, &frames[i]));
	return hash;
}

/* Finds or adds an entry. key: a hash of its name, or the name itself. */
static int named_entry(struct grouping *grouping, const struct statistic *entry, uint64_t key,
		       uint32_t *index)
{
	uint32_t head = id_map_find(&grouping->groups, key);

	for (*index = head; *index != ID_MAP_NONE; *index = grouping->next[*index])
		if (!group_entry_compare(grouping, &grouping->out->entries[*index], entry))
			return 0;
	int err = entry_add(grouping, entry, index);
	if (err)
		return err;
	grouping->next[*index] = head;
	return id_map_put(&grouping->groups, key, *index);
}

/* The entry of a traceback without its first skipped frames. */
static int traceback_entry(struct grouping *grouping, const struct side *side, uint32_t traceback,
			   uint32_t skipped, int outside, uint32_t *index)
{
	const struct statistic entry = {.snapshot = side->snapshot,
					.traceback = traceback,
					.skipped = skipped,
					.outside = outside};

	return named_entry(grouping, &entry, traceback_hash(side, &entry, grouping->groups.seed),
			   index);
}

/* The entry of a frame, grouped by file name, line or function. */
static int frame_entry(struct grouping *grouping, const struct side *side,
		       const struct snapshot_frame *frame, int outside, uint32_t *index)
{
	enum group_by by = grouping->opts->by;
	struct statistic entry = {.snapshot = side->snapshot,
				  .outside = outside,
				  .frame = {.filename = frame->filename,
					    .function = STATISTIC_NO_FUNCTION,
					    .native = frame->native}};

	if (by == GROUP_LINENO)
		entry.frame.line = frame->line;
	if (by != GROUP_FILENAME && !entry.frame.line)
		entry.frame.function = frame->function;
	return named_entry(grouping, &entry, frame_key(side, &entry.frame), index);
}

static int owner_entry(struct grouping *grouping, const struct side *side, uint32_t process,
		       uint32_t *index)
{
	const struct statistic entry = {.snapshot = side->snapshot,
					.process = snapshot_process(side->snapshot, process)};
	enum group_by by = grouping->opts->by;

	return named_entry(grouping, &entry, owner_hash(entry.process, by, grouping->groups.seed),
			   index);
}

size_t group_row_total(const struct grouping *grouping, const struct side *side)
{
	return group_is_owner(grouping->opts->by) ? snapshot_process_count(side->snapshot)
						  : side->snapshot->traceback_count;
}

/* Finds the first frame of a traceback that counts. */
static int row_begin(struct side *side, uint32_t row, struct row_cursor *cursor)
{
	cursor->begun = 1;
	if (!side->app.ranks)
		return 0;
	cursor->rank = app_run_find(&side->app, &side->snapshot->tracebacks[row], &cursor->next);
	cursor->outside = cursor->rank == APP_NOT;
	return cursor->rank < 0 ? cursor->rank : 0;
}

/* group_row_next() for groupings by single frames. */
static int row_frame_next(struct grouping *grouping, struct side *side, uint32_t row,
			  struct row_cursor *cursor, uint32_t *index)
{
	const struct snapshot_traceback *traceback = &side->snapshot->tracebacks[row];

	while (cursor->next < traceback->nframe) {
		const struct snapshot_frame *frame =
			&side->snapshot->frames[traceback->first + cursor->next++];
		int rank = cursor->rank ? app_run_rank(&side->app, frame) : 0;

		if (rank < 0)
			return rank;
		if (rank != cursor->rank && !cursor->outside)
			continue;
		if (!grouping->opts->cumulative || cursor->outside)
			cursor->next = traceback->nframe; /* only this frame */
		int err = frame_entry(grouping, side, frame, cursor->outside, index);
		return err ?: 1;
	}
	return 0;
}

int group_row_next(struct grouping *grouping, struct side *side, uint32_t row,
		   struct row_cursor *cursor, uint32_t *index)
{
	int first = !cursor->begun, owner = group_is_owner(grouping->opts->by), err = 0;

	if (owner)
		cursor->begun = 1;
	else if (first)
		err = row_begin(side, row, cursor);
	if (err)
		return err;
	if (!owner && grouping->opts->by != GROUP_TRACEBACK)
		return row_frame_next(grouping, side, row, cursor, index);
	if (!first)
		return 0;
	err = owner ? owner_entry(grouping, side, row, index)
		    : traceback_entry(grouping, side, row, cursor->next, cursor->outside, index);
	return err ?: 1;
}
