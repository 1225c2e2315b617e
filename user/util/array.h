/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays: a pointer, the number of elements in use and the capacity, all owned by the
 * caller. At most 2^32 - 2 elements, so that a 32-bit index can name each of them and UINT32_MAX
 * none.
 */
#pragma once

#include <stddef.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
/* Behind the last of count items; of none there may be no array. */
#define ARRAY_END(items, count) ((items) ? (items) + (count) : NULL)

#define HUGE_BYTES (2u << 20) /* of a huge page */

struct account;

/*
 * Makes room for extra more elements of size bytes after count, which may be above the capacity:
 * elements between are not initialised. array is the address of the pointer. The pointer and
 * *capacity may change; both are untouched on failure. 0, -ENOMEM, -EOVERFLOW. The caller frees the
 * array.
 */
int array_reserve(void *array, size_t *capacity, size_t count, size_t extra, size_t size);
/* Room for one more element. */
#define ARRAY_GROW(array, capacity, count)                                                         \
	array_reserve(&(array), &(capacity), (count), 1, sizeof(*(array)))
/* array_reserve() charged to an account: also -EDQUOT. array_release() gives it back. */
int array_reserve_in(struct account *account, void *array, size_t *capacity, size_t count,
		     size_t extra, size_t size);
/*
 * Makes an empty array of count items, which it copies from others; keeps it empty for none. 0,
 * -ENOMEM, -EOVERFLOW, -EDQUOT.
 */
int array_copy_in(struct account *account, void *array, size_t *capacity, const void *from,
		  size_t count, size_t size);
/* A zeroed array of fixed size, in huge pages if it is large. NULL: no memory. free() frees it. */
void *array_new(size_t count, size_t size);
/*
 * Asks for huge pages for all of them that are within bytes at data, which are to be filled: a
 * fault for every 4 KiB takes longer than the filling. A kernel without huge pages ignores it.
 */
void huge_advise(void *data, size_t bytes);
/* Shrinks the capacity to count; if that fails, the array is unchanged. */
void array_fit(struct account *account, void *array, size_t *capacity, size_t count, size_t size);
/* Frees the array; leaves NULL and a capacity of 0. */
void array_release(struct account *account, void *array, size_t *capacity, size_t size);

/*
 * The same for an array whose pointer, number of elements and capacity are the members items, count
 * and capacity of *at. ARRAY_COPY(): of *to, which is empty, and of *from.
 */
#define ARRAY_RESERVE(account, at, items, count, capacity, extra)                                  \
	array_reserve_in((account), &(at)->items, &(at)->capacity, (at)->count, (extra),           \
			 sizeof(*(at)->items))
#define ARRAY_COPY(account, to, from, items, count, capacity)                                      \
	array_copy_in((account), &(to)->items, &(to)->capacity, (from)->items, (from)->count,      \
		      sizeof(*(to)->items))
#define ARRAY_RELEASE(account, at, items, capacity)                                                \
	array_release((account), &(at)->items, &(at)->capacity, sizeof(*(at)->items))
