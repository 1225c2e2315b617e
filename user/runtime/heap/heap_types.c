/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/heap/heap_types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/cpython/dict_keys.h"
#include "runtime/cpython/text_state.h"
#include "runtime/heap/object_types.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"
#include "util/word.h"

/* --- class names ------------------------------------------------------------------------------ */

/*
 * The names of classes with their modules, as their repr() has them, read from a running process.
 */

struct class_names {
	const struct python_runtime *runtime;
	uint64_t reads;      /* how many more reads of memory are made */
	uint64_t module_key; /* address of the str '__module__'; 0: not known yet */
	uint64_t unknown;    /* classes whose module was not read, since no reads were left */
};

#define FLAG_HEAP    (1ull << 9) /* Py_TPFLAGS_HEAPTYPE */
#define MAX_HEADER   128u  /* bytes of a table of keys, or of a str, in front of its contents */
#define MAX_KEYS     1024u /* of a class's dictionary that are read */
#define MAX_ENTRY    24u
#define MAX_KEY_LOOK 64u /* keys whose text is read, until the key's address is known */

static int bytes_read(struct class_names *names, uint64_t address, void *out, size_t bytes)
{
	if (!address || !names->reads)
		return 0;
	names->reads--;
	return !space_read(names->runtime->space, address, out, bytes);
}

static uint64_t word_read(struct class_names *names, uint64_t address)
{
	uint64_t word;

	return bytes_read(names, address, &word, sizeof(word)) ? word : 0;
}

/* The text of a compact ASCII str. 1; 0: it is none. */
static int text_read(struct class_names *names, uint64_t address, char out[HEAP_TYPE_NAME])
{
	const struct abi_offsets *abi = &names->runtime->offsets->abi;
	uint8_t header[MAX_HEADER] = {0};

	if (abi->unicode_ascii > sizeof(header) || abi->unicode_state + 8u > sizeof(header) ||
	    !bytes_read(names, address, header, abi->unicode_ascii) ||
	    !text_is_ascii(abi, u64_at(header + abi->unicode_state)))
		return 0;
	return !space_read_text(names->runtime->space, address + abi->unicode_ascii, out,
				HEAP_TYPE_NAME) &&
	       out[0];
}

/* Whether the key at address is '__module__', of which an interpreter has one. */
static bool is_module_key(struct class_names *names, uint64_t address, size_t number)
{
	char text[HEAP_TYPE_NAME];

	if (names->module_key)
		return address == names->module_key;
	if (number >= MAX_KEY_LOOK || !text_read(names, address, text) ||
	    strcmp(text, "__module__") != 0)
		return 0;
	names->module_key = address;
	return 1;
}

/* The value of the key __module__ in the class's dictionary. */
static int module_read(struct class_names *names, uint64_t type, char out[HEAP_TYPE_NAME])
{
	const struct object_offsets *at = &names->runtime->offsets->objects;
	uint64_t dict = word_read(names, type + at->type_dict), table;
	uint8_t header[MAX_HEADER], entries[MAX_KEYS * MAX_ENTRY];
	struct keys keys;

	if (!dict || word_read(names, dict + at->dict_values) || at->keys_indices > sizeof(header))
		return 0;
	table = word_read(names, dict + at->dict_keys);
	if (!bytes_read(names, table, header, at->keys_indices) ||
	    dict_keys_decode(at, table, header, &keys))
		return 0;
	if (keys.count > MAX_KEYS)
		keys.count = MAX_KEYS;
	if (!bytes_read(names, keys.entries, entries, keys.count * keys.entry_bytes))
		return 0;
	for (size_t i = 0; i < keys.count; i++) {
		const uint8_t *entry = entries + i * keys.entry_bytes;

		if (is_module_key(names, u64_at(entry + keys.key_at), i))
			return text_read(names, u64_at(entry + keys.value_at), out);
	}
	return 0;
}

/* Sets type->full_name if it is not type->name. 0, -ENOMEM. */
static int class_name_read(struct class_names *names, struct heap_type *type)
{
	const struct object_offsets *at = &names->runtime->offsets->objects;
	char module[HEAP_TYPE_NAME], name[HEAP_TYPE_NAME];

	/* The name of a type that is written in C has its module. */
	if (!(type->flags & FLAG_HEAP) || strchr(type->name, '.'))
		return 0;
	if (!module_read(names, type->address, module)) {
		names->unknown += !names->reads;
		return 0;
	}
	if (!strcmp(module, "builtins"))
		return 0;
	if (!text_read(names, word_read(names, type->address + at->heaptype_qualname), name))
		snprintf(name, sizeof(name), "%s", type->name);
	if (asprintf(&type->full_name, "%s.%s", module, name) >= 0)
		return 0;
	type->full_name = NULL;
	return -ENOMEM;
}

/* --- heap types ------------------------------------------------------------------------------- */

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

	if (at && types->classes[at - 1].block_bytes == bytes) {
		sum_add(&types->classes[at - 1].sum, bytes);
		return 0;
	}
	if (types->class_count == HEAP_CLASSES) {
		sum_add(&types->classes[HEAP_CLASSES - 1].sum, bytes);
		return 0;
	}
	int err = array_reserve(&types->classes, capacity, types->class_count, 1,
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

	if (walk->want && !walk->want(address, walk->context))
		return 0;
	int type = object_types_find(objects, content + before, bytes - before, 0);
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

	return CMP(y->sum.bytes, x->sum.bytes)
		?: CMP(y->sum.blocks, x->sum.blocks)
		?: CMP(x->address, y->address);
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

	error_clear();
	int err = object_types_open(&walk.objects, runtime, MAX_TYPES, UINT64_MAX, &types)
			  ?: heap_read(runtime, block_visit, &walk, &types.walk);
	if (!err)
		err = walk.objects.err;
	err = err ?: types_finish(&walk.objects);
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

	if (!sizes)
		return -ENOMEM;
	int err = object_types_open(&sizes->objects, runtime, MAX_SIZED_TYPES, MAX_LOOKS,
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
