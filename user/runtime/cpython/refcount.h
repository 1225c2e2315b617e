/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference counts. With the GIL an object begins with one number. Without it the thread that owns
 * an object has a count of its own, other threads share another one, and an object whose count is
 * deferred has a large number added to it. Pure.
 */
#pragma once

#include "runtime/cpython/offsets.h"

#define REFCOUNT_IMMORTAL INT64_MAX

/* Bytes of an object's header, which ends with the type. */
static inline uint32_t refcount_header(const struct python_offsets *offsets)
{
	return offsets->abi.object_type + 8u;
}
/*
 * The count in an object's header, of refcount_header() bytes; without what threads count for
 * themselves (free_threaded.tstate_counts), so that it may be below 0.
 */
int64_t refcount_read(const struct python_offsets *offsets, const uint8_t *object);
/*
 * Whether these bytes may begin an object that is in use. data, data_bytes: the interpreter's
 * variables. In an executable that is not position-independent, static objects such as None have
 * addresses as small as a count, and a list's items may be {None, a type}.
 */
int refcount_plausible(const struct python_offsets *offsets, const uint8_t *object, uint64_t data,
		       uint64_t data_bytes);
