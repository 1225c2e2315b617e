/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap/entries.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/array.h"
#include "base/sorted.h"

/* The cursor of entries_next(): chunk and entry. */
#define CURSOR_BITS 9
_Static_assert(ENTRIES_CHUNK < 1u << CURSOR_BITS,
	       "an entry's number and one beyond the last fit the cursor");

static void chunk_free(struct entries *entries, struct entries_chunk *chunk)
{
	free(chunk);
	account_uncharge(entries->account, sizeof(*chunk));
}

void entries_free(struct entries *entries)
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

struct perfmap_entry *entries_at(const struct entries *entries, struct entry_position position)
{
	return position.chunk < entries->chunk_count
		       ? &entries->chunks[position.chunk]->entries[position.entry]
		       : NULL;
}

struct entry_position entries_find(const struct entries *entries, uint64_t address)
{
	struct entry_position position = {
		.chunk = keys_above(entries->ends, entries->chunk_count, address)};
	const struct entries_chunk *chunk;

	if (position.chunk == entries->chunk_count)
		return position;
	chunk = entries->chunks[position.chunk];
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

	if (!err)
		err = array_reserve_in(entries->account, &entries->ends, &entries->ends_capacity,
				       entries->chunk_count, 1, sizeof(*entries->ends));
	if (!err)
		err = account_charge(entries->account, sizeof(*chunk));
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
	int err;

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
	err = chunk_insert(entries, position->chunk + 1);
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

int entries_insert(struct entries *entries, struct entry_position position,
		   const struct perfmap_entry *entry)
{
	struct entries_chunk *chunk;
	int err = position_reserve(entries, &position);

	if (err)
		return err;
	chunk = entries->chunks[position.chunk];
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

int entries_clear_range(struct entries *entries, uint64_t start, uint64_t end)
{
	struct entry_position position = entries_find(entries, start);
	struct perfmap_entry *entry = entries_at(entries, position), tail;

	if (!entry || entry->start >= end)
		return 0;
	if (entry->start < start) {
		tail = *entry;
		if (tail.end > end) {
			int err;

			tail.start = end;
			err = entries_insert(
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

size_t entries_filter(struct entries *entries, int (*keep)(struct perfmap_entry *, void *),
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

struct perfmap_entry *entries_next(const struct entries *entries, size_t *cursor)
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

size_t entries_memory(const struct entries *entries)
{
	return entries->chunk_capacity * sizeof(struct entries_chunk *) +
	       entries->ends_capacity * sizeof(*entries->ends) +
	       entries->chunk_count * sizeof(struct entries_chunk);
}
