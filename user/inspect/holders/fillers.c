/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/fillers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/holders/fill_nodes.h"
#include "inspect/holders/values.h"
#include "runtime/cpython/lines.h"
#include "util/array.h"
#include "util/sorted.h"
#include "util/utf8.h"

#define CODE_MAX   (256u << 10) /* bytes of one code object's instructions */
#define WORK_MAX   (256u << 20) /* bytes of all of them */
#define NAMES_MAX  65536u       /* of a code object */
#define DEPTH_MAX  16u          /* of functions in functions */
#define FILE_MAX   4096u        /* characters of a file's name */
#define FOUND_MAX  65536u
#define MRO_MAX    64u
#define FIRST_KEYS 16u

/* Added to a place's tier. */
#define SCORE_OWNER   2 /* a method of the object that has the container */
#define SCORE_WEAK    2 /* a method that adds something in some classes */
#define SCORE_READ    1 /* reading a defaultdict */
#define SCORE_REPLACE 3 /* it stores items, and adds none */
#define SCORE_LIBRARY 4

/* What the names in code are good for. */
enum word_use { USE_NONE, USE_ADDS, USE_MAY_ADD, USE_PUSHES, USE_GIVES };

static const struct {
	const char *name;
	enum word_use use;
	int gives; /* it returns an item, too */
} words[] = {
	{"append", USE_ADDS, 0},        {"appendleft", USE_ADDS, 0},
	{"add", USE_ADDS, 0},           {"extend", USE_ADDS, 0},
	{"extendleft", USE_ADDS, 0},    {"insert", USE_ADDS, 0},
	{"setdefault", USE_ADDS, 1},    {"update", USE_ADDS, 0},
	{"put", USE_ADDS, 0},           {"put_nowait", USE_ADDS, 0},
	{"__setitem__", USE_ADDS, 0},   {"push", USE_ADDS, 0},
	{"push_back", USE_ADDS, 0},     {"set", USE_MAY_ADD, 0},
	{"register", USE_MAY_ADD, 0},   {"connect", USE_MAY_ADD, 0},
	{"subscribe", USE_MAY_ADD, 0},  {"send", USE_MAY_ADD, 0},
	{"store", USE_MAY_ADD, 0},      {"save", USE_MAY_ADD, 0},
	{"heappush", USE_PUSHES, 0},    {"insort", USE_PUSHES, 0},
	{"insort_left", USE_PUSHES, 0}, {"insort_right", USE_PUSHES, 0},
	{"get", USE_GIVES, 1},          {"__getitem__", USE_GIVES, 1},
};

/* A function, or code that is in one. */
struct unit {
	uint64_t code;
	uint32_t globals;           /* its dictionary; GRAPH_NONE: not known */
	uint64_t function;          /* 0: none */
	uint64_t closure, defaults; /* tuples; 0: none */
	uint64_t names;             /* co_names */
	uint32_t name_count;
	char *qualname;      /* with the module; NULL: not looked for yet */
	size_t module_bytes; /* of it, with the dot */
};

struct finder {
	const struct paths *paths;
	struct graph *graph;
	const struct python_offsets *offsets;
	struct opcodes opcodes;
	struct fill_nodes nodes;
	struct strings *words; /* words[] first, with ids from 1 on, then the names of nodes */
	struct strings *names; /* of the result */
	struct id_map name_of; /* by address of a str: its id in words */
	struct id_map visited; /* code objects */
	struct id_map loaded;  /* dictionaries of modules, that are in globals */
	struct id_map globals; /* variable: hash of the dictionary's and the name's addresses */
	struct id_map modules; /* hash of a module's file: its dictionary */
	struct unit *unit;
	uint64_t work;
	struct filler *found;
	size_t count, capacity;
	int err;
};

static uint64_t u64_at(const struct finder *finder, uint64_t address)
{
	return image_u64(finder->graph->image, address);
}

static uint32_t u32_at(const struct finder *finder, uint64_t address)
{
	const uint8_t *bytes = image_at(finder->graph->image, address, 4);
	uint32_t value = 0;

	if (bytes)
		memcpy(&value, bytes, sizeof(value));
	return value;
}

static uint64_t tuple_size(const struct finder *finder, uint64_t tuple)
{
	uint32_t object = tuple ? graph_find(finder->graph, tuple) : GRAPH_NONE;

	if (object == GRAPH_NONE || graph_type(finder->graph, object)->layout != LAYOUT_TUPLE)
		return 0;
	return u64_at(finder, tuple + finder->offsets->abi.bytes_size);
}

static uint64_t tuple_item(const struct finder *finder, uint64_t tuple, uint64_t i)
{
	return u64_at(finder, tuple + finder->offsets->objects.tuple_items + i * 8);
}

/* --- names and values ---------------------------------------------------------------------- */

static uint64_t name_address(const struct finder *finder, uint32_t index)
{
	return index < finder->unit->name_count ? tuple_item(finder, finder->unit->names, index)
						: 0;
}

/* 0: it is none that is looked for */
static uint32_t name_find(struct finder *finder, uint32_t index)
{
	uint64_t address = name_address(finder, index);
	uint32_t id = id_map_find(&finder->name_of, address);

	if (id != ID_MAP_NONE)
		return id;
	id = fill_name_find(&finder->nodes, address);
	finder->err = finder->err ?: id_map_put(&finder->name_of, address, id);
	return id;
}

static enum word_use use_of(uint32_t name)
{
	return name && name <= ARRAY_SIZE(words) ? words[name - 1].use : USE_NONE;
}

static struct scan_value object_value(uint32_t object)
{
	return (struct scan_value){.kind = object == GRAPH_NONE ? SCAN_NOTHING : SCAN_OBJECT,
				   .object = object};
}

static struct scan_value address_value(const struct finder *finder, uint64_t address)
{
	return object_value(address ? graph_find(finder->graph, address) : GRAPH_NONE);
}

static uint64_t variable_key(uint32_t dict, uint64_t name)
{
	return hash_u64((uint64_t)dict + 1) ^ name;
}

/* Puts the variables of a module into finder->globals. */
static void globals_load(struct finder *finder, uint32_t dict)
{
	const struct graph *graph = finder->graph;
	struct keys keys;

	finder->err = finder->err ?: id_map_put(&finder->loaded, dict, 1);
	if (graph_type(graph, dict)->layout != LAYOUT_DICT ||
	    keys_read(graph->image,
		      u64_at(finder, graph->addresses[dict] + finder->offsets->objects.dict_keys),
		      &keys) ||
	    !keys.value_at)
		return;
	for (uint64_t i = 0; i < keys.count && !finder->err; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;
		uint64_t value = u64_at(finder, entry + keys.value_at);
		uint32_t object = value ? graph_find(graph, value) : GRAPH_NONE;

		if (object != GRAPH_NONE)
			finder->err = id_map_put(
				&finder->globals,
				variable_key(dict, u64_at(finder, entry + keys.key_at)), object);
	}
}

/* A variable of a module, GRAPH_NONE: there is none. */
static uint32_t global_find(struct finder *finder, uint32_t dict, uint64_t name)
{
	if (dict == GRAPH_NONE || !name)
		return GRAPH_NONE;
	if (id_map_find(&finder->loaded, dict) == ID_MAP_NONE)
		globals_load(finder, dict);
	uint32_t found = id_map_find(&finder->globals, variable_key(dict, name));
	return found == ID_MAP_NONE ? GRAPH_NONE : found;
}

static uint32_t module_dict(const struct finder *finder, uint32_t module)
{
	uint64_t address = finder->graph->addresses[module] + finder->offsets->objects.module_dict;

	return graph_find(finder->graph, u64_at(finder, address));
}

/* --- where the code is --------------------------------------------------------------------- */

/* Appends the name of the module of a dictionary, with a dot. 0, -ENOMEM. */
static int module_append(const struct finder *finder, uint32_t dict, struct buffer *text)
{
	const struct paths *paths = finder->paths;
	uint32_t module = dict == GRAPH_NONE ? GRAPH_NONE : paths->parent[dict], above;

	above = module == GRAPH_NONE ? GRAPH_NONE : paths->parent[module];
	if (above == GRAPH_NONE || !graph_is_modules(finder->graph, above))
		return 0;
	int got = values_qualname(finder->graph,
				  dict_key(finder->graph, above, paths->slot[module]), text);
	return got > 0 ? buffer_append(text, ".", 1) : got;
}

/* "shop.cache.Handler.do_GET"; "": not known. */
static const char *unit_qualname(struct finder *finder)
{
	struct unit *unit = finder->unit;
	uint64_t name = unit->function ? unit->function + finder->offsets->objects.function_name
				       : unit->code + finder->offsets->abi.code_qualname;
	struct buffer text = {0};

	if (unit->qualname)
		return unit->qualname;
	int got = module_append(finder, unit->globals, &text);
	unit->module_bytes = text.size;
	if (!got)
		got = values_qualname(finder->graph, u64_at(finder, name), &text);
	if (got <= 0)
		unit->module_bytes = text.size = 0;
	if (got < 0 || buffer_append(&text, "", 1)) {
		finder->err = -ENOMEM;
		buffer_free(&text);
		return "";
	}
	unit->qualname = (char *)text.data;
	return unit->qualname;
}

/* Whether its first argument is an object of the class that it is defined in. */
static bool unit_is_method(struct finder *finder)
{
	static const char inner[] = "<locals>";
	const char *name = unit_qualname(finder) + finder->unit->module_bytes;
	const char *dot = strrchr(name, '.');

	return dot && dot != name &&
	       u32_at(finder, finder->unit->code + finder->offsets->objects.code_arguments) &&
	       (dot - name < (ptrdiff_t)sizeof(inner) ||
		memcmp(dot - (sizeof(inner) - 1), inner, sizeof(inner) - 1) != 0);
}

static bool unit_is_init(struct finder *finder)
{
	const char *dot = strrchr(unit_qualname(finder), '.');

	return dot && !strcmp(dot, ".__init__");
}

/* Whether the code is in the class's body or in that of one of its bases. */
static bool unit_is_in_class(struct finder *finder, uint32_t type)
{
	struct types *types = &finder->graph->types;
	const char *qualname = unit_qualname(finder);
	char full[TYPES_FULL_NAME];

	if (type >= types->count)
		return 0;
	uint64_t mro =
		u64_at(finder, types->entries[type].address + finder->offsets->objects.type_mro);
	uint64_t count = tuple_size(finder, mro);
	for (uint64_t i = 0; i < count && i < MRO_MAX; i++) {
		uint32_t base = types_find(types, tuple_item(finder, mro, i));

		if (base == TYPES_NONE)
			continue;
		types_full_name(types, &types->entries[base], full);
		size_t bytes = strlen(full);
		if (!strncmp(qualname, full, bytes) && qualname[bytes] == '.')
			return 1;
	}
	return 0;
}

static bool unit_is_in_module(struct finder *finder, uint32_t type)
{
	struct types *types = &finder->graph->types;
	const char *qualname = unit_qualname(finder);
	char full[TYPES_FULL_NAME];

	if (type >= types->count || !finder->unit->module_bytes)
		return 0;
	types_full_name(types, &types->entries[type], full);
	return !strncmp(qualname, full, finder->unit->module_bytes);
}

/* --- what is found ------------------------------------------------------------------------- */

static uint32_t text_intern(struct finder *finder, uint64_t address)
{
	char out[UTF8_ENCODED(FILE_MAX) + 1];
	struct values_text text;
	uint32_t id = 0;

	if (!values_text(finder->graph, address, &text) || text.length * text.kind > FILE_MAX)
		return 0;
	size_t bytes =
		utf8_from_python(out, text.data, text.kind, (uint32_t)(text.length * text.kind));
	if (!finder->err)
		finder->err = strings_intern(finder->names, out, bytes, &id);
	return id;
}

static uint32_t line_at(const struct finder *finder, size_t at)
{
	const struct abi_offsets *abi = &finder->offsets->abi;
	uint64_t lines = u64_at(finder, finder->unit->code + abi->code_lines);
	uint64_t bytes = u64_at(finder, lines + abi->bytes_size);
	struct lines_table table = {
		.format = finder->offsets->lines,
		.first_line = (int)u32_at(finder, finder->unit->code + abi->code_first_line),
		.data = bytes >> 24
				? NULL
				: image_at(finder->graph->image, lines + abi->bytes_data, bytes),
		.bytes = bytes};
	int line = table.data ? lines_find(&table, (int)at) : 0;

	return line > 0 ? (uint32_t)line : 0;
}

static bool is_library(const char *file)
{
	static const char *const parts[] = {"/site-packages/", "/dist-packages/", "/lib/python3",
					    "/lib64/python3"};

	if (!strncmp(file, "<frozen ", 8))
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strstr(file, parts[i]))
			return 1;
	return 0;
}

static uint32_t unit_file(struct finder *finder)
{
	return text_intern(finder,
			   u64_at(finder, finder->unit->code + finder->offsets->abi.code_filename));
}

static bool unit_is_library(struct finder *finder)
{
	return is_library(strings_get(finder->names, unit_file(finder)));
}

/* line: 0: that of the function, all calls of which are meant */
static void found_add(struct finder *finder, uint32_t row, uint32_t score, uint32_t line)
{
	const struct abi_offsets *abi = &finder->offsets->abi;

	if (finder->err || finder->count == FOUND_MAX)
		return;
	finder->err = ARRAY_GROW(finder->found, finder->capacity, finder->count);
	if (finder->err)
		return;
	struct filler *filler = &finder->found[finder->count];
	*filler = (struct filler){.row = row, .score = score, .line = line, .calls = !line};
	if (!line)
		filler->line = u32_at(finder, finder->unit->code + abi->code_first_line);
	filler->filename = unit_file(finder);
	const char *name = unit_qualname(finder) + finder->unit->module_bytes;
	if (!finder->err)
		finder->err = strings_intern(finder->names, name, strlen(name), &filler->function);
	if (is_library(strings_get(finder->names, filler->filename)))
		filler->score += SCORE_LIBRARY;
	finder->count += filler->filename != 0;
}

static bool object_is_of(const struct finder *finder, struct scan_value value,
			 const struct fill_node *node)
{
	const struct id_map *objects = &finder->nodes.objects;
	uint64_t key = fill_object(value.object, value.is_item);
	uint32_t at = (uint32_t)(node - finder->nodes.nodes);

	return id_map_find(objects, key) != ID_MAP_NONE &&
	       id_map_find(objects, fill_object_of(key, at)) != ID_MAP_NONE;
}

/* How sure it is that a value is what the node is about. */
static enum fill_tier node_match(struct finder *finder, const struct fill_node *node,
				 struct scan_value value)
{
	uint32_t name = value.is_item ? node->item_name : node->name;
	uint32_t type = value.is_item ? node->item_type : node->type;

	if (value.kind == SCAN_OBJECT)
		return object_is_of(finder, value, node) ? TIER_EXACT : TIER_NONE;
	/* A method of a class that derives from a container. */
	if (value.kind == SCAN_SELF && !value.is_item && !node->is_owner)
		return unit_is_in_class(finder, node->own_type) && !unit_is_library(finder)
			       ? TIER_CLASS
			       : TIER_NONE;
	if (value.kind != SCAN_ATTRIBUTE || !name || name != value.name)
		return TIER_NONE;
	if (value.base == SCAN_OBJECT)
		return finder->graph->type_of[value.object] == type ? TIER_CLASS : TIER_NONE;
	if (unit_is_in_class(finder, type))
		return TIER_CLASS;
	if (value.base == SCAN_SELF)
		return TIER_NONE;
	return unit_is_in_module(finder, type) ? TIER_MODULE : TIER_NAME;
}

static void value_filled(struct finder *finder, const struct scan *scan, struct scan_value value,
			 uint32_t more)
{
	uint32_t line = 0;

	for (uint32_t i = 0; i < finder->nodes.count; i++) {
		const struct fill_node *node = &finder->nodes.nodes[i];
		enum fill_tier tier = node_match(finder, node, value);

		if (tier == TIER_NONE)
			continue;
		line = line ?: line_at(finder, scan->at);
		if (line)
			found_add(finder, node->row,
				  tier + more + (node->is_owner ? SCORE_OWNER : 0), line);
	}
}

/* --- what the scan asks -------------------------------------------------------------------- */

static bool is_function(const struct graph *graph, uint32_t object)
{
	return !strcmp(graph_type(graph, object)->name, "function");
}

static struct scan_value global_value(struct scan *scan, uint32_t index)
{
	struct finder *finder = scan->context;

	if (use_of(name_find(finder, index)) == USE_PUSHES)
		return (struct scan_value){.kind = SCAN_PUSHER};
	uint32_t found = global_find(finder, finder->unit->globals, name_address(finder, index));
	struct scan_value value = object_value(found);
	value.is_callable =
		found != GRAPH_NONE && (graph_type(finder->graph, found)->layout == LAYOUT_TYPE ||
					is_function(finder->graph, found));
	return value;
}

static struct scan_value local_value(struct scan *scan, uint32_t slot)
{
	struct finder *finder = scan->context;
	const struct unit *unit = finder->unit;
	uint32_t object = id_map_find(&finder->nodes.slots, fill_slot(unit->code, slot));

	if (object != ID_MAP_NONE)
		return object_value(object);
	if (!slot && unit_is_method(finder))
		return (struct scan_value){.kind = SCAN_SELF};
	uint64_t count = tuple_size(finder, unit->defaults);
	if (!count)
		return object_value(GRAPH_NONE);
	uint64_t first =
		u32_at(finder, unit->code + finder->offsets->objects.code_arguments) - count;
	return slot - first < count
		       ? address_value(finder, tuple_item(finder, unit->defaults, slot - first))
		       : object_value(GRAPH_NONE);
}

/* A variable that functions share: of an outer function, or of this one's own. */
static struct scan_value cell_value(struct scan *scan, uint32_t slot)
{
	struct finder *finder = scan->context;
	const struct unit *unit = finder->unit;
	const struct object_offsets *at = &finder->offsets->objects;
	uint64_t count = tuple_size(finder, unit->closure), own, cell;

	if (at->code_slots == ABI_NONE)
		own = tuple_size(finder, u64_at(finder, unit->code + at->code_cells));
	else
		own = u32_at(finder, unit->code + at->code_slots) - count;
	if (slot >= own && slot - own < count) {
		cell = tuple_item(finder, unit->closure, slot - own);
		return address_value(finder, u64_at(finder, cell + at->cell_value));
	}
	if (at->code_slots == ABI_NONE)
		slot += (uint32_t)tuple_size(finder,
					     u64_at(finder, unit->code + at->code_variables));
	own = id_map_find(&finder->nodes.slots, fill_slot(unit->code, slot));
	return object_value(own == ID_MAP_NONE ? GRAPH_NONE : (uint32_t)own);
}

/* The attribute of a value, if it is one that nodes are about. */
static struct scan_value plain_attribute(struct finder *finder, struct scan_value of,
					 uint32_t index, uint32_t name)
{
	struct scan_value value = {.kind = SCAN_ATTRIBUTE, .name = name};

	if (of.kind == SCAN_OBJECT && !of.is_item && !of.is_computed) {
		uint32_t found = id_map_find(&finder->nodes.edges, fill_edge(of.object, name));

		if (graph_type(finder->graph, of.object)->layout == LAYOUT_MODULE)
			return object_value(global_find(finder, module_dict(finder, of.object),
							name_address(finder, index)));
		if (name && found != ID_MAP_NONE)
			return object_value(found);
		value.base = SCAN_OBJECT;
		value.object = of.object;
	} else if (of.kind == SCAN_SELF) {
		value.base = SCAN_SELF;
	}
	return name > ARRAY_SIZE(words) ? value : object_value(GRAPH_NONE);
}

/* The items of a dictionary that is known are told by it; else a key is like an attribute. */
static struct scan_value key_value(struct scan *scan, struct scan_value of, uint32_t index)
{
	struct finder *finder = scan->context;
	const struct object_offsets *at = &finder->offsets->objects;
	uint64_t constants = u64_at(finder, finder->unit->code + at->code_constants);
	uint32_t name = 0;

	if (of.kind == SCAN_OBJECT && graph_type(finder->graph, of.object)->layout == LAYOUT_DICT)
		return object_value(GRAPH_NONE);
	if (index < tuple_size(finder, constants))
		name = fill_name_find(&finder->nodes, tuple_item(finder, constants, index));
	return name > ARRAY_SIZE(words) ? (struct scan_value){.kind = SCAN_ATTRIBUTE, .name = name}
					: object_value(GRAPH_NONE);
}

static struct scan_value attribute_value(struct scan *scan, struct scan_value of, uint32_t index)
{
	struct finder *finder = scan->context;
	uint32_t name = name_find(finder, index);
	enum word_use use = use_of(name);

	if (use == USE_PUSHES)
		return (struct scan_value){.kind = SCAN_PUSHER};
	if (use == USE_NONE || of.is_computed || of.gives_item || of.kind < SCAN_OBJECT ||
	    of.kind > SCAN_ATTRIBUTE)
		return plain_attribute(finder, of, index, name);
	/* A method that adds is loaded to be called, now or by another function. */
	if (use == USE_ADDS || use == USE_MAY_ADD)
		value_filled(finder, scan, of, use == USE_MAY_ADD ? SCORE_WEAK : 0);
	of.gives_item = words[name - 1].gives && !of.is_item;
	return of.gives_item ? of : object_value(GRAPH_NONE);
}

static void write_found(struct scan *scan, struct scan_value to, enum scan_write how)
{
	struct finder *finder = scan->context;
	uint32_t line = 0;

	for (uint32_t i = 0; i < finder->nodes.count; i++) {
		const struct fill_node *node = &finder->nodes.nodes[i];
		enum fill_tier tier = node_match(finder, node, to);
		uint32_t more = node->is_owner ? SCORE_OWNER : 0;

		if (tier == TIER_NONE || (how == SCAN_READ_ITEM && !node->is_default) ||
		    (how == SCAN_INPLACE && node->is_owner))
			continue;
		if (how == SCAN_READ_ITEM)
			more += SCORE_READ;
		if (how == SCAN_STORE_ITEM && node->is_list)
			more += SCORE_REPLACE;
		line = line ?: line_at(finder, scan->at);
		if (line)
			found_add(finder, node->row, tier + more, line);
	}
}

/*
 * A value takes the place of a container, if it was computed with it: a copy with more in it.
 * is_replaced: so does any other of an object that is no container, such as the next one of a list.
 */
static void replacement_found(struct finder *finder, const struct scan *scan, struct scan_value old,
			      struct scan_value by, int is_replaced)
{
	struct scan_value source = by;
	uint32_t line = line_at(finder, scan->at);

	source.is_computed = 0;
	for (uint32_t i = 0; i < finder->nodes.count && line; i++) {
		const struct fill_node *node = &finder->nodes.nodes[i];
		enum fill_tier tier = node_match(finder, node, old);

		if (tier == TIER_NONE || node->is_owner)
			continue;
		if ((by.is_computed && node_match(finder, node, source) != TIER_NONE) ||
		    (is_replaced && node->is_plain && by.kind != SCAN_CONSTANT))
			found_add(finder, node->row, tier, line);
	}
}

static void global_replaced(struct scan *scan, uint32_t index, struct scan_value by)
{
	struct finder *finder = scan->context;
	struct scan_value old = global_value(scan, index);

	if (old.kind == SCAN_OBJECT && by.is_computed)
		replacement_found(finder, scan, old, by, 0);
}

static void attribute_replaced(struct scan *scan, struct scan_value of, uint32_t index,
			       struct scan_value by)
{
	struct finder *finder = scan->context;
	struct scan_value old = plain_attribute(finder, of, index, name_find(finder, index));

	/* Where an object is made, its attributes are no news. */
	if (old.kind)
		replacement_found(finder, scan, old, by,
				  of.kind != SCAN_SELF || !unit_is_init(finder));
}

/* --- all code ------------------------------------------------------------------------------ */

static const struct scan_calls calls = {
	.global = global_value,
	.local = local_value,
	.cell = cell_value,
	.attribute = attribute_value,
	.key = key_value,
	.write = write_found,
	.replace_global = global_replaced,
	.replace_attribute = attribute_replaced,
};

/* Takes off the work that is left. 0: there is not enough. */
static int works(struct finder *finder, uint64_t bytes)
{
	if (finder->work < bytes)
		return 0;
	finder->work -= bytes;
	return 1;
}

/* The instructions of a code object. NULL: they cannot be read. */
static const uint8_t *unit_code(const struct finder *finder, size_t *bytes)
{
	const struct python_offsets *offsets = finder->offsets;
	uint64_t address = finder->unit->code, count;

	if (offsets->objects.code_instructions == ABI_NONE) {
		/* ob_size counts code units. */
		count = u64_at(finder, address + offsets->abi.bytes_size) * 2;
		address += offsets->abi.code_bytecode;
	} else {
		address = u64_at(finder, address + offsets->objects.code_instructions);
		count = u64_at(finder, address + offsets->abi.bytes_size);
		address += offsets->abi.bytes_data;
	}
	if (count > CODE_MAX)
		return NULL;
	*bytes = count;
	return image_at(finder->graph->image, address, count);
}

static void unit_scan(struct finder *finder, struct unit *unit)
{
	struct scan scan = {.opcodes = &finder->opcodes, .calls = &calls, .context = finder};

	finder->unit = unit;
	unit->names = u64_at(finder, unit->code + finder->offsets->objects.code_names);
	uint64_t count = tuple_size(finder, unit->names);
	unit->name_count = count > NAMES_MAX ? 0 : (uint32_t)count;
	scan.code = unit_code(finder, &scan.bytes);
	if (scan.code && works(finder, scan.bytes))
		code_scan(&scan);
	free(unit->qualname);
	unit->qualname = NULL;
}

/* 1: for the first time */
static int visit(struct finder *finder, uint64_t code)
{
	if (finder->err || id_map_find(&finder->visited, code) != ID_MAP_NONE)
		return 0;
	finder->err = id_map_put(&finder->visited, code, 1);
	return !finder->err;
}

static bool is_code(const struct finder *finder, uint64_t address)
{
	uint32_t object = address ? graph_find(finder->graph, address) : GRAPH_NONE;

	return object != GRAPH_NONE && graph_type(finder->graph, object)->layout == LAYOUT_CODE;
}

/* Code that is a constant of other code: of lambdas, comprehensions, functions that are made. */
static void inner_scan(struct finder *finder, const struct unit *outer, unsigned int depth)
{
	uint64_t constants = u64_at(finder, outer->code + finder->offsets->objects.code_constants);
	uint64_t count = depth < DEPTH_MAX ? tuple_size(finder, constants) : 0;

	if (!works(finder, count))
		return;
	for (uint64_t i = 0; i < count && !finder->err; i++) {
		struct unit unit = {.code = tuple_item(finder, constants, i),
				    .globals = outer->globals};

		if (!is_code(finder, unit.code) || !visit(finder, unit.code))
			continue;
		/* Up to 3.10 it does not know which class it is in. */
		if (finder->offsets->objects.code_slots == ABI_NONE)
			unit.function = outer->function;
		unit_scan(finder, &unit);
		inner_scan(finder, &unit, depth + 1);
	}
}

/* Whether a variable of an outer function, or a default value, is one of the nodes. */
static bool has_node(struct finder *finder, uint64_t tuple, int cells)
{
	uint64_t count = tuple_size(finder, tuple);

	for (uint64_t i = 0; works(finder, 1) && i < count; i++) {
		uint64_t address = tuple_item(finder, tuple, i);

		if (cells)
			address = u64_at(finder, address + finder->offsets->objects.cell_value);
		uint32_t object = address ? graph_find(finder->graph, address) : GRAPH_NONE;
		if (object != GRAPH_NONE &&
		    (id_map_find(&finder->nodes.objects, fill_object(object, 0)) != ID_MAP_NONE ||
		     id_map_find(&finder->nodes.objects, fill_object(object, 1)) != ID_MAP_NONE))
			return 1;
	}
	return 0;
}

static struct unit function_unit(const struct finder *finder, uint64_t function)
{
	const struct object_offsets *at = &finder->offsets->objects;

	return (struct unit){.function = function,
			     .code = u64_at(finder, function + at->function_code),
			     .globals = graph_find(finder->graph,
						   u64_at(finder, function + at->function_globals)),
			     .closure = u64_at(finder, function + at->function_closure),
			     .defaults = u64_at(finder, function + at->function_defaults)};
}

/* Many functions may have one code: of those that are made again and again. */
static void functions_scan(struct finder *finder, int inner)
{
	const struct graph *graph = finder->graph;

	for (size_t i = 0; i < graph->count && !finder->err; i++) {
		if (!is_function(graph, (uint32_t)i))
			continue;
		struct unit unit = function_unit(finder, graph->addresses[i]);
		if (!is_code(finder, unit.code))
			continue;
		if (inner)
			inner_scan(finder, &unit, 0);
		else if (visit(finder, unit.code) || has_node(finder, unit.closure, 1) ||
			 has_node(finder, unit.defaults, 0))
			unit_scan(finder, &unit);
	}
}

/* --- code that no function has ------------------------------------------------------------- */

static uint64_t text_hash(const struct values_text *text)
{
	uint64_t hash = text->kind;

	for (uint64_t i = 0; i < text->length * text->kind && i < FILE_MAX; i++)
		hash = hash_u64(hash ^ text->data[i]);
	return hash;
}

static bool is_file_key(const struct finder *finder, uint64_t address)
{
	struct values_text text;

	return values_text(finder->graph, address, &text) && text.kind == 1 && text.length == 8 &&
	       !memcmp(text.data, "__file__", 8);
}

/* Notes the file of a module, which is among its first variables. */
static void module_note(struct finder *finder, uint32_t module)
{
	uint32_t dict = module_dict(finder, module);
	struct values_text text = {0};
	struct keys keys;

	if (dict == GRAPH_NONE || graph_type(finder->graph, dict)->layout != LAYOUT_DICT ||
	    keys_read(finder->graph->image,
		      u64_at(finder,
			     finder->graph->addresses[dict] + finder->offsets->objects.dict_keys),
		      &keys) ||
	    !keys.value_at)
		return;
	for (uint64_t i = 0; i < keys.count && i < FIRST_KEYS && !text.data; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;

		if (is_file_key(finder, u64_at(finder, entry + keys.key_at)) &&
		    !values_text(finder->graph, u64_at(finder, entry + keys.value_at), &text))
			text.data = NULL;
	}
	if (!text.data) /* python -c */
		text = (struct values_text){(const uint8_t *)"<string>", 8, 1};
	if (!finder->err && id_map_find(&finder->modules, text_hash(&text)) == ID_MAP_NONE)
		finder->err = id_map_put(&finder->modules, text_hash(&text), dict);
}

/* The variables of the module whose file it is from. */
static uint32_t file_globals(struct finder *finder, uint64_t code)
{
	struct values_text text;
	uint32_t dict = GRAPH_NONE;

	if (values_text(finder->graph, u64_at(finder, code + finder->offsets->abi.code_filename),
			&text))
		dict = id_map_find(&finder->modules, text_hash(&text));
	return dict == ID_MAP_NONE ? GRAPH_NONE : dict;
}

/* The code of modules and classes that run, and of functions that run and that nothing has. */
static void others_scan(struct finder *finder)
{
	const struct graph *graph = finder->graph;

	for (size_t i = 0; i < graph->count && !finder->err; i++)
		if (graph_type(graph, (uint32_t)i)->layout == LAYOUT_MODULE)
			module_note(finder, (uint32_t)i);
	for (size_t i = 0; i < graph->count && !finder->err; i++) {
		struct unit unit = {.code = graph->addresses[i]};

		if (graph_type(graph, (uint32_t)i)->layout != LAYOUT_CODE ||
		    !visit(finder, unit.code))
			continue;
		unit.globals = file_globals(finder, unit.code);
		unit_scan(finder, &unit);
	}
}

/* --- the interface ------------------------------------------------------------------------- */

static void calls_add(struct finder *finder, struct unit *unit, uint32_t row)
{
	finder->unit = unit;
	found_add(finder, row, 0, 0);
	free(unit->qualname);
	finder->unit = NULL;
}

/* What an lru_cache keeps is filled by calls of its function. 1: it is that. */
static int cache_add(struct finder *finder, uint32_t row, uint32_t object)
{
	uint32_t owner = finder->paths->parent[object];

	if (owner == GRAPH_NONE || graph_type(finder->graph, owner)->layout != LAYOUT_LRU_CACHE)
		return 0;
	uint64_t function = cache_function_at(finder->graph, owner);
	struct unit unit = function_unit(finder, function);
	if (function && is_code(finder, unit.code))
		calls_add(finder, &unit, row);
	return 1;
}

static int filler_compare(const void *a, const void *b)
{
	const struct filler *x = a, *y = b;

	return CMP(x->row, y->row)
		?: CMP(x->filename, y->filename)
		?: CMP(x->line, y->line)
		?: CMP(x->score, y->score);
}

static int score_compare(const void *a, const void *b)
{
	const struct filler *x = a, *y = b;

	return CMP(x->row, y->row) ?: CMP(x->score, y->score) ?: filler_compare(a, b);
}

/* One of each line; without those that have a name in common only, if there are others. */
static size_t found_settle(struct filler *found, size_t count)
{
	size_t kept = 0, used = 0;
	uint32_t row = 0;
	int by_name = 0;

	if (count)
		qsort(found, count, sizeof(*found), filler_compare);
	for (size_t i = 0; i < count; i++)
		if (!kept || found[i].row != found[kept - 1].row ||
		    found[i].filename != found[kept - 1].filename ||
		    found[i].line != found[kept - 1].line)
			found[kept++] = found[i];
	if (kept)
		qsort(found, kept, sizeof(*found), score_compare);
	for (size_t i = 0; i < kept; i++) {
		if (!i || found[i].row != row) {
			row = found[i].row;
			by_name = found[i].score >= TIER_NAME;
		}
		if (by_name || found[i].score < TIER_NAME)
			found[used++] = found[i];
	}
	return used;
}

static void finder_free(struct finder *finder)
{
	fill_nodes_free(&finder->nodes);
	strings_free(finder->words);
	id_map_free(&finder->name_of);
	id_map_free(&finder->visited);
	id_map_free(&finder->loaded);
	id_map_free(&finder->globals);
	id_map_free(&finder->modules);
}

static int finder_open(struct finder *finder, const struct filler_row *rows, size_t count)
{
	uint32_t id;
	int err = strings_new(&finder->words);

	for (size_t i = 0; i < ARRAY_SIZE(words) && !err; i++)
		err = strings_intern(finder->words, words[i].name, strlen(words[i].name), &id);
	return err ?: fill_nodes_make(&finder->nodes, finder->paths, finder->words, rows, count);
}

int fillers_find(const struct paths *paths, const struct filler_row *rows, size_t row_count,
		 struct strings *names, struct filler **out, size_t *count)
{
	const struct python_offsets *offsets = &paths->graph->image->offsets;
	struct finder finder = {.paths = paths,
				.graph = paths->graph,
				.offsets = offsets,
				.names = names,
				.work = WORK_MAX};

	*out = NULL;
	*count = 0;
	if (!row_count || !opcodes_for(offsets->version, &finder.opcodes))
		return 0;
	if (row_count > FILLERS_ROWS)
		row_count = FILLERS_ROWS;
	finder.err = finder_open(&finder, rows, row_count);
	for (size_t i = 0; i < row_count && !finder.err; i++)
		cache_add(&finder, (uint32_t)i, rows[i].example);
	functions_scan(&finder, 0);
	functions_scan(&finder, 1);
	others_scan(&finder);
	finder_free(&finder);
	if (finder.err) {
		free(finder.found);
		return finder.err;
	}
	*out = finder.found;
	*count = found_settle(finder.found, finder.count);
	return 0;
}
