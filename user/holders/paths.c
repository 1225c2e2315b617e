/* SPDX-License-Identifier: Apache-2.0 */
#include "holders/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct search {
	struct paths *paths;
	uint32_t *queue;
	size_t count;
	uint32_t source;
};

int paths_is_namespace(const struct paths *paths, uint32_t dict)
{
	const struct graph *graph = paths->graph;
	enum types_layout above;

	if (graph->addresses[dict] == graph->modules || paths->kind[dict] == REFERENCE_DICT)
		return 1;
	if (paths->parent[dict] == GRAPH_NONE)
		return 0;
	above = graph_type(graph, paths->parent[dict])->layout;
	return above == LAYOUT_MODULE ||
	       (above == LAYOUT_TYPE &&
		paths->slot[dict] == graph->image->offsets.objects.type_dict);
}

static uint64_t shape_of(const struct paths *paths, uint32_t source, enum reference_kind kind,
			 uint64_t slot)
{
	int general = kind == REFERENCE_ITEM || kind == REFERENCE_ELEMENT ||
		      kind == REFERENCE_BUFFER ||
		      ((kind == REFERENCE_KEY || kind == REFERENCE_VALUE) &&
		       !paths_is_namespace(paths, source));
	uint64_t shape = paths->shape[source];

	shape = hash_u64(shape ^ paths->graph->type_of[source]);
	return hash_u64(shape + ((uint64_t)kind << 40) + (general ? 0 : slot + 1));
}

static void reference_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct search *search = context;
	struct paths *paths = search->paths;
	uint32_t object = graph_find(paths->graph, target);

	if (paths->shape[object] || !graph_counts(paths->graph, search->source, target, kind))
		return;
	paths->parent[object] = search->source;
	paths->kind[object] = (uint8_t)kind;
	paths->slot[object] = slot < UINT32_MAX ? (uint32_t)slot : UINT32_MAX;
	paths->shape[object] = shape_of(paths, search->source, kind, slot) | 1;
	search->queue[search->count++] = object;
}

/* Breadth first from the roots of one kind; what an earlier kind has reached stays as it is. */
static void search_from(struct search *search, enum graph_root root)
{
	struct paths *paths = search->paths;
	struct graph *graph = paths->graph;
	size_t next = search->count;

	for (size_t i = 0; i < graph->count; i++)
		if (graph->root[i] == root && !paths->shape[i]) {
			paths->shape[i] = hash_u64(root) | 1;
			search->queue[search->count++] = (uint32_t)i;
		}
	for (; next < search->count; next++) {
		search->source = search->queue[next];
		graph_references(graph, search->source, reference_visit, search);
	}
}

int paths_new(struct paths **out, struct graph *graph)
{
	struct paths *paths = calloc(1, sizeof(*paths));
	struct search search = {.paths = paths};
	size_t count = graph->count + 1;

	if (!paths)
		return -ENOMEM;
	paths->graph = graph;
	paths->parent = malloc(count * sizeof(uint32_t));
	paths->kind = calloc(count, 1);
	paths->slot = calloc(count, sizeof(uint32_t));
	paths->shape = calloc(count, sizeof(uint64_t));
	search.queue = malloc(count * sizeof(uint32_t));
	if (!paths->parent || !paths->kind || !paths->slot || !paths->shape || !search.queue) {
		free(search.queue);
		paths_free(paths);
		return -ENOMEM;
	}
	memset(paths->parent, 0xff, count * sizeof(uint32_t));
	graph_work_begin(graph);
	for (enum graph_root root = ROOT_MODULES; root < ROOT_COUNT; root++)
		search_from(&search, root);
	free(search.queue);
	*out = paths;
	return 0;
}

void paths_free(struct paths *paths)
{
	if (!paths)
		return;
	free(paths->parent);
	free(paths->kind);
	free(paths->slot);
	free(paths->shape);
	free(paths);
}

static int group_compare(const void *a, const void *b)
{
	const struct path_group *x = a, *y = b;

	if (x->retained != y->retained)
		return x->retained < y->retained ? 1 : -1;
	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->example < y->example ? -1 : x->example > y->example;
}

/*
 * Whether the group is of dictionaries of modules or classes. What they hold is named in the rows of
 * the objects in them, and would only hide these.
 */
static uint8_t is_apart(const struct paths *paths, uint32_t object)
{
	const struct graph *graph = paths->graph;
	uint32_t above = paths->parent[object];
	enum types_layout layout;

	if (graph_type(graph, object)->layout != LAYOUT_DICT || !paths_is_namespace(paths, object))
		return 0;
	if (above == GRAPH_NONE)
		return 1;
	layout = graph_type(graph, above)->layout;
	return layout == LAYOUT_MODULE || layout == LAYOUT_TYPE;
}

/* group_of: of each wanted object; GRAPH_NONE of the others. */
static int groups_fill(const struct paths *paths, uint32_t *group_of, struct path_group **groups,
		       size_t *count)
{
	struct id_map found = {0};
	size_t capacity = 0;
	int err = 0;

	for (size_t i = 0; i < paths->graph->count && !err; i++) {
		uint32_t at;

		if (group_of[i] == GRAPH_NONE)
			continue;
		at = id_map_find(&found, paths->shape[i]);
		if (at == ID_MAP_NONE) {
			at = (uint32_t)*count;
			err = array_reserve(groups, &capacity, *count, 1, sizeof(**groups))
				      ?: id_map_put(&found, paths->shape[i], at);
			if (err)
				break;
			(*groups)[(*count)++] = (struct path_group){.shape = paths->shape[i],
								    .example = (uint32_t)i};
		}
		group_of[i] = at;
		(*groups)[at].count++;
		(*groups)[at].bytes += graph_bytes(paths->graph, (uint32_t)i);
	}
	id_map_free(&found);
	return err;
}

static int groups_retained(const struct paths *paths, const struct retained *retained,
			   const uint32_t *group_of, struct path_group *groups, size_t count)
{
	struct retained_sum *sums = calloc(count + 1, sizeof(*sums));
	uint8_t *apart = calloc(count + 1, 1);
	int err = sums && apart ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !err; i++)
		apart[i] = is_apart(paths, groups[i].example);
	if (!err)
		err = retained_groups(retained, group_of, count, apart, sums);
	for (size_t i = 0; i < count && !err; i++)
		groups[i].retained = sums[i].bytes;
	free(apart);
	free(sums);
	return err;
}

int paths_group(const struct paths *paths, const struct retained *retained,
		int (*wanted)(void *context, uint32_t object), void *context,
		struct path_group **groups, size_t *count)
{
	uint32_t *group_of = array_new(paths->graph->count + 1, sizeof(*group_of));
	int err;

	if (!group_of)
		return -ENOMEM;
	for (size_t i = 0; i < paths->graph->count; i++)
		group_of[i] = wanted(context, (uint32_t)i) ? 0 : GRAPH_NONE;
	*groups = NULL;
	*count = 0;
	err = groups_fill(paths, group_of, groups, count)
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
