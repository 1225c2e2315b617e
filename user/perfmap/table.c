/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted list in pieces: chunks of up to CHUNK_ENTRIES entries in address order, and an array of
 * them. A look-up is two binary searches; an insertion moves at most one chunk's entries, wherever
 * it falls, and now and then splits it. No chunk is ever empty.
 */
#include "perfmap/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/array.h"
#include "base/strings.h"

#define CHUNK_ENTRIES 256u
/* Names of entries that are gone stay until there are this many, and more than live ones. */
#define NAMES_SLACK 65536u

/* perfmap_table_next()'s cursor: chunk and entry. */
#define CURSOR_BITS 9
_Static_assert(CHUNK_ENTRIES < 1u << CURSOR_BITS,
	       "an entry's number and one behind the last fit the cursor");

struct chunk {
	uint32_t count;
	struct perfmap_entry entries[CHUNK_ENTRIES];
};

struct perfmap_table {
	struct chunk **chunks;
	uint64_t *ends; /* of the chunks' last entries: a look-up touches one chunk alone */
	size_t chunk_count, chunk_room, ends_room;
	size_t count;
	uint64_t version;
	struct strings *names;
	struct account *account;
};

/* A place in the table; chunk == chunk_count stands for its end. */
struct place {
	size_t chunk;
	uint32_t entry;
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
	table->account = account;
	*out = table;
	return 0;
}

static void chunk_free(struct perfmap_table *table, struct chunk *chunk)
{
	free(chunk);
	account_uncharge(table->account, sizeof(*chunk));
}

static void chunks_free(struct perfmap_table *table)
{
	for (size_t i = 0; i < table->chunk_count; i++)
		chunk_free(table, table->chunks[i]);
	array_release(table->account, &table->chunks, &table->chunk_room, sizeof(struct chunk *));
	array_release(table->account, &table->ends, &table->ends_room, sizeof(*table->ends));
	table->chunk_count = 0;
	table->count = 0;
}

void perfmap_table_free(struct perfmap_table *table)
{
	if (!table)
		return;
	chunks_free(table);
	strings_free(table->names);
	account_uncharge(table->account, sizeof(*table));
	free(table);
}

static struct perfmap_entry *entry_at(const struct perfmap_table *table, struct place place)
{
	return place.chunk < table->chunk_count ? &table->chunks[place.chunk]->entries[place.entry]
						: NULL;
}

/* The first entry that ends behind address. */
static struct place place_find(const struct perfmap_table *table, uint64_t address)
{
	size_t low = 0, high = table->chunk_count;
	struct place place = {0};

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->ends[middle] > address)
			high = middle;
		else
			low = middle + 1;
	}
	place.chunk = low;
	if (low == table->chunk_count)
		return place;
	high = table->chunks[low]->count - 1;
	low = 0;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->chunks[place.chunk]->entries[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	place.entry = low;
	return place;
}

/* To be called when a chunk's last entry may have changed. */
static void chunk_touch(struct perfmap_table *table, size_t at)
{
	table->ends[at] = table->chunks[at]->entries[table->chunks[at]->count - 1].end;
}

static int chunk_insert(struct perfmap_table *table, size_t at)
{
	struct chunk *chunk;
	int err = array_reserve_in(table->account, &table->chunks, &table->chunk_room,
				   table->chunk_count, 1, sizeof(struct chunk *));

	if (!err)
		err = array_reserve_in(table->account, &table->ends, &table->ends_room,
				       table->chunk_count, 1, sizeof(*table->ends));
	if (!err)
		err = account_charge(table->account, sizeof(*chunk));
	if (err)
		return err;
	chunk = malloc(sizeof(*chunk));
	if (!chunk) {
		account_uncharge(table->account, sizeof(*chunk));
		return -ENOMEM;
	}
	chunk->count = 0;
	memmove(table->chunks + at + 1, table->chunks + at,
		(table->chunk_count - at) * sizeof(struct chunk *));
	memmove(table->ends + at + 1, table->ends + at,
		(table->chunk_count - at) * sizeof(*table->ends));
	table->chunks[at] = chunk;
	table->chunk_count++;
	return 0;
}

/*
 * Makes sure that an entry can be inserted at *place, which moves where its chunk is split or a new
 * one begun. At the very end a full chunk is left full: maps often grow upwards.
 */
static int place_reserve(struct perfmap_table *table, struct place *place)
{
	struct chunk *chunk, *half;
	int err;

	if (place->chunk == table->chunk_count) {
		chunk = place->chunk ? table->chunks[place->chunk - 1] : NULL;
		if (chunk && chunk->count < CHUNK_ENTRIES) {
			*place = (struct place){place->chunk - 1, chunk->count};
			return 0;
		}
		place->entry = 0;
		return chunk_insert(table, place->chunk);
	}
	chunk = table->chunks[place->chunk];
	if (chunk->count < CHUNK_ENTRIES)
		return 0;
	err = chunk_insert(table, place->chunk + 1);
	if (err)
		return err;
	half = table->chunks[place->chunk + 1];
	half->count = CHUNK_ENTRIES / 2;
	chunk->count = CHUNK_ENTRIES - half->count;
	memcpy(half->entries, chunk->entries + chunk->count, half->count * sizeof(*half->entries));
	chunk_touch(table, place->chunk);
	chunk_touch(table, place->chunk + 1);
	if (place->entry > chunk->count)
		*place = (struct place){place->chunk + 1, place->entry - chunk->count};
	return 0;
}

static int place_insert(struct perfmap_table *table, struct place place,
			const struct perfmap_entry *entry)
{
	struct chunk *chunk;
	int err = place_reserve(table, &place);

	if (err)
		return err;
	chunk = table->chunks[place.chunk];
	memmove(chunk->entries + place.entry + 1, chunk->entries + place.entry,
		(chunk->count - place.entry) * sizeof(*chunk->entries));
	chunk->entries[place.entry] = *entry;
	chunk->count++;
	table->count++;
	chunk_touch(table, place.chunk);
	return 0;
}

static void chunk_remove(struct perfmap_table *table, size_t at)
{
	chunk_free(table, table->chunks[at]);
	table->chunk_count--;
	memmove(table->chunks + at, table->chunks + at + 1,
		(table->chunk_count - at) * sizeof(struct chunk *));
	memmove(table->ends + at, table->ends + at + 1,
		(table->chunk_count - at) * sizeof(*table->ends));
}

/* Takes out the entries from place on that end at or before end. */
static void covered_remove(struct perfmap_table *table, struct place place, uint64_t end)
{
	while (place.chunk < table->chunk_count) {
		struct chunk *chunk = table->chunks[place.chunk];
		uint32_t last = place.entry;

		while (last < chunk->count && chunk->entries[last].end <= end)
			last++;
		int more = last == chunk->count;
		memmove(chunk->entries + place.entry, chunk->entries + last,
			(chunk->count - last) * sizeof(*chunk->entries));
		chunk->count -= last - place.entry;
		table->count -= last - place.entry;
		if (!chunk->count)
			chunk_remove(table, place.chunk);
		else
			chunk_touch(table, place.chunk++);
		if (!more)
			return;
		place.entry = 0;
	}
}

/* Cuts [start, end) out of what is there. 0, -ENOMEM and nothing has changed. */
static int range_clear(struct perfmap_table *table, uint64_t start, uint64_t end)
{
	struct place place = place_find(table, start);
	struct perfmap_entry *entry = entry_at(table, place), tail;

	if (!entry || entry->start >= end)
		return 0;
	if (entry->start < start) {
		tail = *entry;
		if (tail.end > end) {
			int err;

			tail.start = end;
			err = place_insert(table, (struct place){place.chunk, place.entry + 1},
					   &tail);
			/* The insertion may have split the chunk. */
			if (!err) {
				place = place_find(table, start);
				entry_at(table, place)->end = start;
				chunk_touch(table, place.chunk);
			}
			return err;
		}
		entry->end = start;
		chunk_touch(table, place.chunk);
		place = place_find(table, start);
	}
	covered_remove(table, place, end);
	entry = entry_at(table, place_find(table, start));
	if (entry && entry->start < end)
		entry->start = end;
	return 0;
}

/* Interns the names of live entries alone. Where there is no memory for that, all stay. */
static void names_collect(struct perfmap_table *table)
{
	struct strings *names;
	uint32_t *ids, id;
	size_t count = 0;

	ids = malloc((table->count + 1) * sizeof(*ids));
	if (!ids || strings_new_in(&names, table->account)) {
		free(ids);
		return;
	}
	for (size_t c = 0; c < table->chunk_count; c++)
		for (uint32_t e = 0; e < table->chunks[c]->count; e++) {
			const char *name =
				strings_get(table->names, table->chunks[c]->entries[e].name);

			if (strings_intern(names, name, strlen(name), &id))
				goto give_up;
			ids[count++] = id;
		}
	count = 0;
	for (size_t c = 0; c < table->chunk_count; c++)
		for (uint32_t e = 0; e < table->chunks[c]->count; e++)
			table->chunks[c]->entries[e].name = ids[count++];
	strings_free(table->names);
	table->names = names;
	free(ids);
	return;
give_up:
	strings_free(names);
	free(ids);
}

void perfmap_table_clear(struct perfmap_table *table)
{
	if (table->count)
		table->version++;
	chunks_free(table);
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
	struct perfmap_entry *old;
	struct place place;
	int err;

	if (!size || new.end < start)
		return -EINVAL;
	if (table->count >= PERFMAP_ENTRIES_MAX)
		return -ENOSPC;
	if (strings_count(table->names) > 2 * table->count + NAMES_SLACK)
		names_collect(table);
	if (strings_memory(table->names) >= PERFMAP_NAMES_MAX)
		return -ENOSPC;
	err = strings_intern(table->names, name, name_bytes, &new.name);
	if (err)
		return err;
	place = place_find(table, start);
	old = entry_at(table, place);
	if (old && old->start == start && old->end == new.end) {
		table->version += old->name != new.name;
		new.mapped |= old->mapped && old->name == new.name;
		*old = new;
		return 0;
	}
	table->version++;
	if (old && old->start < new.end) {
		err = range_clear(table, start, new.end);
		place = place_find(table, start);
	}
	return err ? err : place_insert(table, place, &new);
}

int perfmap_table_cut(struct perfmap_table *table, uint64_t start, uint64_t end)
{
	table->version++;
	return start < end ? range_clear(table, start, end) : 0;
}

int perfmap_table_copy(struct perfmap_table *table, const struct perfmap_table *from,
		       int only_with_origin)
{
	const struct perfmap_entry *entry;
	size_t cursor = 0;
	int err = 0;

	while (!err && (entry = perfmap_table_next(from, &cursor))) {
		const char *name = perfmap_table_name(from, entry);

		if (!only_with_origin || entry->origin)
			err = perfmap_table_add(table, entry->start, entry->end - entry->start,
						name, strlen(name), entry);
	}
	return err;
}

/* Keeps the entries that keep() wants; returns the number of the others. */
static size_t entries_filter(struct perfmap_table *table,
			     int (*keep)(struct perfmap_entry *, void *), void *context)
{
	size_t before = table->count, chunks = 0;

	for (size_t c = 0; c < table->chunk_count; c++) {
		struct chunk *chunk = table->chunks[c];
		uint32_t kept = 0;

		for (uint32_t e = 0; e < chunk->count; e++)
			if (keep(&chunk->entries[e], context))
				chunk->entries[kept++] = chunk->entries[e];
		table->count -= chunk->count - kept;
		chunk->count = kept;
		if (kept) {
			table->chunks[chunks] = chunk;
			chunk_touch(table, chunks++);
		} else {
			chunk_free(table, chunk);
		}
	}
	table->chunk_count = chunks;
	table->version += table->count != before;
	return before - table->count;
}

static int origin_differs(struct perfmap_entry *entry, void *context)
{
	return entry->origin != *(const uint32_t *)context;
}

size_t perfmap_table_remove(struct perfmap_table *table, uint32_t origin)
{
	return entries_filter(table, origin_differs, &origin);
}

struct expiry {
	const struct perfmap_range *ranges;
	size_t count,
		/*
		 * at: the first range that ends behind the last entry's start; entries come in
		 * order
		 */
		at;
	uint64_t time_ns;
};

static int is_mapped(struct perfmap_entry *entry, void *context)
{
	struct expiry *expiry = context;

	while (expiry->at < expiry->count && expiry->ranges[expiry->at].end <= entry->start)
		expiry->at++;
	if (expiry->at < expiry->count && expiry->ranges[expiry->at].start < entry->end)
		entry->mapped = 1;
	else if (entry->mapped && entry->time_ns < expiry->time_ns)
		return 0;
	return 1;
}

size_t perfmap_table_expire(struct perfmap_table *table, const struct perfmap_range *ranges,
			    size_t count, uint64_t time_ns)
{
	struct expiry expiry = {.ranges = ranges, .count = count, .time_ns = time_ns};

	return entries_filter(table, is_mapped, &expiry);
}

const struct perfmap_entry *perfmap_table_find(const struct perfmap_table *table, uint64_t address)
{
	const struct perfmap_entry *entry = entry_at(table, place_find(table, address));

	return entry && entry->start <= address ? entry : NULL;
}

const struct perfmap_entry *perfmap_table_next(const struct perfmap_table *table, size_t *cursor)
{
	size_t chunk = *cursor >> CURSOR_BITS, entry = *cursor & ((1u << CURSOR_BITS) - 1);

	if (chunk < table->chunk_count && entry == table->chunks[chunk]->count) {
		chunk++;
		entry = 0;
	}
	if (chunk >= table->chunk_count)
		return NULL;
	*cursor = chunk << CURSOR_BITS | (entry + 1);
	return &table->chunks[chunk]->entries[entry];
}

const char *perfmap_table_name(const struct perfmap_table *table, const struct perfmap_entry *entry)
{
	return strings_get(table->names, entry->name);
}

size_t perfmap_table_count(const struct perfmap_table *table)
{
	return table->count;
}

size_t perfmap_table_memory(const struct perfmap_table *table)
{
	return sizeof(*table) + table->chunk_room * sizeof(struct chunk *) +
	       table->ends_room * sizeof(*table->ends) + table->chunk_count * sizeof(struct chunk) +
	       strings_memory(table->names);
}

uint64_t perfmap_table_version(const struct perfmap_table *table)
{
	return table->version;
}
