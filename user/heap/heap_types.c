/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/heap_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/sorted.h"
#include "heap/class_names.h"
#include "heap/object_types.h"
#include "process/memory.h"

#define MAX_TYPES       (1u << 20) /* objects of further types count as no objects */
#define MAX_LOOKS       32768u     /* reads of types when only sizes are needed: 30 ms */
#define MAX_READS       262144u    /* for the modules of classes: 0.3 s */
#define MAX_SIZED_TYPES 4096u      /* when only sizes are needed: it is a sample */

static void sum_add(struct heap_sum *sum, uint64_t bytes)
{
	sum->blocks++;
	sum->bytes += bytes;
}

/*
 * Adds a block to its class. pymalloc has 32 classes and mimalloc some hundred; the largest blocks
 * have sizes of their own. 0, -ENOMEM.
 */
static int class_add(struct heap_types *types, size_t *capacity, uint64_t bytes)
{
	size_t at = SORTED_ABOVE(types->classes, types->class_count, block_bytes, bytes);
	int err;

	if (at && types->classes[at - 1].block_bytes == bytes) {
		sum_add(&types->classes[at - 1].sum, bytes);
		return 0;
	}
	if (types->class_count == HEAP_CLASSES) {
		sum_add(&types->classes[HEAP_CLASSES - 1].sum, bytes);
		return 0;
	}
	err = array_reserve(&types->classes, capacity, types->class_count, 1,
			    sizeof(*types->classes));
	if (err)
		return err;
	memmove(types->classes + at + 1, types->classes + at,
		(types->class_count++ - at) * sizeof(*types->classes));
	types->classes[at] = (struct heap_class){.block_bytes = bytes, .sum = {1, bytes}};
	return 0;
}

/* Blocks that want() refuses are left out; NULL: none. */
struct types_walk {
	struct object_types objects;
	heap_want_fn want;
	void *context;
	size_t class_capacity;
};

static int block_visit(uint64_t address, uint64_t block_bytes, const uint8_t *content,
		       void *context)
{
	struct types_walk *walk = context;
	struct object_types *objects = &walk->objects;
	struct heap_types *out = objects->out;
	uint32_t bytes = block_bytes < HEAP_CONTENT ? (uint32_t)block_bytes : HEAP_CONTENT;
	uint32_t before = object_hooks_before(content, bytes);
	int type;

	if (walk->want && !walk->want(address, walk->context))
		return 0;
	type = object_types_find(objects, content + before, bytes - before, 0);
	objects->err = class_add(out, &walk->class_capacity, block_bytes);
	if (objects->err)
		return 1;
	if (type >= 0) {
		sum_add(&out->objects, block_bytes);
		sum_add(&out->types[type].sum, block_bytes);
		return 0;
	}
	if (type == -ENOENT)
		type = object_types_find(objects, content + before, bytes - before, 1);
	if (type < 0 && type != -ENOENT) {
		objects->err = type;
		return 1;
	}
	sum_add(type >= 0 ? &out->dead : &out->others, block_bytes);
	return 0;
}

static int name_read(const struct object_types *objects, struct heap_type *type)
{
	uint64_t at;
	int err = space_read_u64(objects->runtime->space,
				 type->address + objects->offsets->type_name, &at);

	err = err ?: space_read_text(objects->runtime->space, at, type->name, sizeof(type->name));
	return err == -EFAULT ? 0 : err;
}

static int type_compare(const void *a, const void *b)
{
	const struct heap_type *x = a, *y = b;

	if (x->sum.bytes != y->sum.bytes)
		return x->sum.bytes < y->sum.bytes ? 1 : -1;
	if (x->sum.blocks != y->sum.blocks)
		return x->sum.blocks < y->sum.blocks ? 1 : -1;
	return x->address < y->address ? -1 : x->address > y->address;
}

/* Drops types without objects, reads the names of the others and sorts them. */
static int types_finish(const struct object_types *objects)
{
	struct class_names names = {.runtime = objects->runtime, .reads = MAX_READS};
	struct heap_types *out = objects->out;
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < out->count && !err; i++) {
		if (!out->types[i].sum.blocks)
			continue;
		err = name_read(objects, &out->types[i]);
		out->types[kept++] = out->types[i];
	}
	out->count = kept;
	qsort(out->types, kept, sizeof(*out->types), type_compare);
	for (size_t i = 0; i < kept && !err; i++)
		err = class_name_read(&names, &out->types[i]);
	out->modules_unknown = names.unknown;
	return err;
}

int heap_types_read(const struct python_runtime *runtime, struct heap_types *out)
{
	return heap_types_read_some(runtime, NULL, NULL, out);
}

int heap_types_read_some(const struct python_runtime *runtime, heap_want_fn want, void *context,
			 struct heap_types *out)
{
	struct types_walk walk = {.want = want, .context = context};
	struct heap_types types = {0};
	int err;

	error_clear();
	err = object_types_open(&walk.objects, runtime, MAX_TYPES, UINT64_MAX, &types);
	if (!err)
		err = heap_read(runtime, block_visit, &walk, &types.walk);
	if (!err)
		err = walk.objects.err;
	if (!err)
		err = types_finish(&walk.objects);
	object_types_close(&walk.objects);
	if (err) {
		heap_types_free(&types);
		return err;
	}
	*out = types;
	return 0;
}

void heap_types_free(struct heap_types *types)
{
	for (size_t i = 0; i < types->count; i++)
		free(types->types[i].full_name);
	free(types->types);
	free(types->classes);
	memset(types, 0, sizeof(*types));
}

struct heap_sizes {
	struct object_types objects;
	struct heap_types types;
};

int heap_sizes_new(struct heap_sizes **out, const struct python_runtime *runtime)
{
	struct heap_sizes *sizes = calloc(1, sizeof(*sizes));
	int err;

	if (!sizes)
		return -ENOMEM;
	err = object_types_open(&sizes->objects, runtime, MAX_SIZED_TYPES, MAX_LOOKS,
				&sizes->types);
	if (err) {
		heap_sizes_free(sizes);
		return err;
	}
	*out = sizes;
	return 0;
}

void heap_sizes_free(struct heap_sizes *sizes)
{
	if (!sizes)
		return;
	object_types_close(&sizes->objects);
	heap_types_free(&sizes->types);
	free(sizes);
}

uint32_t heap_sizes_of(struct heap_sizes *sizes, const uint8_t *content, uint32_t bytes)
{
	uint32_t before = object_hooks_before(content, bytes);
	int type = object_types_find(&sizes->objects, content + before, bytes - before, 0);
	const struct heap_type *found = type < 0 ? NULL : &sizes->types.types[type];

	if (!found || !found->instance_bytes)
		return 0;
	return found->instance_bytes + object_types_offset(&sizes->objects, found->flags);
}
