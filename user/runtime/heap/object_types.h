/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which object is in a block, judged by the block's content. Each address is judged once, so a
 * value of this type is for one walk of a heap. Included by user/runtime/heap/ only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/heap/heap_types.h"

struct object_types {
	const struct python_runtime *runtime;
	const struct heap_offsets *offsets;
	struct heap_types *out;
	size_t capacity, types_max; /* of out->types */
	/* hash table of capacity * 2: type address to out->types */
	struct object_slot *slots;
	uint64_t *no_types;        /* cache of addresses that are no types, by hash */
	uint64_t looks;            /* how many more types may be read */
	uint64_t data, data_bytes; /* the interpreter's .data and .bss, with its static objects */
	int err;
};

/*
 * 0; -ENOTSUP PyType_Type is not found; -ESRCH; -EFAULT; -ENOMEM. To be released with
 * object_types_close(), also after a failure; out stays the caller's. At most types_max types are
 * known, and looks addresses are read; what is beyond that counts as no object.
 */
int object_types_open(struct object_types *objects, const struct python_runtime *runtime,
		      size_t types_max, uint64_t looks, struct heap_types *out);
void object_types_close(struct object_types *objects);
/*
 * The index in out->types of the type of the object in a block; dead: one with a reference count of
 * 0. -ENOENT: there is none; -errno.
 */
int object_types_find(struct object_types *objects, const uint8_t *block, uint32_t bytes, int dead);
/* Where an object whose type has these flags begins in its block. */
uint32_t object_types_offset(const struct object_types *objects, uint64_t flags);
/*
 * CPython's debug hooks (PYTHONMALLOC=debug, -X dev, debug builds) enlarge a block. The bytes
 * before the requested block: 0 or 16.
 */
uint32_t object_hooks_before(const uint8_t *block, uint32_t bytes);
