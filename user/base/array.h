/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays: a pointer, the number of elements in use and the number that there is room for,
 * all the caller's. At most 2^32 - 2 elements, so that a 32-bit index names each and UINT32_MAX
 * none.
 */
#ifndef TRACER_BASE_ARRAY_H
#define TRACER_BASE_ARRAY_H

#include <stddef.h>

struct account;

/*
 * Room for extra more elements of size bytes behind count: array is the address of the pointer,
 * which may change, as may *room; both are untouched on failure. 0, -ENOMEM, -EOVERFLOW. The caller
 * frees the array.
 */
int array_reserve(void *array, size_t *room, size_t count, size_t extra, size_t size);
/* The same, charged to an account: also -EDQUOT. array_release() gives it back. */
int array_reserve_in(struct account *account, void *array, size_t *room, size_t count, size_t extra,
		     size_t size);
/* Gives back the room behind count; where that cannot be done, it stays. */
void array_fit(struct account *account, void *array, size_t *room, size_t count, size_t size);
/* Frees the array; leaves NULL and no room. */
void array_release(struct account *account, void *array, size_t *room, size_t size);

#endif
