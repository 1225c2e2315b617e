/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "layouts/refcount.h"

#define STRANGERS     (1u << 14) /* power of two */
#define MAX_METATYPES 8
#define MAX_BASES     64
#define MAX_MEMBERS   1024
#define MAX_BYTES     (1u << 30) /* of an object without its items */
#define PREHEADER     16u

/* PyMemberDef (Include/structmember.h): {name, type, offset, flags, doc}. */
#define MEMBER_BYTES     40u
#define MEMBER_TYPE      8u
#define MEMBER_OFFSET    16u
#define MEMBER_OBJECT    6u
#define MEMBER_OBJECT_EX 16u

/* Names of static types of the interpreter's. */
static const struct {
	const char *name;
	enum types_layout layout;
} layouts[] = {
	{"int", LAYOUT_PLAIN},
	{"str", LAYOUT_PLAIN},
	{"bytes", LAYOUT_PLAIN},
	{"float", LAYOUT_PLAIN},
	{"complex", LAYOUT_PLAIN},
	{"dict", LAYOUT_DICT},
	{"frozendict", LAYOUT_DICT},
	{"list", LAYOUT_LIST},
	{"tuple", LAYOUT_TUPLE},
	{"set", LAYOUT_SET},
	{"frozenset", LAYOUT_SET},
	{"type", LAYOUT_TYPE},
	{"weakref", LAYOUT_WEAKREF},
	{"weakref.ReferenceType", LAYOUT_WEAKREF},
	{"weakproxy", LAYOUT_WEAKREF},
	{"weakref.ProxyType", LAYOUT_WEAKREF},
	{"weakcallableproxy", LAYOUT_WEAKREF},
	{"weakref.CallableProxyType", LAYOUT_WEAKREF},
	{"code", LAYOUT_CODE},
	{"frame", LAYOUT_FRAME},
	{"generator", LAYOUT_GENERATOR},
	{"coroutine", LAYOUT_GENERATOR},
	{"async_generator", LAYOUT_GENERATOR},
	{"module", LAYOUT_MODULE},
	{"memoryview", LAYOUT_VIEW},
	{"bytearray", LAYOUT_OPAQUE},
};

/*
 * Types of extension modules, static or not. Their layout is checked in each object, or only says
 * which words are borrowed.
 */
static const struct {
	const char *name;
	enum types_layout layout;
} extensions[] = {
	{"collections.deque", LAYOUT_DEQUE},
	{"array.array", LAYOUT_OPAQUE},
	{"_io.StringIO", LAYOUT_OPAQUE},
	{"_io.BufferedReader", LAYOUT_OPAQUE},
	{"_io.BufferedWriter", LAYOUT_OPAQUE},
	{"_io.BufferedRandom", LAYOUT_OPAQUE},
	{"_io.TextIOWrapper", LAYOUT_OPAQUE},
	{"_thread.lock", LAYOUT_OPAQUE},
	{"_thread.RLock", LAYOUT_OPAQUE},
	{"re.Pattern", LAYOUT_OPAQUE},
	{"functools._lru_cache_wrapper", LAYOUT_LRU_CACHE},
	{"functools._lru_list_elem", LAYOUT_LRU_LINK},
	{"decimal.Decimal", LAYOUT_DECIMAL},
	{"greenlet.greenlet", LAYOUT_GREENLET},
};

static uint64_t field(const struct types *types, uint64_t address, uint32_t offset)
{
	return image_u64(types->image, address + offset);
}

/* Each version of Cython from 3.0 on has a module of its own for the type of its functions. */
static int is_cython(const char *name)
{
	const char *last = strrchr(name, '.');

	return !strcmp(last ? last + 1 : name, "cython_function_or_method");
}

static int named_layout(const struct types *types, uint64_t address, enum types_layout *out)
{
	const struct image *image = types->image;
	char name[64];

	image_text(image, field(types, address, image->offsets.heap.type_name), name, sizeof(name));
	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++)
		if (!strcmp(name, extensions[i].name)) {
			*out = extensions[i].layout;
			return 1;
		}
	if (is_cython(name)) {
		*out = LAYOUT_CYTHON;
		return 1;
	}
	if (address - image->data >= image->data_bytes)
		return 0;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (!strcmp(name, layouts[i].name)) {
			*out = layouts[i].layout;
			return 1;
		}
	return 0;
}

/* A type's layout is that of the first of its bases with a known one. */
static void layout_find(const struct types *types, struct type *type)
{
	uint64_t at = type->address;

	for (int i = 0; i < MAX_BASES && at; i++) {
		if (named_layout(types, at, &type->layout)) {
			uint64_t bytes = field(types, at, types->image->offsets.heap.type_name + 8);

			type->layout_bytes = bytes < MAX_BYTES ? (uint32_t)bytes : 0;
			return;
		}
		at = field(types, at, types->image->offsets.objects.type_base);
	}
}

static int is_type(const struct types *types, uint64_t address)
{
	const struct python_offsets *offsets = &types->image->offsets;
	uint64_t metatype = field(types, address, offsets->abi.object_type);

	if (!(field(types, metatype, offsets->heap.type_flags) & TYPE_TYPE))
		return 0;
	for (int i = 0; i < MAX_METATYPES && metatype; i++) {
		if (metatype == types->image->type_type)
			return 1;
		metatype = field(types, metatype, offsets->abi.object_type);
	}
	return 0;
}

static uint32_t bounded(uint64_t bytes)
{
	return bytes < MAX_BYTES ? (uint32_t)bytes : 0;
}

static uint32_t type_add(struct types *types, uint64_t address)
{
	const struct python_offsets *offsets = &types->image->offsets;
	const struct object_offsets *at = &offsets->objects;
	uint32_t name = offsets->heap.type_name;
	struct type type = {.address = address};

	if (types->count == TYPES_MAX)
		return TYPES_NONE;
	types->err =
		array_reserve(&types->entries, &types->capacity, types->count, 1, sizeof(type));
	if (!types->err)
		types->err = id_map_put(&types->by_address, address, (uint32_t)types->count);
	if (types->err)
		return TYPES_NONE;
	type.flags = field(types, address, offsets->heap.type_flags);
	type.basic_bytes = bounded(field(types, address, name + 8));
	type.item_bytes = bounded(field(types, address, name + 16));
	type.base = field(types, address, at->type_base);
	type.dict_at = (int64_t)field(types, address, at->type_dictoffset);
	type.weaklist_at = bounded(field(types, address, at->type_weaklist));
	type.members = field(types, address, at->type_members);
	type.finalize = field(types, address, at->type_finalize);
	if (type.flags & TYPE_HEAP)
		type.keys = field(types, address, at->heaptype_keys);
	image_text(types->image, field(types, address, name), type.name, sizeof(type.name));
	if (!type.name[0] && type.flags & TYPE_HEAP)
		types_heap_name(types, &type);
	layout_find(types, &type);
	types->entries[types->count] = type;
	return (uint32_t)types->count++;
}

int types_open(struct types *types, const struct image *image)
{
	*types = (struct types){.image = image, .strangers = calloc(STRANGERS, sizeof(uint64_t))};
	return types->strangers ? 0 : -ENOMEM;
}

void types_free(struct types *types)
{
	free(types->entries);
	free(types->strangers);
	id_map_free(&types->by_address);
	memset(types, 0, sizeof(*types));
}

uint32_t types_find(struct types *types, uint64_t address)
{
	uint64_t *stranger;
	uint32_t found;

	if (!address || address & 7 || address >> 47)
		return TYPES_NONE;
	found = id_map_find(&types->by_address, address);
	if (found != ID_MAP_NONE)
		return found;
	stranger = &types->strangers[hash_u64(address) & (STRANGERS - 1)];
	if (*stranger == address)
		return TYPES_NONE;
	if (is_type(types, address))
		return type_add(types, address);
	*stranger = address;
	return TYPES_NONE;
}

uint32_t types_head(const struct types *types, const struct type *type)
{
	return (type->flags & TYPE_GC ? types->image->offsets.heap.gc_head_bytes : 0) +
	       (type->flags & TYPE_PREHEADER ? PREHEADER : 0);
}

static int members_search(const struct types *types, uint64_t members, uint64_t offset,
			  char out[TYPES_NAME])
{
	for (int i = 0; i < MAX_MEMBERS; i++, members += MEMBER_BYTES) {
		const uint8_t *member = image_at(types->image, members, MEMBER_BYTES);
		uint32_t kind;

		if (!member || !word_at(member))
			return 0;
		memcpy(&kind, member + MEMBER_TYPE, sizeof(kind));
		if ((kind != MEMBER_OBJECT && kind != MEMBER_OBJECT_EX) ||
		    word_at(member + MEMBER_OFFSET) != offset)
			continue;
		image_text(types->image, word_at(member), out, TYPES_NAME);
		return out[0] != 0;
	}
	return 0;
}

int types_member(const struct types *types, const struct type *type, uint64_t offset,
		 char out[TYPES_NAME])
{
	const struct object_offsets *at = &types->image->offsets.objects;
	uint64_t members = type->members, base = type->base;

	for (int i = 0; i < MAX_BASES; i++) {
		if (members && members_search(types, members, offset, out))
			return 1;
		if (!base)
			return 0;
		members = field(types, base, at->type_members);
		base = field(types, base, at->type_base);
	}
	return 0;
}

/* A class of the program may have the name of a builtin type, but then it is on the heap. */
int types_field(const struct types *types, const struct type *type, uint64_t offset,
		struct object_field *out)
{
	const struct python_offsets *offsets = &types->image->offsets;
	uint64_t flags = type->flags, at = type->address;
	char name[TYPES_NAME];

	if (offset < refcount_header(offsets))
		return 0;
	offset -= refcount_header(offsets);
	for (int i = 0; i < MAX_BASES && at; i++) {
		image_text(types->image, field(types, at, offsets->heap.type_name), name,
			   sizeof(name));
		if ((!(flags & TYPE_HEAP) || strchr(name, '.')) &&
		    field_find(name, offsets->version, offset, out))
			return 1;
		at = field(types, at, offsets->objects.type_base);
		flags = field(types, at, offsets->heap.type_flags);
	}
	return 0;
}
