/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/heap/heap_chosen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "util/near.h"

void chosen_free(struct chosen *chosen)
{
	free(chosen->types);
}

bool is_chosen(void *context, uint32_t object)
{
	const struct chosen *chosen = context;

	if (!chosen->types)
		return object == chosen->object;
	return object != GRAPH_NONE && chosen->types[chosen->graph->type_of[object]];
}

/*
 * Whether what is the name, or the part of it behind one of its dots. asyncio.Task is also
 * _asyncio.Task: modules in C have an underscore that nobody writes.
 */
static bool is_name(const char *name, const char *what)
{
	size_t bytes = strlen(name), wanted = strlen(what);

	if (!wanted || wanted > bytes)
		return 0;
	const char *tail = name + bytes - wanted;
	if (strcmp(tail, what))
		return 0;
	return tail == name || tail[-1] == '.' ||
	       (tail == name + 1 && name[0] == '_' && strchr(what, '.'));
}

bool chosen_type_is(const struct graph *graph, const struct type *type, const char *what)
{
	char name[TYPES_FULL_NAME];

	if (is_name(type->name, what))
		return 1;
	types_full_name(&graph->types, type, name);
	return is_name(name, what);
}

static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* -ENOENT, with a type of a similar name. Uses chosen->types. */
static int none_error(struct chosen *chosen, const char *what)
{
	const struct graph *graph = chosen->graph;
	struct near near = {.word = last_part(what)};
	char name[TYPES_FULL_NAME];
	const struct type *best = NULL;

	for (size_t i = 0; i < graph->count; i++)
		chosen->types[graph->type_of[i]] = 1;
	for (size_t i = 0; i < graph->types.count; i++) {
		const char *before = near.best;

		if (chosen->types[i])
			near_offer(&near, last_part(graph->types.entries[i].name));
		if (near.best != before)
			best = &graph->types.entries[i];
	}
	if (!best)
		return error_set(-ENOENT, "no object has a type of this name; tracer heap -p PID "
					  "--top 0 lists the types");
	types_full_name(&graph->types, best, name);
	return error_set(-ENOENT, "no object has a type of this name; did you mean %s?", name);
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
		return error_set(-ENOENT, "no object begins at this address");
	}
	out->types = calloc(graph->types.count + 1, 1);
	if (!out->types)
		return -ENOMEM;
	for (size_t i = 0; i < graph->types.count; i++)
		out->types[i] = chosen_type_is(graph, &graph->types.entries[i], what) != 0;
	for (size_t i = 0; i < graph->count; i++)
		if (is_chosen(out, (uint32_t)i))
			return 0;
	return none_error(out, what);
}
