/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/chunk_table.h"

#include <errno.h>
#include <string.h>

#include "abi/events.h"
#include "util/array.h"
#include "util/sorted.h"

#define EXACT_UNITS 16u /* 256 bytes: kinds are exact below */
#define KIND_BITS   3u  /* of the units, above */
#define LEAST_UNITS 2u
#define CLASS_FIRST 4096u /* above the size classes of pools */
#define SIZE_BYTES  8u    /* of a chunk's header, which a block cannot use */
#define CLASSES_MAX 4096u
#define SLACK_UNITS 512u /* that malloc may give beyond a request: alignment, rests */

static unsigned int log2_of(uint32_t units)
{
	return units ? 31u - (unsigned int)__builtin_clz(units) : 0;
}

uint32_t chunk_kind(uint32_t units)
{
	unsigned int drop = units >= EXACT_UNITS ? log2_of(units) + 1 - KIND_BITS : 0;

	return EVENT_KIND_FIRST + (units >> drop << drop);
}

uint32_t chunk_class(uint32_t units)
{
	return CLASS_FIRST + log2_of(units);
}

bool chunk_is_class(uint32_t class_bytes)
{
	return class_bytes >= CLASS_FIRST;
}

uint64_t chunk_kind_bytes(uint32_t kind, int has_classes)
{
	uint64_t header = has_classes ? EVENT_CHUNK_UNIT : SIZE_BYTES;
	uint64_t bytes = kind > EVENT_KIND_FIRST
				 ? (uint64_t)(kind - EVENT_KIND_FIRST) * EVENT_CHUNK_UNIT
				 : 0;

	return bytes > header ? bytes - header : 0;
}

uint32_t chunk_units(uint64_t bytes)
{
	uint64_t units = bytes / EVENT_CHUNK_UNIT + 1;

	units += bytes % EVENT_CHUNK_UNIT > SIZE_BYTES;
	return units < LEAST_UNITS  ? LEAST_UNITS
	       : units < UINT32_MAX ? (uint32_t)units
				    : UINT32_MAX;
}

int chunk_fits(uint32_t units, uint64_t bytes, int has_classes)
{
	uint32_t least = chunk_units(bytes), slack = SLACK_UNITS;

	/* A class is up to twice as large as the one below: musl takes no others at first. */
	if (has_classes)
		slack += least < UINT32_MAX - SLACK_UNITS ? least : 0;
	return units >= least && units - least <= slack;
}

uint32_t chunk_table_units(const struct chunk_table *chunks, uint64_t bytes)
{
	uint32_t units = chunk_units(bytes);
	size_t next = keys_from(chunks->classes, chunks->class_count, units);

	return next < chunks->class_count && chunk_fits((uint32_t)chunks->classes[next], bytes, 1)
		       ? (uint32_t)chunks->classes[next]
		       : units;
}

static int class_add(struct chunk_table *chunks, uint32_t units)
{
	size_t at = keys_from(chunks->classes, chunks->class_count, units);
	int err;

	if ((at < chunks->class_count && chunks->classes[at] == units) ||
	    chunks->class_count == CLASSES_MAX)
		return 0;
	err = ARRAY_RESERVE(chunks->account, chunks, classes, class_count, class_capacity, 1);
	if (err)
		return err;
	memmove(&chunks->classes[at + 1], &chunks->classes[at],
		(chunks->class_count++ - at) * sizeof(*chunks->classes));
	chunks->classes[at] = units;
	return 0;
}

void chunk_table_begin(struct chunk_table *chunks, int has_classes)
{
	chunks->has_classes = has_classes;
	chunks->walk_count = chunks->old = chunks->unread_count = 0;
	chunks->walking = 1;
}

void chunk_table_abandon(struct chunk_table *chunks)
{
	chunks->walking = 0;
	ARRAY_RELEASE(chunks->account, chunks, walk, walk_capacity);
	chunks->walk_count = 0;
}

static int in_order(const struct chunk_table *chunks, uint64_t address)
{
	return chunks->walking && address &&
	       (!chunks->walk_count || chunks->walk[chunks->walk_count - 1].address < address);
}

static int walk_add(struct chunk_table *chunks, const struct chunk *chunk)
{
	int err = ARRAY_RESERVE(chunks->account, chunks, walk, walk_count, walk_capacity, 1);

	if (!err)
		chunks->walk[chunks->walk_count++] = *chunk;
	return err;
}

int chunk_table_show(struct chunk_table *chunks, uint64_t address, uint32_t units,
		     struct chunk **out)
{
	struct chunk chunk = {.address = address, .units = units};
	int err;

	if (!in_order(chunks, address))
		return -EBADMSG;
	while (chunks->old < chunks->count && chunks->items[chunks->old].address < address)
		chunks->old++;
	if (chunks->old < chunks->count && chunks->items[chunks->old].address == address &&
	    chunks->items[chunks->old].units == units)
		chunk.cohort = chunks->items[chunks->old].cohort;
	err = chunks->has_classes ? class_add(chunks, units) : 0;
	err = err ?: walk_add(chunks, &chunk);
	if (!err)
		*out = &chunks->walk[chunks->walk_count - 1];
	return err;
}

int chunk_table_unread(struct chunk_table *chunks, uint64_t address, uint32_t units)
{
	uint64_t end = address + (uint64_t)units * EVENT_CHUNK_UNIT;
	int err = 0;

	if (!in_order(chunks, address) || end < address)
		return -EBADMSG;
	err = ARRAY_RESERVE(chunks->account, chunks, unread, unread_count, unread_capacity, 1);
	if (!err)
		chunks->unread[chunks->unread_count++] =
			(struct chunk){.address = address, .units = units};
	for (; !err && chunks->old < chunks->count && chunks->items[chunks->old].address < end;
	     chunks->old++)
		if (chunks->items[chunks->old].address >= address)
			err = walk_add(chunks, &chunks->items[chunks->old]);
	return err;
}

bool chunk_table_is_unread(const struct chunk_table *chunks, uint64_t address)
{
	size_t low = 0, high = chunks->unread_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct chunk *range = &chunks->unread[middle];

		if (address < range->address)
			high = middle;
		else if (address - range->address < (uint64_t)range->units * EVENT_CHUNK_UNIT)
			return 1;
		else
			low = middle + 1;
	}
	return 0;
}

void chunk_table_end(struct chunk_table *chunks)
{
	struct chunk *items = chunks->items;
	size_t capacity = chunks->capacity;

	if (!chunks->walking)
		return;
	chunks->items = chunks->walk;
	chunks->count = chunks->walk_count;
	chunks->capacity = chunks->walk_capacity;
	chunks->walk = items;
	chunks->walk_capacity = capacity;
	chunks->known = 1;
	chunk_table_abandon(chunks);
}

struct chunk *chunk_table_find(const struct chunk_table *chunks, uint64_t address)
{
	size_t above = SORTED_ABOVE(chunks->items, chunks->count, address, address);

	return above && chunks->items[above - 1].address == address ? &chunks->items[above - 1]
								    : NULL;
}

void chunk_table_another(struct chunk_table *chunks, uint64_t address)
{
	struct chunk *chunk = chunk_table_find(chunks, address);

	if (chunk)
		chunk->cohort = 0;
}

uint32_t chunk_table_cohort(const struct chunk_table *chunks, uint64_t address)
{
	const struct chunk *chunk = chunk_table_find(chunks, address);

	return chunk ? chunk->cohort : 0;
}

void chunk_table_renumber(struct chunk_table *chunks, const uint8_t *map)
{
	for (size_t i = 0; i < chunks->count; i++)
		chunks->items[i].cohort = map[chunks->items[i].cohort];
}

size_t chunk_table_of(const struct chunk_table *chunks, uint32_t cohort)
{
	size_t count = 0;

	for (size_t i = 0; i < chunks->count; i++)
		count += chunks->items[i].cohort == cohort;
	return count;
}

int chunk_table_count(const struct chunk_table *chunks, struct kind_counts *counts)
{
	int err = 0;

	for (size_t i = 0; !err && i < chunks->count; i++) {
		const struct chunk *chunk = &chunks->items[i];
		const struct kind_count like = {.kind = chunk_kind(chunk->units),
						.bytes = chunk_class(chunk->units),
						.cohort = chunk->cohort,
						.live = 1};

		err = kind_counts_add(counts, &like);
	}
	return err;
}

int chunk_table_copy(struct chunk_table *out, const struct chunk_table *from)
{
	int err = ARRAY_COPY(out->account, out, from, items, count, capacity);

	if (err)
		return err;
	out->count = from->count;
	err = ARRAY_COPY(out->account, out, from, classes, class_count, class_capacity);
	if (err)
		return err;
	out->class_count = from->class_count;
	out->has_classes = from->has_classes;
	out->known = from->known;
	return 0;
}

void chunk_table_free(struct chunk_table *chunks)
{
	chunk_table_abandon(chunks);
	ARRAY_RELEASE(chunks->account, chunks, items, capacity);
	ARRAY_RELEASE(chunks->account, chunks, unread, unread_capacity);
	ARRAY_RELEASE(chunks->account, chunks, classes, class_capacity);
	*chunks = (struct chunk_table){.account = chunks->account};
}
