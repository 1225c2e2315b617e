/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. An object is {refcount, type, …}. It begins
 *
 * 	at the start of its block		if its type has no garbage collection,
 * 	after the collector's head (16 bytes)	if it has Py_TPFLAGS_HAVE_GC,
 * 	after two pointers and that head	if its type has a managed dict or weak
 * 						references (3.11+).
 *
 * A block is taken for an object if it has, at one of these offsets, a plausible reference count
 * and the address of a type whose flags require that offset. An address is a type's if the chain of
 * types of types leads from it to PyType_Type. Every address is read once: types are kept in a
 * table, other addresses in a cache of fixed size: a target may hold any number of them.
 *
 * A count of 0 marks an object on a free list. Blocks are not wiped, so a freed object looks the
 * same: a block is a dead object only if it holds no live one and its collector head is intact.
 */
#include "runtime/heap/object_types.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/cpython/refcount.h"
#include "util/array.h"
#include "util/hash.h"
#include "util/word.h"

/* Py_TPFLAGS_MANAGED_WEAKREF, _MANAGED_DICT; not used up to 3.10 */
#define FLAG_PREHEADER     (3ull << 3)
#define FLAG_HAVE_GC       (1ull << 14)
#define FLAG_TYPE_SUBCLASS (1ull << 31)
#define FLAG_UNICODE       (1ull << 28) /* the size of a str depends on its text */
#define FLAG_INLINE_VALUES (1ull << 2)  /* attributes follow the object, 3.13+ */
#define PREHEADER_BYTES    16u
#define MAX_METATYPES      8u
#define MAX_TYPE_BYTES     256u       /* that are read of a type */
#define MAX_INSTANCE       4096u      /* bytes; larger than any block of a pool */
#define HOOKS_BEFORE       16u        /* bytes that the debug hooks prepend to a block */
#define HOOKS_BYTES        24u        /* bytes that they add in total */
#define NO_TYPES           (1u << 14) /* power of two */

struct object_slot {
	uint64_t address; /* 0: free */
	uint32_t type;
};

static struct object_slot *slot_of(const struct object_types *objects, uint64_t address)
{
	size_t mask = objects->capacity * 2 - 1, i = hash_u64(address) & mask;

	while (objects->slots[i].address && objects->slots[i].address != address)
		i = (i + 1) & mask;
	return &objects->slots[i];
}

static int types_grow(struct object_types *objects)
{
	struct heap_types *out = objects->out;
	size_t capacity = objects->capacity ? objects->capacity * 2 : 1024;
	struct heap_type *types = realloc(out->types, capacity * sizeof(*types));
	struct object_slot *slots = calloc(capacity * 2, sizeof(*slots));

	if (types)
		out->types = types;
	if (!types || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(objects->slots);
	objects->slots = slots;
	objects->capacity = capacity;
	for (size_t i = 0; i < out->count; i++)
		*slot_of(objects, types[i].address) =
			(struct object_slot){types[i].address, (uint32_t)i};
	return 0;
}

/* tp_basicsize and tp_itemsize follow tp_name in every version. */
static uint32_t instance_bytes(const struct object_types *objects, const uint8_t *type,
			       uint64_t flags)
{
	uint32_t name_at = objects->offsets->type_name;
	uint64_t bytes = u64_at(type + name_at + 8);

	if (u64_at(type + name_at + 16) || flags & (FLAG_UNICODE | FLAG_INLINE_VALUES) ||
	    bytes > MAX_INSTANCE)
		return 0;
	return ((uint32_t)bytes + 7) / 8 * 8;
}

static int type_add(struct object_types *objects, uint64_t address, uint64_t flags,
		    uint32_t instance)
{
	struct heap_types *out = objects->out;
	uint32_t number = (uint32_t)out->count;

	if (number == objects->types_max)
		return -ENOENT;
	if (number == objects->capacity && types_grow(objects))
		return -ENOMEM;
	out->types[number] =
		(struct heap_type){.address = address, .flags = flags, .instance_bytes = instance};
	*slot_of(objects, address) = (struct object_slot){address, number};
	out->count++;
	return (int)number;
}

/* The index in out->types; -ENOENT: there is no type at address; -errno. */
static int type_find(struct object_types *objects, uint64_t address, unsigned int metatypes);

static int type_look(struct object_types *objects, uint64_t address, unsigned int metatypes)
{
	uint32_t flags_at = objects->offsets->type_flags;
	uint8_t bytes[MAX_TYPE_BYTES];

	if (!metatypes || !objects->looks)
		return -ENOENT;
	objects->looks--;
	int err = space_read(objects->runtime->space, address, bytes, flags_at + 8);
	if (err)
		return err == -EFAULT ? -ENOENT : err;
	if (!refcount_plausible(objects->runtime->offsets, bytes, 0, 0))
		return -ENOENT;
	int metatype = type_find(
		objects, u64_at(bytes + objects->runtime->offsets->abi.object_type), metatypes - 1);
	if (metatype < 0)
		return metatype;
	/*
	 * Every object's chain leads to PyType_Type; only a type is an instance of a subclass of
	 * it.
	 */
	if (!(objects->out->types[metatype].flags & FLAG_TYPE_SUBCLASS))
		return -ENOENT;
	uint64_t flags = u64_at(bytes + flags_at);
	return type_add(objects, address, flags, instance_bytes(objects, bytes, flags));
}

static int type_find(struct object_types *objects, uint64_t address, unsigned int metatypes)
{
	if (!address || address & 7 || address >> 47)
		return -ENOENT;
	const struct object_slot *slot = slot_of(objects, address);
	if (slot->address)
		return (int)slot->type;
	uint64_t *no_type = &objects->no_types[hash_u64(address) & (NO_TYPES - 1)];
	if (*no_type == address)
		return -ENOENT;
	int type = type_look(objects, address, metatypes);
	if (type == -ENOENT)
		*no_type = address;
	return type;
}

uint32_t object_types_offset(const struct object_types *objects, uint64_t flags)
{
	return (flags & FLAG_HAVE_GC ? objects->offsets->gc_head_bytes : 0) +
	       (flags & FLAG_PREHEADER ? PREHEADER_BYTES : 0);
}

/*
 * A count of 0; _gc_next is NULL while the collector does not track the object. Without the GIL it
 * has no head.
 */
static bool is_dead(const struct object_types *objects, const uint8_t *object, uint32_t offset)
{
	uint32_t head = objects->offsets->gc_head_bytes;

	if (!head)
		return !refcount_read(objects->runtime->offsets, object);
	return !u64_at(object) && !(offset && u64_at(object - head));
}

/* The type of the object in a block; -ENOENT: there is none; -errno. */
int object_types_find(struct object_types *objects, const uint8_t *block, uint32_t bytes, int dead)
{
	const struct python_offsets *python = objects->runtime->offsets;
	uint32_t head = objects->offsets->gc_head_bytes;
	const uint32_t offsets[] = {0, head, head + PREHEADER_BYTES};

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		const uint8_t *object = block + offsets[i];

		if (offsets[i] + refcount_header(python) > bytes)
			break;
		if (dead ? !is_dead(objects, object, offsets[i])
			 : !refcount_plausible(python, object, objects->data, objects->data_bytes))
			continue;
		int type = type_find(objects,
				     u64_at(object + objects->runtime->offsets->abi.object_type),
				     MAX_METATYPES);
		if (type == -ENOENT)
			continue;
		if (type < 0 ||
		    object_types_offset(objects, objects->out->types[type].flags) == offsets[i])
			return type;
	}
	return -ENOENT;
}

/*
 * CPython's debug hooks (PYTHONMALLOC=debug, -X dev, debug builds) enlarge a block: the requested
 * size, big-endian; a letter for the allocator domain, and 7 guard bytes; the requested block; 8
 * guard bytes, and a serial number in some builds. Returns the bytes before the requested block: 0
 * or 16.
 */
uint32_t object_hooks_before(const uint8_t *block, uint32_t bytes)
{
	uint64_t asked;

	if (bytes < HOOKS_BYTES || (block[8] != 'o' && block[8] != 'm' && block[8] != 'r') ||
	    memcmp(block + 9, "\xfd\xfd\xfd\xfd\xfd\xfd\xfd", 7))
		return 0;
	memcpy(&asked, block, sizeof(asked));
	return be64toh(asked) <= bytes - HOOKS_BYTES ? HOOKS_BEFORE : 0;
}

/* PyType_Type, which is its own type. */
static int root_add(struct object_types *objects)
{
	const struct python_runtime *runtime = objects->runtime;
	uint64_t address, flags;
	int err = runtime_type_type(runtime, &address);

	if (err)
		return err;
	return space_read_u64(runtime->space, address + objects->offsets->type_flags, &flags)
		?: types_grow(objects)
		?: type_add(objects, address, flags | FLAG_TYPE_SUBCLASS, 0);
}

/* To be released with object_types_close(), also after a failure; out stays the caller's. */
int object_types_open(struct object_types *objects, const struct python_runtime *runtime,
		      size_t types_max, uint64_t looks, struct heap_types *out)
{
	*objects = (struct object_types){.runtime = runtime,
					 .offsets = &runtime->offsets->heap,
					 .out = out,
					 .types_max = types_max,
					 .looks = looks,
					 .no_types = calloc(NO_TYPES, sizeof(*objects->no_types))};
	if (!objects->no_types)
		return -ENOMEM;
	runtime_data(runtime, &objects->data, &objects->data_bytes);
	int err = root_add(objects);
	return err < 0 ? err : 0;
}

void object_types_close(struct object_types *objects)
{
	free(objects->no_types);
	free(objects->slots);
}
