/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/bounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/holders/values.h"
#include "runtime/cpython/refcount.h"
#include "util/array.h"

/* behind the object's header */
#define DEQUE_MAXLEN      48u /* struct dequeobject */
#define LRU_CACHE_MAXSIZE 80u /* struct lru_cache_object */
#define BOUND_MAX         (1ull << 40)

static uint64_t word_behind(const struct graph *graph, uint32_t object, uint32_t offset)
{
	return image_u64(graph->image, graph->addresses[object] +
					       refcount_header(&graph->image->offsets) + offset);
}

static bool is_bound(uint64_t most)
{
	return most && most < BOUND_MAX;
}

/* An attribute of an object that tells a bound. */
struct bounds_owner {
	const struct graph *graph;
	uint32_t object;
	uint64_t most;
	struct buffer text;
	int err;
};

static bool is_bound_name(const char *name)
{
	static const char *const names[] = {"maxsize",     "max_size", "maxlen",   "capacity",
					    "max_entries", "limit",    "max_items"};
	/* _maxsize, and __maxsize of a class: _Cache__maxsize */
	const char *plain = strstr(name, "__");

	plain = plain ? plain + 2 : name[0] == '_' ? name + 1 : name;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(plain, names[i]))
			return 1;
	return 0;
}

static void value_take(struct bounds_owner *owner, uint64_t value)
{
	uint32_t object = graph_find(owner->graph, value);
	char *end;

	owner->text.size = 0;
	if (object == GRAPH_NONE || strcmp(graph_type(owner->graph, object)->name, "int") != 0 ||
	    values_repr(owner->graph, value, &owner->text) <= 0 ||
	    buffer_append(&owner->text, "", 1))
		return;
	uint64_t most = strtoull((const char *)owner->text.data, &end, 10);
	if (!*end && owner->text.data[0] != '-' && is_bound(most) &&
	    (!owner->most || most < owner->most))
		owner->most = most;
}

static void attribute_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct bounds_owner *owner = context;
	const char *kind_name;

	owner->text.size = 0;
	if (reference_name(owner->graph, owner->object, kind, slot, &kind_name, &owner->text) ||
	    buffer_append(&owner->text, "", 1)) {
		owner->err = -ENOMEM;
		return;
	}
	/* The keys of its dictionary are written as texts. */
	if (kind == REFERENCE_VALUE && owner->text.size > 3) {
		owner->text.data[owner->text.size - 2] = 0;
		memmove(owner->text.data, owner->text.data + 1, owner->text.size - 2);
	}
	if (is_bound_name((const char *)owner->text.data))
		value_take(owner, target);
}

/* The object that has a container as an attribute, and the dictionary of its attributes. */
static int owner_find(const struct paths *paths, uint32_t object, uint32_t *owner, uint32_t *dict)
{
	const struct graph *graph = paths->graph;

	*owner = paths->parent[object];
	*dict = GRAPH_NONE;
	if (*owner != GRAPH_NONE && paths->kind[object] == REFERENCE_VALUE &&
	    paths_is_namespace(paths, *owner)) {
		*dict = *owner;
		*owner = paths_namespace_owner(paths, *dict);
	}
	if (*owner == GRAPH_NONE)
		return 0;
	enum types_layout layout = graph_type(graph, *owner)->layout;
	return layout == LAYOUT_WORDS || layout == LAYOUT_DICT;
}

static int attribute_bound(const struct paths *paths, uint32_t object, uint64_t *most)
{
	struct bounds_owner owner = {.graph = paths->graph};
	uint32_t self, dict;

	if (!owner_find(paths, object, &self, &dict))
		return 0;
	graph_work_begin(paths->graph);
	owner.object = dict == GRAPH_NONE ? self : dict;
	graph_references(paths->graph, owner.object, attribute_visit, &owner);
	buffer_free(&owner.text);
	*most = owner.most;
	return owner.err ?: owner.most != 0;
}

int bound_find(const struct paths *paths, uint32_t object, struct bound *out)
{
	const struct graph *graph = paths->graph;
	const struct object_offsets *at = &graph->image->offsets.objects;
	enum types_layout layout = graph_type(graph, object)->layout;
	uint32_t owner = paths->parent[object];

	*out = (struct bound){0};
	if (layout == LAYOUT_DICT)
		out->entries = image_u64(graph->image, graph->addresses[object] + at->dict_used);
	else
		out->entries = word_behind(graph, object, 0); /* ob_size of a list, a deque */
	if (layout == LAYOUT_DEQUE)
		out->most = word_behind(graph, object, DEQUE_MAXLEN);
	else if (owner != GRAPH_NONE && graph_type(graph, owner)->layout == LAYOUT_LRU_CACHE)
		out->most = word_behind(graph, owner, LRU_CACHE_MAXSIZE);
	if (!is_bound(out->most) &&
	    (layout == LAYOUT_DICT || layout == LAYOUT_DEQUE || layout == LAYOUT_LIST)) {
		int got = attribute_bound(paths, object, &out->most);
		if (got <= 0)
			return got;
	}
	return is_bound(out->most) && out->entries <= out->most;
}
