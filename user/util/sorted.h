/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting, and bisection of arrays that are sorted by a uint64_t, mostly an address: a member of a
 * struct, or the items themselves. An index is the array's count if there is no such item.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* By how much it has grown; 0 if it has not. */
static inline uint64_t increase(uint64_t before, uint64_t now)
{
	return now > before ? now - before : 0;
}

/* -1, 0 or 1, for a comparator: the smaller one first. */
#define CMP(a, b) (((a) > (b)) - ((a) < (b)))

/* items: count of them, size bytes each; offset: of the key in an item. */
static inline size_t sorted_above(const void *items, size_t count, size_t size, size_t offset,
				  uint64_t key)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t at;

		memcpy(&at, (const char *)items + middle * size + offset, sizeof(at));
		if (at <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* For qsort(), of items that begin with their key. */
static inline int key_compare(const void *a, const void *b)
{
	return CMP(*(const uint64_t *)a, *(const uint64_t *)b);
}

static inline int key_at_compare(const void *a, const void *b, void *offset)
{
	return key_compare((const char *)a + (size_t)offset, (const char *)b + (size_t)offset);
}

/* The index of the first key above `key`, or not below it. */
static inline size_t keys_above(const uint64_t *keys, size_t count, uint64_t key)
{
	return sorted_above(keys, count, sizeof(*keys), 0, key);
}

static inline size_t keys_from(const uint64_t *keys, size_t count, uint64_t key)
{
	return key ? keys_above(keys, count, key - 1) : 0;
}

/* The offset of a member, which must have 64 bits. */
#define KEY_OFFSET(items, member)                                                                  \
	(offsetof(__typeof__(*(items)), member) +                                                  \
	 0 * sizeof(char[sizeof((items)->member) == sizeof(uint64_t) ? 1 : -1]))

/* The index of the first item whose member is above `key`. */
#define SORTED_ABOVE(items, count, member, key)                                                    \
	sorted_above((items), (count), sizeof(*(items)), KEY_OFFSET(items, member), (key))

static inline void sort_by(void *items, size_t count, size_t size, size_t offset)
{
	if (count)
		qsort_r(items, count, size, key_at_compare, (void *)offset);
}

#define SORT_BY(items, count, member)                                                              \
	sort_by((items), (count), sizeof(*(items)), KEY_OFFSET(items, member))
