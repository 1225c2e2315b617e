/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer heap --retained --depth N: the tree of dominators, top down. Objects below one node whose
 * paths have the same shape, and that have one type, are one node.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/heap/heap_chosen.h"
#include "cmd/heap/heap_view.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

struct heap_tree_node {
	uint32_t parent; /* node; GRAPH_NONE: the outermost */
	uint32_t depth, example;
	uint64_t bytes, count; /* of its own objects */
	uint64_t retained_bytes, retained_count;
};

struct tree {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	struct heap_tree_node *nodes; /* sorted by parent after it is filled */
	size_t count, capacity;
	struct id_map node_of; /* by parent, type and shape */
	uint32_t *of_object;   /* node of each object; GRAPH_NONE: it is too deep */
	uint32_t *order;       /* numbers of nodes: by parent, the largest first */
	bool is_level;         /* what is below the nodes is not known */
};

static int node_find(struct tree *tree, uint32_t parent, uint32_t object, uint32_t *out)
{
	const struct heap_graph *heap = tree->heap;
	uint64_t key = hash_u64(heap->paths->shape[object] ^
				hash_u64((uint64_t)parent << 32 | heap->graph->type_of[object]));

	*out = id_map_find(&tree->node_of, key);
	if (*out != ID_MAP_NONE)
		return 0;
	int err = ARRAY_GROW(tree->nodes, tree->capacity, tree->count)
			  ?: id_map_put(&tree->node_of, key, (uint32_t)tree->count);
	if (err)
		return err;
	*out = (uint32_t)tree->count;
	tree->nodes[tree->count++] = (struct heap_tree_node){
		.parent = parent,
		.depth = parent == GRAPH_NONE ? 1 : tree->nodes[parent].depth + 1,
		.example = object};
	return 0;
}

/* Adds the object to its node below parent, *out. */
static int node_add(struct tree *tree, uint32_t parent, uint32_t object, uint32_t *out)
{
	const struct graph *graph = tree->heap->graph;
	const struct retained *retained = tree->heap->retained;
	int err = node_find(tree, parent, object, out);

	if (err)
		return err;
	struct heap_tree_node *node = &tree->nodes[*out];
	node->bytes += graph_bytes(graph, object);
	node->count++;
	node->retained_bytes += retained->bytes[object];
	node->retained_count += retained->counts[object];
	if (retained->bytes[object] > retained->bytes[node->example])
		node->example = object;
	return 0;
}

static int object_add(struct tree *tree, uint32_t object)
{
	uint32_t holder = tree->heap->retained->idom[object], parent = GRAPH_NONE;

	tree->of_object[object] = GRAPH_NONE;
	if (holder != tree->heap->graph->count) {
		parent = tree->of_object[holder];
		if (parent == GRAPH_NONE || tree->nodes[parent].depth >= tree->choice->depth)
			return 0;
	}
	return node_add(tree, parent, object, &tree->of_object[object]);
}

/* From the outermost objects inwards. */
static int objects_add(struct tree *tree)
{
	const struct retained *retained = tree->heap->retained;
	uint32_t count = (uint32_t)tree->heap->graph->count;
	uint32_t *queue = malloc(((size_t)count + 1) * sizeof(*queue));
	size_t at = 0, end = 0;
	int err = queue ? 0 : -ENOMEM;

	if (queue)
		queue[end++] = count;
	while (!err && at < end) {
		uint32_t object = queue[at++];

		for (uint32_t i = retained->child_start[object];
		     !err && i < retained->child_start[object + 1] && end <= count; i++) {
			queue[end++] = retained->children[i];
			err = object_add(tree, retained->children[i]);
		}
	}
	free(queue);
	return err;
}

static int node_compare(const void *a, const void *b, void *context)
{
	const struct tree *tree = context;
	const struct heap_tree_node *x = &tree->nodes[*(const uint32_t *)a];
	const struct heap_tree_node *y = &tree->nodes[*(const uint32_t *)b];

	return CMP(x->parent + 1, y->parent + 1)
	       ?: CMP(y->retained_bytes, x->retained_bytes)
	       ?: CMP(x->example, y->example);
}

static int tree_sort(struct tree *tree)
{
	tree->order = malloc((tree->count + 1) * sizeof(*tree->order));
	if (!tree->order)
		return -ENOMEM;
	for (size_t i = 0; i < tree->count; i++)
		tree->order[i] = (uint32_t)i;
	if (tree->count)
		qsort_r(tree->order, tree->count, sizeof(*tree->order), node_compare, tree);
	return 0;
}

/* The children of a node: [*first, the returned) of tree->order. GRAPH_NONE is first of all. */
static size_t children_find(const struct tree *tree, uint32_t parent, size_t *first)
{
	size_t low = 0, high = tree->count, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (tree->nodes[tree->order[middle]].parent + 1 < parent + 1)
			low = middle + 1;
		else
			high = middle;
	}
	*first = low;
	for (end = low; end < tree->count && tree->nodes[tree->order[end]].parent == parent; end++)
		;
	return end;
}

/* How its dominator refers to it: "attribute CACHE"; what holds it, if that is another one. */
static void name_print(const struct tree *tree, const struct heap_tree_node *node)
{
	const struct heap_graph *heap = tree->heap;
	struct json *json = tree->choice->json;
	uint32_t above = heap->paths->parent[node->example];
	struct path path;
	const char *kind = "", *name = "";
	char *text = NULL;

	if (above != GRAPH_NONE && above != heap->retained->idom[node->example]) {
		path_name(heap, node->example, json, "name");
		return;
	}
	if (!path_read(heap->paths, node->example, &path) && path.count) {
		kind = path.steps[path.count - 1].kind;
		name = (const char *)path.names.data + path.steps[path.count - 1].name;
	}
	if (asprintf(&text, "%s%s%s", kind, name[0] ? " " : "", name) < 0)
		text = NULL;
	if (json)
		json_text(json, "name", text ? text : kind);
	else
		text_print(stdout, text ? text : kind);
	free(text);
	path_free(&path);
}

static void node_text(const struct tree *tree, const struct heap_tree_node *node,
		      unsigned int depth)
{
	printf("%*s", (int)(2 * depth + 2), "");
	name_print(tree, node);
	fputs(" -> ", stdout);
	type_text(tree->heap->graph, graph_type(tree->heap->graph, node->example));
	printf(": retained=%s, retained count=%" PRIu64 ", size=%s, count=%" PRIu64 "\n",
	       SIZE_TEXT(node->retained_bytes), node->retained_count, SIZE_TEXT(node->bytes),
	       node->count);
}

/* The object stays open for its children. */
static void node_json(const struct tree *tree, const struct heap_tree_node *node)
{
	const struct graph *graph = tree->heap->graph;
	struct json *json = tree->choice->json;

	json_open(json, NULL, '{');
	name_print(tree, node);
	type_json(json, graph, graph_type(graph, node->example));
	json_numbers(json, {"address", graph->addresses[node->example]},
		     {"retained_size", node->retained_bytes},
		     {"retained_count", node->retained_count}, {"size", node->bytes},
		     {"count", node->count});
}

/* Depth is at most HEAP_DEPTH_MAX, so this recursion is, too. */
static void children_print(const struct tree *tree, uint32_t parent, unsigned int depth)
{
	struct json *json = tree->choice->json;
	size_t first, end = children_find(tree, parent, &first);
	size_t shown = report_rows(&tree->choice->output.opts, end - first);

	if (json) {
		json_unsigned(json, "children_total", end - first);
		json_open(json, "children", '[');
	}
	for (size_t i = first; i < first + shown; i++) {
		const struct heap_tree_node *node = &tree->nodes[tree->order[i]];

		if (json)
			node_json(tree, node);
		else
			node_text(tree, node, depth);
		if (!tree->is_level)
			children_print(tree, tree->order[i], depth + 1);
		if (json)
			json_close(json, '}');
	}
	if (json)
		json_close(json, ']');
	else if (shown < end - first)
		printf("%*s%zu other%s\n", (int)(2 * depth + 2), "", end - first - shown,
		       end - first - shown == 1 ? "" : "s");
}

static int tree_print(const struct tree *tree)
{
	struct json *json = tree->choice->json;

	heap_answer_begin(tree->choice, tree->heap);
	if (json)
		json_open(json, "tree", '{');
	else
		puts("What would be freed with each, and with what is in it, in bytes of blocks");
	children_print(tree, GRAPH_NONE, 0);
	if (json)
		json_close(json, '}');
	return heap_answer_end(tree->choice, tree->heap);
}

static void tree_free(struct tree *tree)
{
	id_map_free(&tree->node_of);
	free(tree->nodes);
	free(tree->of_object);
	free(tree->order);
}

int heap_tree_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct tree tree = {.choice = choice, .heap = heap};
	int err = -ENOMEM;

	tree.of_object = malloc((heap->graph->count + 1) * sizeof(*tree.of_object));
	if (tree.of_object)
		err = objects_add(&tree) ?: tree_sort(&tree) ?: tree_print(&tree);
	tree_free(&tree);
	return err;
}

/* --- one level -------------------------------------------------------------------------------- */

/* Objects of one node. */
struct heap_tree_members {
	uint32_t *items;
	size_t count, capacity;
};

/* Adds those of the objects that holder dominates that are one node with `like`. */
static int members_add(struct heap_tree_members *members, const struct heap_graph *heap,
		       uint32_t holder, uint32_t like)
{
	const struct retained *retained = heap->retained;
	int err = 0;

	for (uint32_t i = retained->child_start[holder];
	     i < retained->child_start[holder + 1] && !err; i++) {
		uint32_t object = retained->children[i];

		if (heap->graph->type_of[object] != heap->graph->type_of[like] ||
		    heap->paths->shape[object] != heap->paths->shape[like])
			continue;
		err = ARRAY_GROW(members->items, members->capacity, members->count);
		if (!err)
			members->items[members->count++] = object;
	}
	return err;
}

/* The objects of the node that object belongs to, from the outermost level inwards. */
static int members_find(struct heap_tree_members *members, const struct heap_graph *heap,
			uint32_t object)
{
	const struct retained *retained = heap->retained;
	uint32_t root = (uint32_t)heap->graph->count;
	struct heap_tree_members above = {0}, holders = {0}, swap;
	int err = 0;

	for (uint32_t at = object; at != root && !err; at = retained->idom[at]) {
		err = ARRAY_GROW(above.items, above.capacity, above.count);
		if (!err)
			above.items[above.count++] = at;
	}
	err = err ?: ARRAY_GROW(members->items, members->capacity, members->count);
	if (!err)
		members->items[members->count++] = root;
	while (above.count && !err) {
		uint32_t like = above.items[--above.count];

		swap = holders, holders = *members, *members = swap;
		members->count = 0;
		for (size_t i = 0; i < holders.count && !err; i++)
			err = members_add(members, heap, holders.items[i], like);
	}
	free(above.items);
	free(holders.items);
	return err;
}

static int level_fill(struct tree *tree, const struct heap_tree_members *members)
{
	const struct retained *retained = tree->heap->retained;
	uint32_t node;
	int err = 0;

	for (size_t i = 0; i < members->count; i++) {
		uint32_t holder = members->items[i];

		for (uint32_t j = retained->child_start[holder];
		     j < retained->child_start[holder + 1] && !err; j++)
			err = node_add(tree, GRAPH_NONE, retained->children[j], &node);
	}
	return err;
}

/* Fills the tree with the level below the object's node. 0, -ENOMEM. tree_free() in each case. */
static int level_make(struct tree *tree, uint32_t object)
{
	struct heap_tree_members members = {0};
	int err = members_find(&members, tree->heap, object)
			  ?: level_fill(tree, &members)
			  ?: tree_sort(tree);

	free(members.items);
	return err;
}

int heap_level_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct tree tree = {.choice = choice, .heap = heap, .is_level = true};
	struct chosen chosen = {.object = (uint32_t)heap->graph->count};
	int err = choice->what ? chosen_find(heap, choice->what, &chosen) : 0;

	if (!err && chosen.types)
		err = error_set(-ENOENT, "a node of the tree is named by an address");
	err = err ?: level_make(&tree, chosen.object) ?: tree_print(&tree);
	chosen_free(&chosen);
	tree_free(&tree);
	return err;
}

int heap_level_read(const struct heap_graph *heap, uint32_t object, size_t most,
		    struct heap_level_node **out, size_t *count)
{
	struct tree tree = {.heap = heap, .is_level = true};
	int err = level_make(&tree, object == GRAPH_NONE ? (uint32_t)heap->graph->count : object);

	*count = err ? 0 : lesser(tree.count, most);
	*out = malloc((*count + 1) * sizeof(**out));
	for (size_t i = 0; *out && i < *count; i++) {
		const struct heap_tree_node *node = &tree.nodes[tree.order[i]];

		(*out)[i] = (struct heap_level_node){node->example, node->retained_bytes,
						     node->retained_count > node->count};
	}
	tree_free(&tree);
	return *out ? err : -ENOMEM;
}
