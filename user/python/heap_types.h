/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in the live blocks of pymalloc's heap, as the blocks themselves say: which are objects,
 * and of which type. No probe and no history is needed, and the target is only read.
 */
#ifndef TRACER_PYTHON_HEAP_TYPES_H
#define TRACER_PYTHON_HEAP_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "python/heap.h"
#include "python/runtime.h"

#define HEAP_TYPE_NAME 128

struct heap_sum {
	uint64_t blocks, bytes; /* bytes by size class */
};

struct heap_type {
	uint64_t address;
	uint64_t flags;
	uint32_t
		/*
		 * every instance is allocated with so many, before what lies in front; 0: they
		 * differ
		 */
		instance_bytes;
	struct heap_sum sum;
	char name[HEAP_TYPE_NAME]; /* tp_name, cut; "" when it cannot be read */
};

#define HEAP_CLASSES     32u
#define HEAP_CLASS_BYTES 16u /* class i holds blocks of (i + 1) * 16 bytes */

struct heap_types {
	struct heap_type *types; /* those with objects, most bytes first */
	size_t count;
	struct heap_sum objects; /* of all types */
	struct heap_sum dead;    /* objects without a reference, kept on free lists */
	struct heap_sum others;  /* no object: keys of dicts, items of lists, buffers, … */
	struct heap_sum classes[HEAP_CLASSES];
	struct heap_reading reading; /* its blocks are objects + dead + others */
};

/*
 * 0; -ENOTSUP and -ENODATA as heap_read(), or when PyType_Type is not to be found; -ESRCH; -EPERM;
 * -EFAULT; -ENOMEM. *out is the caller's to heap_types_free(), untouched on failure.
 */
int heap_types_read(const struct python_runtime *runtime, struct heap_types *out);
void heap_types_free(struct heap_types *types);

/* What the types of objects say of the sizes that their blocks were asked for with. */
struct heap_sizes;

/*
 * 0, or as heap_types_read(), but of the heap itself nothing is read. heap_sizes_free() releases;
 * runtime must outlive it.
 */
int heap_sizes_new(struct heap_sizes **out, const struct python_runtime *runtime);
void heap_sizes_free(struct heap_sizes *sizes);
/*
 * How many bytes the object in a live block was allocated with, by its type, rounded up to 8: bytes
 * is the size of the block's class, content a copy of it. 0: no object lies in it, or its type does
 * not say (it has items, or may have less as str has).
 */
uint32_t heap_sizes_of(struct heap_sizes *sizes, const uint8_t *content, uint32_t bytes);

#endif
