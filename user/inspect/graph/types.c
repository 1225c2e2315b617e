/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/graph/graph.h"
#include "inspect/graph/references.h"
#include "runtime/cpython/refcount.h"
#include "runtime/cpython/text_state.h"
#include "util/array.h"

/* --- sizes ------------------------------------------------------------------------------------ */

/* The bytes of an object: its block, and the tables that its layout tells. */

uint64_t graph_block_bytes(const struct graph *graph, uint64_t address)
{
	uint64_t bytes = address ? image_blocks_bytes(&graph->blocks, address) : 0;

	if (bytes || !address)
		return bytes;
	bytes = image_blocks_bytes(&graph->blocks, address - 16);
	return bytes && image_blocks_hooks(graph->image, address - 16, bytes) ? bytes : 0;
}

/* The block of values: in 3.11 and 3.12 they follow a prefix, whose last byte is its size. */
static uint64_t values_block(const struct graph *graph, uint64_t values)
{
	if (!values || graph->image->offsets.version < 0x030b ||
	    graph->image->offsets.version > 0x030c)
		return values;
	const uint8_t *prefix = image_at(graph->image, values - 1, 1);
	return prefix ? values - *prefix : 0;
}

/* The block of a list's items: without the GIL their number comes first. */
static uint64_t items_block(const struct graph *graph, uint64_t address)
{
	const struct python_offsets *offsets = &graph->image->offsets;
	uint64_t items = image_u64(graph->image, address + offsets->objects.list_items);

	return items && offsets->build == BUILD_FREE_THREADED ? items - 8 : items;
}

/* The table that counts with the object; 0: none. */
static uint64_t table_of(const struct graph *graph, uint64_t address, const struct type *type)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t table, values;

	switch (type->layout) {
	case LAYOUT_LIST:
		return items_block(graph, address);
	case LAYOUT_SET:
		table = image_u64(image, address + at->set_table);
		return table == address + at->set_small ? 0 : table;
	case LAYOUT_DICT:
		values = image_u64(image, address + at->dict_values);
		return values ? values_block(graph, values)
			      : image_u64(image, address + at->dict_keys);
	default:
		return 0;
	}
}

/* The block of values outside of the object: 3.11 has a pointer to them, 3.12 a tagged one. */
static uint64_t instance_values(const struct graph *graph, uint64_t address,
				const struct type *type)
{
	if (!(type->flags & TYPE_MANAGED_DICT))
		return 0;
	if (graph->image->offsets.version == 0x030b)
		return values_block(graph, image_u64(graph->image, address - 32));
	uint64_t word = image_u64(graph->image, address - 24);
	return graph->image->offsets.version == 0x030c && word & 1 ? values_block(graph, word + 1)
								   : 0;
}

int graph_tables_mark(struct graph *graph, uint64_t address, const struct type *type)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	struct image_blocks *blocks = &graph->blocks;
	uint64_t values;

	switch (type->layout) {
	case LAYOUT_LIST:
		return image_blocks_table(blocks, items_block(graph, address));
	case LAYOUT_SET:
		return image_blocks_table(blocks, image_u64(image, address + at->set_table));
	case LAYOUT_DICT:
		values = image_u64(image, address + at->dict_values);
		return image_blocks_table(blocks, image_u64(image, address + at->dict_keys))
			       ?: image_blocks_table(blocks, values_block(graph, values));
	case LAYOUT_TYPE:
		return image_blocks_table(blocks, image_u64(image, address + at->heaptype_keys));
	default:
		return image_blocks_table(blocks, instance_values(graph, address, type));
	}
}

int graph_tables_each(const struct graph *graph, uint32_t object, table_fn visit, void *context)
{
	const struct type *type = graph_type(graph, object);
	uint64_t address = graph->addresses[object];
	const uint64_t tables[] = {
		table_of(graph, address, type), instance_values(graph, address, type),
		type->layout == LAYOUT_TYPE
			? image_u64(graph->image,
				    address + graph->image->offsets.objects.heaptype_keys)
			: 0};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && !err; i++)
		err = tables[i] ? visit(context, tables[i]) : 0;
	return err;
}

uint64_t graph_own_bytes(const struct graph *graph, uint64_t address, const struct type *type)
{
	uint64_t bytes = graph_block_bytes(graph, address - types_head(&graph->types, type));

	/* Memory of another allocator, or a variable: what every instance has. */
	if (!bytes)
		bytes = (type->basic_bytes + 7) / 8 * 8;
	return bytes + graph_block_bytes(graph, table_of(graph, address, type)) +
	       graph_block_bytes(graph, instance_values(graph, address, type));
}

/* --- type names ------------------------------------------------------------------------------- */

/* The module and the qualified name of a class, as its repr() has them. */

#define MAX_KEYS 4096u /* of a class's dictionary that are read */

/* The text of a compact ASCII str. 1; 0: it is none. */
static int ascii_read(const struct image *image, uint64_t address, char out[TYPES_NAME])
{
	const struct abi_offsets *abi = &image->offsets.abi;
	uint64_t state = address ? image_u64(image, address + abi->unicode_state) : 0;

	out[0] = '\0';
	if (text_is_ascii(abi, state))
		image_text(image, address + abi->unicode_ascii, out, TYPES_NAME);
	return out[0] != 0;
}

/* The value of the key __module__ in the class's dictionary. */
static int module_read(const struct image *image, const struct type *type, char out[TYPES_NAME])
{
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t dict = image_u64(image, type->address + at->type_dict);
	struct keys keys;

	if (!dict || image_u64(image, dict + at->dict_values) ||
	    keys_read(image, image_u64(image, dict + at->dict_keys), &keys))
		return 0;
	for (uint64_t i = 0; i < keys.count && i < MAX_KEYS; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;

		if (ascii_read(image, image_u64(image, entry + keys.key_at), out) &&
		    !strcmp(out, "__module__"))
			return ascii_read(image, image_u64(image, entry + keys.value_at), out);
	}
	return 0;
}

/*
 * Sets the name of a type that an extension made, with its module, from its own str; unchanged if
 * there is none.
 */
static void types_heap_name(const struct types *types, struct type *type)
{
	const struct image *image = types->image;
	char module[TYPES_NAME], name[TYPES_NAME], full[TYPES_FULL_NAME];

	if (!ascii_read(image,
			image_u64(image, type->address + image->offsets.objects.heaptype_name),
			name))
		return;
	if (module_read(image, type, module) && strcmp(module, "builtins"))
		snprintf(full, sizeof(full), "%s.%s", module, name);
	else
		snprintf(full, sizeof(full), "%s", name);
	full[TYPES_NAME - 1] = 0;
	memcpy(type->name, full, TYPES_NAME);
}

void types_full_name(const struct types *types, const struct type *type, char out[TYPES_FULL_NAME])
{
	const struct image *image = types->image;
	char module[TYPES_NAME], name[TYPES_NAME];

	snprintf(out, TYPES_FULL_NAME, "%s", type->name);
	/* The name of a type that is written in C has its module. */
	if (!(type->flags & TYPE_HEAP) || strchr(type->name, '.') ||
	    !module_read(image, type, module) || !strcmp(module, "builtins"))
		return;
	if (!ascii_read(image,
			image_u64(image, type->address + image->offsets.objects.heaptype_qualname),
			name))
		snprintf(name, sizeof(name), "%s", type->name);
	snprintf(out, TYPES_FULL_NAME, "%s.%s", module, name);
}

/* --- types ------------------------------------------------------------------------------------ */

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
static bool is_cython(const char *name)
{
	const char *last = strrchr(name, '.');

	return !strcmp(last ? last + 1 : name, "cython_function_or_method");
}

static int named_layout(const struct types *types, uint64_t address, enum types_layout *out)
{
	const struct image *image = types->image;
	char name[64];

	image_text(image, field(types, address, image->offsets.heap.type_name), name, sizeof(name));
	for (size_t i = 0; i < ARRAY_SIZE(extensions); i++)
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
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
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

static bool is_type(const struct types *types, uint64_t address)
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
	types->err = ARRAY_GROW(types->entries, types->capacity, types->count);
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
	if (!address || address & 7 || address >> 47)
		return TYPES_NONE;
	uint32_t found = id_map_find(&types->by_address, address);
	if (found != ID_MAP_NONE)
		return found;
	uint64_t *stranger = &types->strangers[hash_u64(address) & (STRANGERS - 1)];
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
