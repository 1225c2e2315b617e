/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/perfmap_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/sorted.h"
#include "util/strings.h"

/* --- entries ---------------------------------------------------------------------------------- */

/*
 * The entries of a perf map: a sorted list without overlaps, in chunks of up to ENTRIES_CHUNK
 * entries in address order, and an array of the chunks. A look-up takes two binary searches. An
 * insertion moves the entries of at most one chunk and sometimes splits it. No chunk is ever empty.
 * Pure. Zero-initialise; account may be set.
 */

#define ENTRIES_CHUNK 256u

struct entries_chunk {
	uint32_t count;
	struct perfmap_entry entries[ENTRIES_CHUNK];
};

struct entries {
	struct entries_chunk **chunks;
	uint64_t *ends; /* of the chunks' last entries, so that a look-up reads only one chunk */
	size_t chunk_count, chunk_capacity, ends_capacity;
	size_t count;            /* entries in all chunks */
	struct account *account; /* borrowed; NULL: none */
};

/* chunk == chunk_count: the end of the list. */
struct entry_position {
	size_t chunk;
	uint32_t entry;
};

/* The cursor of entries_next(): chunk and entry. */
#define CURSOR_BITS 9
_Static_assert(ENTRIES_CHUNK < 1u << CURSOR_BITS,
	       "an entry's number and one beyond the last fit the cursor");

static void chunk_free(struct entries *entries, struct entries_chunk *chunk)
{
	free(chunk);
	account_uncharge(entries->account, sizeof(*chunk));
}

/* Removes all entries. */
static void entries_free(struct entries *entries)
{
	for (size_t i = 0; i < entries->chunk_count; i++)
		chunk_free(entries, entries->chunks[i]);
	array_release(entries->account, &entries->chunks, &entries->chunk_capacity,
		      sizeof(struct entries_chunk *));
	array_release(entries->account, &entries->ends, &entries->ends_capacity,
		      sizeof(*entries->ends));
	entries->chunk_count = 0;
	entries->count = 0;
}

/* The entry at a position; NULL at the end. Borrowed until the list changes. */
static struct perfmap_entry *entries_at(const struct entries *entries,
					struct entry_position position)
{
	return position.chunk < entries->chunk_count
		       ? &entries->chunks[position.chunk]->entries[position.entry]
		       : NULL;
}

/* The position of the first entry that ends above address. */
static struct entry_position entries_find(const struct entries *entries, uint64_t address)
{
	struct entry_position position = {
		.chunk = keys_above(entries->ends, entries->chunk_count, address)};

	if (position.chunk == entries->chunk_count)
		return position;
	const struct entries_chunk *chunk = entries->chunks[position.chunk];
	/* The last one ends above the address. */
	position.entry = SORTED_ABOVE(chunk->entries, chunk->count - 1u, end, address);
	return position;
}

/* Updates ends after a chunk's last entry may have changed. */
static void chunk_touch(struct entries *entries, size_t at)
{
	entries->ends[at] = entries->chunks[at]->entries[entries->chunks[at]->count - 1].end;
}

static int chunk_insert(struct entries *entries, size_t at)
{
	struct entries_chunk *chunk;
	int err = array_reserve_in(entries->account, &entries->chunks, &entries->chunk_capacity,
				   entries->chunk_count, 1, sizeof(struct entries_chunk *));

	err = err
	      ?: array_reserve_in(entries->account, &entries->ends, &entries->ends_capacity,
				  entries->chunk_count, 1, sizeof(*entries->ends))
	      ?: account_charge(entries->account, sizeof(*chunk));
	if (err)
		return err;
	chunk = malloc(sizeof(*chunk));
	if (!chunk) {
		account_uncharge(entries->account, sizeof(*chunk));
		return -ENOMEM;
	}
	chunk->count = 0;
	memmove(entries->chunks + at + 1, entries->chunks + at,
		(entries->chunk_count - at) * sizeof(struct entries_chunk *));
	memmove(entries->ends + at + 1, entries->ends + at,
		(entries->chunk_count - at) * sizeof(*entries->ends));
	entries->chunks[at] = chunk;
	entries->chunk_count++;
	return 0;
}

/*
 * Makes sure that an entry can be inserted at *position. *position changes if its chunk is split or
 * a new chunk is added. At the very end a full chunk stays full: maps often grow upwards.
 */
static int position_reserve(struct entries *entries, struct entry_position *position)
{
	struct entries_chunk *chunk, *half;

	if (position->chunk == entries->chunk_count) {
		chunk = position->chunk ? entries->chunks[position->chunk - 1] : NULL;
		if (chunk && chunk->count < ENTRIES_CHUNK) {
			*position = (struct entry_position){position->chunk - 1, chunk->count};
			return 0;
		}
		position->entry = 0;
		return chunk_insert(entries, position->chunk);
	}
	chunk = entries->chunks[position->chunk];
	if (chunk->count < ENTRIES_CHUNK)
		return 0;
	int err = chunk_insert(entries, position->chunk + 1);
	if (err)
		return err;
	half = entries->chunks[position->chunk + 1];
	half->count = ENTRIES_CHUNK / 2;
	chunk->count = ENTRIES_CHUNK - half->count;
	memcpy(half->entries, chunk->entries + chunk->count, half->count * sizeof(*half->entries));
	chunk_touch(entries, position->chunk);
	chunk_touch(entries, position->chunk + 1);
	if (position->entry > chunk->count)
		*position = (struct entry_position){position->chunk + 1,
						    position->entry - chunk->count};
	return 0;
}

/* Copies *entry to before the entry at position, where the order allows it. 0, -ENOMEM, -EDQUOT. */
static int entries_insert(struct entries *entries, struct entry_position position,
			  const struct perfmap_entry *entry)
{
	int err = position_reserve(entries, &position);

	if (err)
		return err;
	struct entries_chunk *chunk = entries->chunks[position.chunk];
	memmove(chunk->entries + position.entry + 1, chunk->entries + position.entry,
		(chunk->count - position.entry) * sizeof(*chunk->entries));
	chunk->entries[position.entry] = *entry;
	chunk->count++;
	entries->count++;
	chunk_touch(entries, position.chunk);
	return 0;
}

static void chunk_remove(struct entries *entries, size_t at)
{
	chunk_free(entries, entries->chunks[at]);
	entries->chunk_count--;
	memmove(entries->chunks + at, entries->chunks + at + 1,
		(entries->chunk_count - at) * sizeof(struct entries_chunk *));
	memmove(entries->ends + at, entries->ends + at + 1,
		(entries->chunk_count - at) * sizeof(*entries->ends));
}

/* Removes the entries from position on that end at or before end. */
static void covered_remove(struct entries *entries, struct entry_position position, uint64_t end)
{
	while (position.chunk < entries->chunk_count) {
		struct entries_chunk *chunk = entries->chunks[position.chunk];
		uint32_t last = position.entry;

		while (last < chunk->count && chunk->entries[last].end <= end)
			last++;
		int more = last == chunk->count;
		memmove(chunk->entries + position.entry, chunk->entries + last,
			(chunk->count - last) * sizeof(*chunk->entries));
		chunk->count -= last - position.entry;
		entries->count -= last - position.entry;
		if (!chunk->count)
			chunk_remove(entries, position.chunk);
		else
			chunk_touch(entries, position.chunk++);
		if (!more)
			return;
		position.entry = 0;
	}
}

/*
 * Removes [start, end): entries in it are removed, entries across its bounds are cut, and one that
 * contains it becomes two. 0; -ENOMEM, -EDQUOT: nothing has changed.
 */
static int entries_clear_range(struct entries *entries, uint64_t start, uint64_t end)
{
	struct entry_position position = entries_find(entries, start);
	struct perfmap_entry *entry = entries_at(entries, position), tail;

	if (!entry || entry->start >= end)
		return 0;
	if (entry->start < start) {
		tail = *entry;
		if (tail.end > end) {
			tail.start = end;
			int err = entries_insert(
				entries,
				(struct entry_position){position.chunk, position.entry + 1}, &tail);
			/* The insertion may have split the chunk. */
			if (!err) {
				position = entries_find(entries, start);
				entries_at(entries, position)->end = start;
				chunk_touch(entries, position.chunk);
			}
			return err;
		}
		entry->end = start;
		chunk_touch(entries, position.chunk);
		position = entries_find(entries, start);
	}
	covered_remove(entries, position, end);
	entry = entries_at(entries, entries_find(entries, start));
	if (entry && entry->start < end)
		entry->start = end;
	return 0;
}

/* Removes the entries for which keep() returns 0; returns their number. */
static size_t entries_filter(struct entries *entries, bool (*keep)(struct perfmap_entry *, void *),
			     void *context)
{
	size_t before = entries->count, chunks = 0;

	for (size_t c = 0; c < entries->chunk_count; c++) {
		struct entries_chunk *chunk = entries->chunks[c];
		uint32_t kept = 0;

		for (uint32_t e = 0; e < chunk->count; e++)
			if (keep(&chunk->entries[e], context))
				chunk->entries[kept++] = chunk->entries[e];
		entries->count -= chunk->count - kept;
		chunk->count = kept;
		if (kept) {
			entries->chunks[chunks] = chunk;
			chunk_touch(entries, chunks++);
		} else {
			chunk_free(entries, chunk);
		}
	}
	entries->chunk_count = chunks;
	return before - entries->count;
}

/* In address order; *cursor starts at 0. NULL at the end. The list must not change meanwhile. */
static struct perfmap_entry *entries_next(const struct entries *entries, size_t *cursor)
{
	size_t chunk = *cursor >> CURSOR_BITS, entry = *cursor & ((1u << CURSOR_BITS) - 1);

	if (chunk < entries->chunk_count && entry == entries->chunks[chunk]->count) {
		chunk++;
		entry = 0;
	}
	if (chunk >= entries->chunk_count)
		return NULL;
	*cursor = chunk << CURSOR_BITS | (entry + 1);
	return &entries->chunks[chunk]->entries[entry];
}

/* bytes */
static size_t entries_memory(const struct entries *entries)
{
	return entries->chunk_capacity * sizeof(struct entries_chunk *) +
	       entries->ends_capacity * sizeof(*entries->ends) +
	       entries->chunk_count * sizeof(struct entries_chunk);
}

/* --- perfmap table ---------------------------------------------------------------------------- */

/* The names of removed entries are kept until there are this many and more than live ones. */
#define NAMES_SLACK 65536u

struct perfmap_table {
	struct entries entries;
	uint64_t version;
	struct strings *names;
};

int perfmap_table_new(struct perfmap_table **out)
{
	return perfmap_table_new_in(out, NULL);
}

int perfmap_table_new_in(struct perfmap_table **out, struct account *account)
{
	struct perfmap_table *table = calloc(1, sizeof(*table));
	int err = table ? account_charge(account, sizeof(*table)) : -ENOMEM;

	if (!err) {
		err = strings_new_in(&table->names, account);
		if (err)
			account_uncharge(account, sizeof(*table));
	}
	if (err) {
		free(table);
		return err;
	}
	table->entries.account = account;
	*out = table;
	return 0;
}

void perfmap_table_free(struct perfmap_table *table)
{
	if (!table)
		return;
	entries_free(&table->entries);
	strings_free(table->names);
	account_uncharge(table->entries.account, sizeof(*table));
	free(table);
}

/* Re-interns the names of live entries only. Without memory for that, all names stay. */
static void names_collect(struct perfmap_table *table)
{
	_cleanup_free_ uint32_t *ids = malloc((table->entries.count + 1) * sizeof(*ids));
	struct strings *names;
	struct perfmap_entry *entry;
	size_t count = 0, cursor = 0;

	if (!ids || strings_new_in(&names, table->entries.account))
		return;
	while ((entry = entries_next(&table->entries, &cursor))) {
		const char *name = strings_get(table->names, entry->name);

		if (strings_intern(names, name, strlen(name), &ids[count++])) {
			strings_free(names);
			return;
		}
	}
	cursor = 0;
	count = 0;
	while ((entry = entries_next(&table->entries, &cursor)))
		entry->name = ids[count++];
	strings_free(table->names);
	table->names = names;
}

void perfmap_table_clear(struct perfmap_table *table)
{
	if (table->entries.count)
		table->version++;
	entries_free(&table->entries);
	names_collect(table);
}

int perfmap_table_add(struct perfmap_table *table, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes, const struct perfmap_entry *entry)
{
	struct perfmap_entry new = {.start = start,
				    .end = start + size,
				    .time_ns = entry->time_ns,
				    .origin = entry->origin,
				    .called = entry->called,
				    .mapped = entry->mapped};

	if (!size || new.end < start)
		return -EINVAL;
	if (table->entries.count >= PERFMAP_ENTRIES_MAX)
		return -ENOSPC;
	if (strings_count(table->names) > 2 * table->entries.count + NAMES_SLACK)
		names_collect(table);
	if (strings_memory(table->names) >= PERFMAP_NAMES_MAX)
		return -ENOSPC;
	int err = strings_intern(table->names, name, name_bytes, &new.name);
	if (err)
		return err;
	struct entry_position position = entries_find(&table->entries, start);
	struct perfmap_entry *old = entries_at(&table->entries, position);
	if (old && old->start == start && old->end == new.end) {
		table->version += old->name != new.name;
		new.mapped |= old->mapped && old->name == new.name;
		*old = new;
		return 0;
	}
	table->version++;
	if (old && old->start < new.end) {
		err = entries_clear_range(&table->entries, start, new.end);
		position = entries_find(&table->entries, start);
	}
	return err ?: entries_insert(&table->entries, position, &new);
}

int perfmap_table_cut(struct perfmap_table *table, uint64_t start, uint64_t end)
{
	table->version++;
	return start < end ? entries_clear_range(&table->entries, start, end) : 0;
}

int perfmap_table_copy(struct perfmap_table *table, const struct perfmap_table *from)
{
	const struct perfmap_entry *entry;
	size_t cursor = 0;
	int err = 0;

	while (!err && (entry = perfmap_table_next(from, &cursor))) {
		const char *name = perfmap_table_name(from, entry);

		err = perfmap_table_add(table, entry->start, entry->end - entry->start, name,
					strlen(name), entry);
	}
	return err;
}

static size_t table_filter(struct perfmap_table *table,
			   bool (*keep)(struct perfmap_entry *, void *), void *context)
{
	size_t removed = entries_filter(&table->entries, keep, context);

	table->version += removed != 0;
	return removed;
}

static bool origin_differs(struct perfmap_entry *entry, void *context)
{
	return entry->origin != *(const uint32_t *)context;
}

size_t perfmap_table_remove(struct perfmap_table *table, uint32_t origin)
{
	return table_filter(table, origin_differs, &origin);
}

struct expiry {
	const struct perfmap_range *ranges;
	size_t count;
	/* the first range that ends above the last entry's start; entries come in order */
	size_t at;
	uint64_t time_ns;
	int late;
};

static bool is_mapped(struct perfmap_entry *entry, void *context)
{
	struct expiry *expiry = context;

	while (expiry->at < expiry->count && expiry->ranges[expiry->at].end <= entry->start)
		expiry->at++;
	if (entry->gone)
		return 0;
	if (expiry->at < expiry->count && expiry->ranges[expiry->at].start < entry->end)
		entry->mapped = 1;
	else if (entry->mapped && entry->time_ns < expiry->time_ns)
		return (entry->gone = expiry->late) != 0;
	return 1;
}

size_t perfmap_table_expire(struct perfmap_table *table, const struct perfmap_range *ranges,
			    size_t count, uint64_t time_ns, int late)
{
	struct expiry expiry = {.ranges = ranges, .count = count, .time_ns = time_ns, .late = late};

	return table_filter(table, is_mapped, &expiry);
}

const struct perfmap_entry *perfmap_table_after(const struct perfmap_table *table, uint64_t address)
{
	return entries_at(&table->entries, entries_find(&table->entries, address));
}

const struct perfmap_entry *perfmap_table_find(const struct perfmap_table *table, uint64_t address)
{
	const struct perfmap_entry *entry = perfmap_table_after(table, address);

	return entry && entry->start <= address ? entry : NULL;
}

const struct perfmap_entry *perfmap_table_next(const struct perfmap_table *table, size_t *cursor)
{
	return entries_next(&table->entries, cursor);
}

const char *perfmap_table_name(const struct perfmap_table *table, const struct perfmap_entry *entry)
{
	return strings_get(table->names, entry->name);
}

size_t perfmap_table_count(const struct perfmap_table *table)
{
	return table->entries.count;
}

size_t perfmap_table_memory(const struct perfmap_table *table)
{
	return sizeof(*table) + entries_memory(&table->entries) + strings_memory(table->names);
}

uint64_t perfmap_table_version(const struct perfmap_table *table)
{
	return table->version;
}
