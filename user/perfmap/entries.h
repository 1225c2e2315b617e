/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a perf map: a sorted list without overlaps, in chunks of up to ENTRIES_CHUNK
 * entries in address order, and an array of the chunks. A look-up takes two binary searches. An
 * insertion moves the entries of at most one chunk and sometimes splits it. No chunk is ever empty.
 * Pure. Zero-initialise; account may be set.
 */
#ifndef TRACER_PERFMAP_ENTRIES_H
#define TRACER_PERFMAP_ENTRIES_H

#include "perfmap/table.h"

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

/* Removes all entries. */
void entries_free(struct entries *entries);
/* The entry at a position; NULL at the end. Borrowed until the list changes. */
struct perfmap_entry *entries_at(const struct entries *entries, struct entry_position position);
/* The position of the first entry that ends above address. */
struct entry_position entries_find(const struct entries *entries, uint64_t address);
/* Copies *entry to before the entry at position, where the order allows it. 0, -ENOMEM, -EDQUOT. */
int entries_insert(struct entries *entries, struct entry_position position,
		   const struct perfmap_entry *entry);
/*
 * Removes [start, end): entries in it are removed, entries across its bounds are cut, and one that
 * contains it becomes two. 0; -ENOMEM, -EDQUOT: nothing has changed.
 */
int entries_clear_range(struct entries *entries, uint64_t start, uint64_t end);
/* Removes the entries for which keep() returns 0; returns their number. */
size_t entries_filter(struct entries *entries, int (*keep)(struct perfmap_entry *, void *),
		      void *context);
/* In address order; *cursor starts at 0. NULL at the end. The list must not change meanwhile. */
struct perfmap_entry *entries_next(const struct entries *entries, size_t *cursor);
size_t entries_memory(const struct entries *entries); /* bytes */

#endif
