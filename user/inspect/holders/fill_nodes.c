/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/fill_nodes.h"

#include <string.h>

#include "inspect/holders/values.h"

#define OBJECTS_MAX 4096u /* of a row; the others have the same names */
#define EDGES_MAX   8u    /* attributes of a path */

static const char *type_name(const struct graph *graph, uint32_t object)
{
	return graph_type(graph, object)->name;
}

static void map_put(struct fill_nodes *nodes, struct id_map *map, uint64_t key, uint32_t value)
{
	if (!nodes->err && id_map_find(map, key) == ID_MAP_NONE)
		nodes->err = id_map_put(map, key, value);
}

static uint32_t name_intern(struct fill_nodes *nodes, const struct buffer *name)
{
	uint32_t id = 0;

	if (!nodes->err && name->size)
		nodes->err =
			strings_intern(nodes->names, (const char *)name->data, name->size, &id);
	return id;
}

uint32_t fill_name_find(const struct fill_nodes *nodes, uint64_t address)
{
	char text[VALUES_TEXT + 1];
	struct values_text found;
	uint32_t id;

	if (!values_text(nodes->paths->graph, address, &found) || found.kind != 1 ||
	    found.length > VALUES_TEXT)
		return 0;
	memcpy(text, found.data, found.length);
	text[found.length] = 0;
	return strings_find(nodes->names, text, &id) ? id : 0;
}

static struct fill_place place_find(struct fill_nodes *nodes, uint32_t object)
{
	const struct paths *paths = nodes->paths;
	const struct graph *graph = paths->graph;
	struct fill_place place = {.owner = paths->parent[object]};
	enum reference_kind kind = paths->kind[object];
	struct buffer name = {0};
	const char *kind_name;

	if (place.owner == GRAPH_NONE)
		return place;
	uint32_t owner =
		kind == REFERENCE_VALUE ? paths_namespace_owner(paths, place.owner) : GRAPH_NONE;
	if (owner != GRAPH_NONE) {
		uint64_t key = dict_key(graph, place.owner, paths->slot[object]);

		if (values_identifier(graph, key, &name) > 0)
			place = (struct fill_place){PLACE_ATTRIBUTE, owner, 0};
	} else if (kind == REFERENCE_ITEM || kind == REFERENCE_VALUE || kind == REFERENCE_ELEMENT) {
		place.kind = PLACE_ITEM;
	} else if (!reference_name(graph, place.owner, kind, paths->slot[object], &kind_name,
				   &name) &&
		   name.size && !strcmp(kind_name, "attribute")) {
		place.kind = PLACE_ATTRIBUTE;
	}
	if (place.kind == PLACE_ATTRIBUTE)
		place.name = name_intern(nodes, &name);
	buffer_free(&name);
	return place;
}

/* --- variables of frames --------------------------------------------------------------------- */

static uint64_t word_code(const struct graph *graph, uint64_t frame)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;
	uint64_t code = image_u64(graph->image, frame + abi->frame_code);

	return abi->frame_code_tagged ? code & ~7ull : code;
}

/* The variables of frames that hold `held`, an object or the cell that has it, are the object. */
static void slots_note(struct fill_nodes *nodes, uint32_t held, uint32_t object)
{
	const struct paths *paths = nodes->paths;
	const struct graph *graph = paths->graph;
	size_t count;
	const struct graph_root_word *words = graph_words(graph, held, &count);

	if (paths->parent[held] != GRAPH_NONE && paths->kind[held] == REFERENCE_LOCAL)
		map_put(nodes, &nodes->slots,
			fill_slot(frame_code(graph, paths->parent[held]), paths->slot[held]),
			object);
	for (size_t i = 0; i < count; i++)
		if (words[i].root == ROOT_FRAME && words[i].kind == REFERENCE_LOCAL &&
		    graph->image->offsets.abi.frame_owner != ABI_NONE)
			map_put(nodes, &nodes->slots,
				fill_slot(word_code(graph, words[i].address), words[i].slot),
				object);
}

/* --- nodes ----------------------------------------------------------------------------------- */

static bool is_instance(const struct graph *graph, uint32_t object)
{
	enum types_layout layout = graph_type(graph, object)->layout;

	return layout != LAYOUT_MODULE && layout != LAYOUT_TYPE && layout != LAYOUT_DICT &&
	       layout != LAYOUT_FRAME && layout != LAYOUT_GENERATOR &&
	       strcmp(type_name(graph, object), "cell") != 0 &&
	       strcmp(type_name(graph, object), "function") != 0;
}

/* An object may have several of the containers. */
static void object_note(struct fill_nodes *nodes, uint64_t key, uint32_t node)
{
	map_put(nodes, &nodes->objects, key, node);
	map_put(nodes, &nodes->objects, fill_object_of(key, node), node);
}

/* The key of a dictionary that leads to an object, if it is a name. */
static void key_note(struct fill_nodes *nodes, struct fill_node *node, uint32_t object)
{
	const struct paths *paths = nodes->paths;
	struct buffer name = {0};

	if (node->name || paths->kind[object] != REFERENCE_VALUE)
		return;
	uint64_t key = dict_key(paths->graph, paths->parent[object], paths->slot[object]);
	if (key && values_identifier(paths->graph, key, &name) > 0) {
		node->name = name_intern(nodes, &name);
		node->type = GRAPH_NONE;
	}
	buffer_free(&name);
}

/* Notes how an object is reached, and as what. */
static void node_reach(struct fill_nodes *nodes, uint32_t at, uint32_t object,
		       const struct fill_place *place)
{
	const struct graph *graph = nodes->paths->graph;
	struct fill_node *node = &nodes->nodes[at];

	object_note(nodes, fill_object(object, 0), at);
	slots_note(nodes, object, object);
	if (place->owner == GRAPH_NONE)
		return;
	if (!strcmp(type_name(graph, place->owner), "cell"))
		slots_note(nodes, place->owner, object);
	if (place->kind == PLACE_ATTRIBUTE && !node->name) {
		node->name = place->name;
		node->type = graph->type_of[place->owner];
		if (graph_type(graph, place->owner)->layout == LAYOUT_TYPE)
			node->type = types_find(&nodes->paths->graph->types,
						graph->addresses[place->owner]);
	}
	if (place->kind != PLACE_ITEM)
		return;
	key_note(nodes, node, object);
	object_note(nodes, fill_object(place->owner, 1), at);
	slots_note(nodes, place->owner, place->owner);
	struct fill_place above = place_find(nodes, place->owner);
	if (above.kind == PLACE_ATTRIBUTE && !node->item_name) {
		node->item_name = above.name;
		node->item_type = graph->type_of[above.owner];
	}
}

/* The attributes on the path to an object. */
static void edges_note(struct fill_nodes *nodes, uint32_t object)
{
	for (unsigned int i = 0; i < EDGES_MAX && object != GRAPH_NONE; i++) {
		struct fill_place place = place_find(nodes, object);

		if (place.kind == PLACE_ATTRIBUTE)
			map_put(nodes, &nodes->edges, fill_edge(place.owner, place.name), object);
		object = place.owner;
	}
}

/* A type of the language's, or a class that derives from one. */
static bool is_container(const struct type *type)
{
	return type->layout == LAYOUT_DICT || type->layout == LAYOUT_LIST ||
	       type->layout == LAYOUT_SET || type->layout == LAYOUT_DEQUE ||
	       !strcmp(type->name, "array.array") || !strcmp(type->name, "bytearray");
}

static bool is_list(const char *type)
{
	return !strcmp(type, "list") || !strcmp(type, "collections.deque");
}

static void row_add(struct fill_nodes *nodes, uint32_t row, uint32_t object)
{
	const struct graph *graph = nodes->paths->graph;
	const char *type = type_name(graph, object);
	uint32_t at = 2 * row;
	struct fill_node *node = &nodes->nodes[at];
	struct fill_place place = place_find(nodes, object), above;

	node->row = node[1].row = row;
	node->is_list = is_list(type);
	node->is_default = !strcmp(type, "collections.defaultdict");
	node->is_plain = !is_container(graph_type(graph, object));
	node->own_type = graph->type_of[object];
	node[1].is_owner = 1;
	node_reach(nodes, at, object, &place);
	if (place.owner == GRAPH_NONE || place.kind == PLACE_ITEM ||
	    !is_instance(graph, place.owner) ||
	    graph->type_of[place.owner] == graph->type_of[object])
		return;
	above = place_find(nodes, place.owner);
	node_reach(nodes, at + 1, place.owner, &above);
}

int fill_nodes_make(struct fill_nodes *nodes, const struct paths *paths, struct strings *names,
		    const struct filler_row *rows, size_t count)
{
	size_t added[FILLERS_ROWS] = {0};
	struct id_map row_of = {0};

	*nodes = (struct fill_nodes){.paths = paths, .names = names, .count = 2 * (uint32_t)count};
	for (size_t i = 0; i < count; i++) {
		row_add(nodes, (uint32_t)i, rows[i].example);
		edges_note(nodes, rows[i].example);
		map_put(nodes, &row_of, rows[i].shape, (uint32_t)i);
	}
	for (size_t i = 0; i < paths->graph->count && !nodes->err; i++) {
		uint32_t row = id_map_find(&row_of, paths->shape[i]);

		if (row != ID_MAP_NONE && added[row]++ < OBJECTS_MAX)
			row_add(nodes, row, (uint32_t)i);
	}
	id_map_free(&row_of);
	return nodes->err;
}

void fill_nodes_free(struct fill_nodes *nodes)
{
	id_map_free(&nodes->objects);
	id_map_free(&nodes->edges);
	id_map_free(&nodes->slots);
}
