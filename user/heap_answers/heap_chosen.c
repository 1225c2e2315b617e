/* SPDX-License-Identifier: Apache-2.0 */
#include "heap_answers/heap_chosen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void chosen_free(struct chosen *chosen)
{
	free(chosen->types);
}

int is_chosen(void *context, uint32_t object)
{
	const struct chosen *chosen = context;

	if (!chosen->types)
		return object == chosen->object;
	return object != GRAPH_NONE && chosen->types[chosen->graph->type_of[object]];
}

/* Whether the type is called so, with its module or without. */
static int type_is_named(const struct graph *graph, const struct type *type, const char *what)
{
	char name[TYPES_FULL_NAME];

	if (!strcmp(type->name, what))
		return 1;
	types_full_name(&graph->types, type, name);
	return !strcmp(name, what);
}

int chosen_find(const struct heap_graph *heap, const char *what, struct chosen *out)
{
	const struct graph *graph = heap->graph;
	char *end;
	uint64_t address = strtoull(what, &end, 0);

	*out = (struct chosen){.graph = graph, .object = GRAPH_NONE};
	if (what[0] >= '0' && what[0] <= '9' && !*end) {
		out->object = graph_find(graph, address);
		if (out->object != GRAPH_NONE)
			return 0;
		return error_print(error_set(-ENOENT, "no object begins at this address"), NULL,
				   "%s", what);
	}
	out->types = calloc(graph->types.count + 1, 1);
	if (!out->types)
		return -ENOMEM;
	for (size_t i = 0; i < graph->types.count; i++)
		out->types[i] = type_is_named(graph, &graph->types.entries[i], what) != 0;
	for (size_t i = 0; i < graph->count; i++)
		if (is_chosen(out, (uint32_t)i))
			return 0;
	return error_print(error_set(-ENOENT, "no object has a type of this name"),
			   "tracer heap -p PID --top 0 lists the types", "%s", what);
}
