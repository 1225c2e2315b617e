/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which live blocks of the heap are objects, and of which type, judged by the blocks'
 * contents. Needs no probes and no history; the target is only read.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpython/heap.h"
#include "runtime/cpython/runtime.h"

#define HEAP_TYPE_NAME 128

struct heap_sum {
	uint64_t blocks, bytes; /* bytes by size class */
};

struct heap_type {
	uint64_t address;
	uint64_t flags;
	/* size of every instance, without the headers in front of it; 0: sizes differ */
	uint32_t instance_bytes;
	struct heap_sum sum;
	char name[HEAP_TYPE_NAME]; /* tp_name, truncated; "" if it cannot be read */
	char *full_name; /* with the module and the classes around it; NULL: it is the name */
};

/* The blocks of one size. */
struct heap_class {
	uint64_t block_bytes;
	struct heap_sum sum;
};

#define HEAP_CLASSES 1024u /* larger blocks of further sizes are counted in the last one */

struct heap_types {
	struct heap_type *types; /* those with objects, sorted by bytes, descending */
	size_t count;
	struct heap_sum objects; /* of all types */
	struct heap_sum dead;    /* objects with a reference count of 0, kept on free lists */
	struct heap_sum others; /* blocks that are no objects: keys of dicts, items of lists, … */
	struct heap_class *classes; /* by block_bytes */
	size_t class_count;
	uint64_t modules_unknown; /* classes whose full names were too many to read */
	struct heap_walk walk;    /* walk.blocks is the sum of objects, dead and others */
};

/*
 * 0; -ENOTSUP and -ENODATA as heap_read(), or if PyType_Type is not found; -ESRCH; -EPERM;
 * -EFAULT; -ENOMEM. *out is the caller's to heap_types_free(), untouched on failure.
 */
int heap_types_read(const struct python_runtime *runtime, struct heap_types *out);
/*
 * The same for the blocks that want() returns 1 for, by their addresses; walk describes the whole
 * heap.
 */
typedef bool (*heap_want_fn)(uint64_t address, void *context);
int heap_types_read_some(const struct python_runtime *runtime, heap_want_fn want, void *context,
			 struct heap_types *out);
static inline const char *heap_type_name(const struct heap_type *type)
{
	return type->full_name ? type->full_name : type->name;
}
void heap_types_free(struct heap_types *types);

/* Finds the requested sizes of blocks by the types of the objects in them. */
struct heap_sizes;

/*
 * 0, or as heap_types_read(); the heap itself is not read. The caller frees with heap_sizes_free();
 * runtime must outlive it.
 */
int heap_sizes_new(struct heap_sizes **out, const struct python_runtime *runtime);
void heap_sizes_free(struct heap_sizes *sizes);
/*
 * The size that the object in a live block was allocated with, by its type, rounded up to 8. bytes
 * is the block's size class, content a copy of the block. 0: no object is in it, or its type does
 * not determine the size (it has items, or is a str, which may be smaller).
 */
uint32_t heap_sizes_of(struct heap_sizes *sizes, const uint8_t *content, uint32_t bytes);
