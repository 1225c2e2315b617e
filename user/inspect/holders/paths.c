/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/cleanup.h"
#include "util/sorted.h"

#define PART_MAX 8u /* references of a part of a path that may be repeated */

struct paths_search {
	struct paths *paths;
	uint32_t *queue;
	size_t count;
	uint32_t source;
	struct id_map root_of; /* by shape: the first root with it */
	struct buffer name;
	int err;
};

bool paths_is_thread_table(const struct paths *paths, uint32_t object)
{
	const struct graph *graph = paths->graph;
	uint32_t owner = paths->parent[object];
	struct object_field field;

	return owner != GRAPH_NONE && graph_type(graph, object)->layout == LAYOUT_DICT &&
	       (paths->kind[object] == REFERENCE_WORD || paths->kind[object] == REFERENCE_FIELD) &&
	       types_field(&graph->types, graph_type(graph, owner), paths->slot[object], &field) &&
	       !strcmp(field.name, "by thread");
}

bool paths_is_thread_dict(const struct paths *paths, uint32_t object)
{
	return paths->parent[object] != GRAPH_NONE && paths->kind[object] == REFERENCE_VALUE &&
	       paths_is_thread_table(paths, paths->parent[object]);
}

uint32_t paths_namespace_owner(const struct paths *paths, uint32_t dict)
{
	if (!paths_is_namespace(paths, dict) || graph_is_modules(paths->graph, dict))
		return GRAPH_NONE;
	return paths->parent[paths_is_thread_dict(paths, dict) ? paths->parent[dict] : dict];
}

bool paths_is_namespace(const struct paths *paths, uint32_t dict)
{
	const struct graph *graph = paths->graph;

	if (graph_type(graph, dict)->layout != LAYOUT_DICT)
		return 0;
	if (graph_is_modules(graph, dict) || paths->kind[dict] == REFERENCE_DICT)
		return 1;
	if (paths->parent[dict] == GRAPH_NONE)
		return 0;
	if (paths_is_thread_dict(paths, dict))
		return 1;
	enum types_layout above = graph_type(graph, paths->parent[dict])->layout;
	return above == LAYOUT_MODULE ||
	       (above == LAYOUT_TYPE &&
		paths->slot[dict] == graph->image->offsets.objects.type_dict);
}

bool paths_is_named(const struct paths *paths, uint32_t object)
{
	switch (paths->kind[object]) {
	case REFERENCE_ITEM:
	case REFERENCE_ELEMENT:
	case REFERENCE_BUFFER:
	case REFERENCE_STACK:
	case REFERENCE_MAYBE:
		return 0;
	case REFERENCE_KEY:
	case REFERENCE_VALUE:
		return paths_is_namespace(paths, paths->parent[object]);
	default:
		return 1;
	}
}

/*
 * What a reference is called, without keys and indexes except those of namespaces. An instance's
 * attributes may be in any order, so it is the key that counts there. Of one process it is the same
 * in all graphs.
 */
static uint32_t label_of(const struct paths *paths, uint32_t source, enum reference_kind kind,
			 uint64_t slot)
{
	const struct graph *graph = paths->graph;
	uint64_t name = slot + 1;

	if (kind == REFERENCE_ITEM || kind == REFERENCE_ELEMENT || kind == REFERENCE_BUFFER)
		name = 0;
	else if (kind == REFERENCE_KEY || kind == REFERENCE_VALUE)
		name = paths_is_namespace(paths, source) ? dict_key(graph, source, slot) : 0;
	return (uint32_t)hash_u64(hash_u64(graph_type(graph, source)->address << 8 | kind) + name);
}

/* The path of `object` without its last reference and without repetitions. */
static uint32_t above(const struct paths *paths, uint32_t object)
{
	return paths->folded[paths->parent[object]];
}

static bool is_same_reference(const struct paths *paths, uint32_t a, uint32_t b)
{
	return paths->label[a] == paths->label[b] && paths->kind[a] == paths->kind[b] &&
	       paths->graph->type_of[paths->parent[a]] == paths->graph->type_of[paths->parent[b]];
}

/*
 * Whether the `part` references at the end of a path are those in front of them. The last one of
 * them is the object's; `newer` has the others, `older` those in front.
 */
static bool is_repeated(const struct paths *paths, uint32_t object, uint32_t newer, uint32_t older,
			unsigned int part)
{
	if (!is_same_reference(paths, object, older))
		return 0;
	while (--part) {
		older = above(paths, older);
		if (paths->parent[older] == GRAPH_NONE || !is_same_reference(paths, newer, older))
			return 0;
		newer = above(paths, newer);
	}
	return 1;
}

/*
 * Paths of linked lists and trees have any length. If the last references of a path are those in
 * front of them, it has the shape that it has without them.
 */
static void shape_find(struct paths *paths, uint32_t object)
{
	uint32_t before = paths->folded[paths->parent[object]], at = before;

	for (unsigned int part = 1; part <= PART_MAX && paths->parent[at] != GRAPH_NONE; part++) {
		if (is_repeated(paths, object, before, at, part)) {
			paths->folded[object] = at;
			paths->shape[object] = paths->shape[at];
			return;
		}
		at = above(paths, at);
	}
	paths->folded[object] = object;
	paths->shape[object] = hash_u64(paths->shape[before] ^ paths->label[object]) | 1;
}

static void reference_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct paths_search *search = context;
	struct paths *paths = search->paths;
	uint32_t object = graph_find(paths->graph, target);

	if (paths->shape[object] || !graph_counts(paths->graph, search->source, target, kind))
		return;
	paths->parent[object] = search->source;
	paths->kind[object] = (uint8_t)kind;
	paths->slot[object] = slot < UINT32_MAX ? (uint32_t)slot : UINT32_MAX;
	paths->depth[object] = paths->depth[search->source] + 1;
	paths->label[object] = label_of(paths, search->source, kind, slot);
	shape_find(paths, object);
	search->queue[search->count++] = object;
}

/* Roots of one kind and name have one shape. */
static void root_add(struct paths_search *search, uint32_t object)
{
	struct paths *paths = search->paths;
	uint64_t hash = hash_u64(paths->graph->root[object]);

	search->name.size = 0;
	/* Whether the collector is off is not seen in each copy of a process that runs. */
	if (paths->graph->root[object] != ROOT_GARBAGE)
		search->err = root_name(paths->graph, object, 0, &search->name);
	for (size_t i = 0; i < search->name.size; i++)
		hash = hash_u64(hash ^ search->name.data[i]);
	hash |= 1;
	uint32_t first = id_map_find(&search->root_of, hash);
	if (first == ID_MAP_NONE && !search->err) {
		first = object;
		search->err = id_map_put(&search->root_of, hash, object);
	}
	paths->shape[object] = hash;
	paths->slot[object] = first;
	paths->folded[object] = object;
	search->queue[search->count++] = object;
}

/* Breadth first from the roots of one kind; what an earlier kind has reached stays as it is. */
static void search_from(struct paths_search *search, enum graph_root root)
{
	struct paths *paths = search->paths;
	struct graph *graph = paths->graph;
	size_t next = search->count;

	for (size_t i = 0; i < graph->count && !search->err; i++)
		if (graph->root[i] == root && !paths->shape[i])
			root_add(search, (uint32_t)i);
	for (; next < search->count && !search->err; next++) {
		search->source = search->queue[next];
		graph_references(graph, search->source, reference_visit, search);
	}
}

int paths_new(struct paths **out, struct graph *graph)
{
	struct paths *paths = calloc(1, sizeof(*paths));
	struct paths_search search = {.paths = paths};
	size_t count = graph->count + 1;

	if (!paths)
		return -ENOMEM;
	paths->graph = graph;
	paths->parent = malloc(count * sizeof(uint32_t));
	paths->kind = calloc(count, 1);
	paths->slot = calloc(count, sizeof(uint32_t));
	paths->shape = calloc(count, sizeof(uint64_t));
	paths->folded = calloc(count, sizeof(uint32_t));
	paths->label = calloc(count, sizeof(uint32_t));
	paths->depth = calloc(count, sizeof(uint32_t));
	search.queue = malloc(count * sizeof(uint32_t));
	if (!paths->parent || !paths->kind || !paths->slot || !paths->shape || !paths->folded ||
	    !paths->label || !paths->depth || !search.queue) {
		free(search.queue);
		paths_free(paths);
		return -ENOMEM;
	}
	memset(paths->parent, 0xff, count * sizeof(uint32_t));
	graph_work_begin(graph);
	for (enum graph_root root = ROOT_MODULES; root < ROOT_COUNT; root++)
		search_from(&search, root);
	int err = search.err;
	free(search.queue);
	id_map_free(&search.root_of);
	buffer_free(&search.name);
	if (err)
		paths_free(paths);
	else
		*out = paths;
	return err;
}

void paths_free(struct paths *paths)
{
	if (!paths)
		return;
	free(paths->parent);
	free(paths->kind);
	free(paths->slot);
	free(paths->shape);
	free(paths->folded);
	free(paths->label);
	free(paths->depth);
	free(paths);
}

static int group_compare(const void *a, const void *b)
{
	const struct path_group *x = a, *y = b;

	return CMP(y->retained, x->retained)
		?: CMP(y->count, x->count)
		?: CMP(x->example, y->example);
}

/*
 * Whether the group is of dictionaries of modules or classes. What they hold is named in the rows
 * of the objects in them, and would only hide these.
 */
static uint8_t is_apart(const struct paths *paths, uint32_t object)
{
	const struct graph *graph = paths->graph;
	uint32_t above = paths->parent[object];

	if (!paths_is_namespace(paths, object))
		return 0;
	if (above == GRAPH_NONE)
		return 1;
	enum types_layout layout = graph_type(graph, above)->layout;
	return layout == LAYOUT_MODULE || layout == LAYOUT_TYPE;
}

/* group_of: of each wanted object; GRAPH_NONE of the others. */
static int groups_fill(const struct paths *paths, uint32_t *group_of, struct path_group **groups,
		       size_t *count)
{
	_cleanup_(id_map_free) struct id_map found = {0};
	size_t capacity = 0;
	int err = 0;

	for (size_t i = 0; i < paths->graph->count && !err; i++) {
		if (group_of[i] == GRAPH_NONE)
			continue;
		uint32_t at = id_map_find(&found, paths->shape[i]);
		if (at == ID_MAP_NONE) {
			at = (uint32_t)*count;
			err = array_reserve(groups, &capacity, *count, 1, sizeof(**groups))
				      ?: id_map_put(&found, paths->shape[i], at);
			if (err)
				break;
			(*groups)[(*count)++] = (struct path_group){.shape = paths->shape[i],
								    .example = (uint32_t)i,
								    .longest = (uint32_t)i};
		}
		if (paths->depth[i] < paths->depth[(*groups)[at].example])
			(*groups)[at].example = (uint32_t)i;
		if (paths->depth[i] > paths->depth[(*groups)[at].longest])
			(*groups)[at].longest = (uint32_t)i;
		group_of[i] = at;
		(*groups)[at].count++;
		(*groups)[at].bytes += graph_bytes(paths->graph, (uint32_t)i);
	}
	return err;
}

static int groups_retained(const struct paths *paths, const struct retained *retained,
			   const uint32_t *group_of, struct path_group *groups, size_t count)
{
	_cleanup_free_ struct retained_sum *sums = calloc(count + 1, sizeof(*sums));
	_cleanup_free_ uint8_t *apart = calloc(count + 1, 1);
	int err = sums && apart ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !err; i++)
		apart[i] = is_apart(paths, groups[i].example);
	err = err ?: retained_groups(retained, group_of, count, apart, sums);
	for (size_t i = 0; i < count && !err; i++)
		groups[i].retained = sums[i].bytes;
	return err;
}

int paths_group(const struct paths *paths, const struct retained *retained,
		bool (*wanted)(void *context, uint32_t object), void *context,
		struct path_group **groups, size_t *count)
{
	uint32_t *group_of = array_new(paths->graph->count + 1, sizeof(*group_of));

	if (!group_of)
		return -ENOMEM;
	for (size_t i = 0; i < paths->graph->count; i++)
		group_of[i] = wanted(context, (uint32_t)i) ? 0 : GRAPH_NONE;
	*groups = NULL;
	*count = 0;
	int err = groups_fill(paths, group_of, groups, count)
			  ?: groups_retained(paths, retained, group_of, *groups, *count);
	free(group_of);
	if (err) {
		free(*groups);
		*groups = NULL;
	} else if (*count) {
		qsort(*groups, *count, sizeof(**groups), group_compare);
	}
	return err;
}
