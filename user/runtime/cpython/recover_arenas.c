/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Objects/obmalloc.c). arenas refers to an array of 16 arena objects, or of 32, 64, … Each
 * has {address, pool_address, nfreepools, ntotalpools, …, nextarena, prevarena}, or address 0 and
 * in nextarena the next such one. maxarenas is the length of the array.
 */
#include <errno.h>

#include "runtime/cpython/heap_place.h"
#include "runtime/cpython/recover.h"
#include "util/word.h"

#define WORD       8u
#define FIRST      16u /* INITIAL_ARENA_OBJECTS */
#define OBJECT_MAX 64u
#define MAX_READS  (4u << 20)
#define TOTAL      4u /* ntotalpools follows nfreepools */

struct arenas_search {
	const struct python_offsets *offsets;
	const struct memory_reader *read;
	uint64_t array;
	uint32_t used, ends; /* arenas; unused objects without a next one */
	uint32_t left;       /* objects that may still be read */
};

/* Whether the object is one of an array's; counts what it is. */
static int object_check(struct arenas_search *search, const uint8_t *object)
{
	const struct heap_offsets *offsets = &search->offsets->heap;
	uint64_t address = u64_at(object + offsets->arena_address);
	uint64_t pool = u64_at(object + offsets->arena_pool_address);
	uint32_t size = offsets->arena_object_size;
	uint32_t pools = offsets->arena_bytes / offsets->pool_bytes;
	uint32_t free_pools = u32_at(object + offsets->arena_nfreepools);
	uint64_t next = u64_at(object + size - 2 * WORD);

	if (!address) {
		search->ends += !next;
		return search->ends <= 1 &&
		       (!next || (next >= search->array && (next - search->array) % size == 0));
	}
	search->used++;
	return !(address & 15) && pool >= address &&
	       pool <= address + offsets->arena_bytes + offsets->pool_bytes &&
	       u32_at(object + offsets->arena_nfreepools + TOTAL) <= pools && free_pools <= pools;
}

static int objects_check(struct arenas_search *search, uint32_t first, uint32_t count)
{
	uint32_t size = search->offsets->heap.arena_object_size;
	uint8_t object[OBJECT_MAX];

	for (uint32_t i = first; i < first + count; i++) {
		search->left--;
		if (search->read->read(search->read->context, search->array + (uint64_t)i * size,
				       object, size) ||
		    !object_check(search, object))
			return 0;
	}
	return 1;
}

/* The length of the array at `array`; 0: there is none. */
static uint32_t array_length(struct arenas_search *search, uint64_t array)
{
	uint32_t length = FIRST;

	search->array = array;
	search->used = search->ends = 0;
	if (array % 16 || !array || search->left < FIRST || !objects_check(search, 0, FIRST) ||
	    !search->used)
		return 0;
	while (length < HEAP_ARENAS && search->left >= length &&
	       objects_check(search, length, length))
		length *= 2;
	return length;
}

/* The variable nearest to `near` that has the value; 0: none. */
static uint64_t variable_find(const uint8_t *data, uint64_t bytes, uint64_t near, uint32_t value)
{
	uint64_t best = UINT64_MAX;

	for (uint64_t at = 0; at + sizeof(value) <= bytes; at += sizeof(value))
		if (u32_at(data + at) == value &&
		    (best == UINT64_MAX ||
		     llabs((int64_t)(at - near)) < llabs((int64_t)(best - near))))
			best = at;
	return best;
}

int recover_arenas(const struct python_offsets *offsets, const struct memory_reader *read,
		   const uint8_t *data, uint64_t bytes, uint64_t address, struct runtime_found *out)
{
	struct arenas_search search = {.offsets = offsets, .read = read, .left = MAX_READS};
	uint64_t best = 0, best_at = 0, variable;
	uint32_t best_used = 0;

	if (offsets->heap.arena_object_size > OBJECT_MAX)
		return -ENOENT;
	for (uint64_t at = 0; at + WORD <= bytes; at += WORD) {
		uint32_t length = array_length(&search, u64_at(data + at));

		if (!length || search.used <= best_used)
			continue;
		best = length;
		best_used = search.used;
		best_at = at;
	}
	variable = best ? variable_find(data, bytes, best_at, (uint32_t)best) : UINT64_MAX;
	if (variable == UINT64_MAX)
		return -ENOENT;
	out->arenas = address + best_at;
	out->maxarenas = address + variable;
	return 0;
}
