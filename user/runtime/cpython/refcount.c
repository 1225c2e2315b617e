/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Include/refcount.h, Include/object.h, pycore_object.h of a build without the GIL). The
 * shared count stands above two flags. From 3.14 on an object with a deferred count has an eighth
 * of the largest number added to the shared one; in 3.13 it has one reference too many.
 */
#include "runtime/cpython/refcount.h"

#include <string.h>

#include "util/word.h"

#define MOST           UINT32_MAX /* of a mortal object; of all objects up to 3.11 */
#define SHARED_SHIFT   2
#define DEFERRED_BIT   64u /* of the collector's bits */
#define DEFERRED       (INT64_MAX / 8)
#define IMMORTAL_LOCAL UINT32_MAX
#define THREAD_BITS    47

static int64_t count_with_gil(const struct python_offsets *offsets, const uint8_t *object)
{
	uint64_t count = u64_at(object) & ~((uint64_t)offsets->heap.count_flags << 48);

	/* From 3.12 on the lower half is negative in an immortal object. */
	if (offsets->version >= 0x030c && (int32_t)(uint32_t)count < 0)
		return REFCOUNT_IMMORTAL;
	return (int64_t)count;
}

int64_t refcount_read(const struct python_offsets *offsets, const uint8_t *object)
{
	const struct free_threaded_offsets *at = &offsets->free_threaded;
	uint32_t local;

	if (offsets->build != BUILD_FREE_THREADED)
		return count_with_gil(offsets, object);
	memcpy(&local, object + at->object_local, sizeof(local));
	if (local == IMMORTAL_LOCAL)
		return REFCOUNT_IMMORTAL;
	int64_t count = (int64_t)u64_at(object + at->object_shared) >> SHARED_SHIFT;
	count += local;
	if (object[at->object_bits] & DEFERRED_BIT) {
		if (offsets->version == 0x030d)
			count--;
		else if (count > DEFERRED / 2)
			count -= DEFERRED;
	}
	return count;
}

/* The owner is 0, or the address of a thread's control block. */
static int plausible_without_gil(const struct python_offsets *offsets, const uint8_t *object)
{
	const struct free_threaded_offsets *at = &offsets->free_threaded;
	int64_t count = refcount_read(offsets, object);
	uint64_t owner = u64_at(object + at->object_thread);

	if (owner >> THREAD_BITS || owner & 7)
		return 0;
	if (count == REFCOUNT_IMMORTAL || (count > 0 && count <= MOST))
		return 1;
	/* Threads may have all references of an object whose count is deferred. */
	return object[at->object_bits] & DEFERRED_BIT && -count <= MOST && count <= 0 &&
	       (int64_t)u64_at(object + at->object_shared) >> SHARED_SHIFT > DEFERRED / 2;
}

int refcount_plausible(const struct python_offsets *offsets, const uint8_t *object, uint64_t data,
		       uint64_t data_bytes)
{
	if (offsets->build == BUILD_FREE_THREADED)
		return plausible_without_gil(offsets, object);
	uint64_t count = u64_at(object) & ~((uint64_t)offsets->heap.count_flags << 48);
	return count && count <= MOST && (count & 7 || count - data >= data_bytes);
}
