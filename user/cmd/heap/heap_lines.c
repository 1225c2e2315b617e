/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer heap --by line: which line allocated the objects, from a session's blocks, and what they
 * are reached through. Objects that are in no block of the session are older than the trace: they
 * are told by module.
 *
 * Keys of rows: the number of a line; then, from the number of lines on, a module's object, or the
 * number of objects for those that no module leads to.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_view.h"
#include "util/array.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/text.h"

uint32_t *numbers_new(size_t count)
{
	uint32_t *numbers = malloc((count + 1) * sizeof(*numbers));

	if (numbers)
		memset(numbers, 0xff, (count + 1) * sizeof(*numbers));
	return numbers;
}

/* The row of an object without a line. */
static size_t older_row(const struct view *view, uint32_t *start, uint32_t object)
{
	const struct paths *paths = view->heap->paths;
	uint32_t from = path_start(paths, start, object);

	return view->heap->lines.name_count +
	       (paths->parent[from] == GRAPH_NONE ? view->heap->graph->count : from);
}

int view_by_line(struct view *view)
{
	const struct block_lines *lines = &view->heap->lines;
	const struct graph *graph = view->heap->graph;
	size_t rows = lines->name_count + graph->count + 1;
	uint32_t *start = numbers_new(graph->count);
	int err = start ? view_reserve(view, rows) : -ENOMEM;

	view->row_of = err ? NULL : numbers_new(graph->count);
	if (!err && !view->row_of)
		err = -ENOMEM;
	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t line = block_lines_find(lines, graph->addresses[i]);
		size_t row = line != BLOCK_LINES_NONE ? line : older_row(view, start, (uint32_t)i);

		row_add(&view->rows[row], graph, (uint32_t)i);
		view->row_of[i] = (uint32_t)row;
	}
	for (size_t i = 0; i < rows && !err; i++)
		view->rows[i].key = i;
	view->count = err ? 0 : rows;
	free(start);
	return err;
}

/* Whether a path's holder is at: a root, a module, or what a variable of a module refers to. */
static int is_holder(const struct paths *paths, uint32_t at)
{
	const struct graph *graph = paths->graph;
	uint32_t parent = paths->parent[at], above;

	if (parent == GRAPH_NONE || graph_is_modules(graph, parent))
		return 1;
	/* A module's variables are its dictionary's values; what its C code holds has no name. */
	above = paths->kind[at] == REFERENCE_VALUE && paths_is_namespace(paths, parent)
			? paths->parent[parent]
			: GRAPH_NONE;
	above = above == GRAPH_NONE ? GRAPH_NONE : paths->parent[above];
	return above != GRAPH_NONE && graph_is_modules(graph, above);
}

uint32_t path_holder(const struct paths *paths, uint32_t *holders, uint32_t object)
{
	uint32_t at = object, found;

	while (holders[at] == GRAPH_NONE && !is_holder(paths, at))
		at = paths->parent[at];
	found = holders[at] != GRAPH_NONE                                   ? holders[at]
		: paths->parent[at] == GRAPH_NONE && paths->graph->root[at] ? paths->slot[at]
									    : at;
	while (object != at) {
		holders[object] = found;
		object = paths->parent[object];
	}
	holders[at] = found;
	return found;
}

struct heap_lines_held {
	uint32_t shown, holder; /* the number of the row among those shown; an object */
	uint64_t bytes;
};

struct heap_lines_holding {
	struct id_map shown_of; /* by key of a row */
	struct id_map held_of;  /* by row and holder, in `held` */
	struct heap_lines_held *held;
	size_t count, capacity;
};

static int held_add(struct heap_lines_holding *holding, uint32_t shown, uint32_t holder,
		    uint64_t bytes)
{
	uint64_t key = (uint64_t)shown << 32 | holder;
	uint32_t number = id_map_find(&holding->held_of, key);
	int err;

	if (number == ID_MAP_NONE) {
		err = array_reserve(&holding->held, &holding->capacity, holding->count, 1,
				    sizeof(*holding->held));
		err = err ?: id_map_put(&holding->held_of, key, (uint32_t)holding->count);
		if (err)
			return err;
		number = (uint32_t)holding->count++;
		holding->held[number] = (struct heap_lines_held){shown, holder, 0};
	}
	holding->held[number].bytes += bytes;
	return 0;
}

static int holding_fill(struct view *view, struct heap_lines_holding *holding, uint32_t *holders)
{
	const struct graph *graph = view->heap->graph;
	int err = 0;

	for (size_t i = 0; i < view->shown && !err; i++)
		err = id_map_put(&holding->shown_of, view->rows[i].key, (uint32_t)i);
	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t shown = id_map_find(&holding->shown_of, view->row_of[i]);

		if (shown != ID_MAP_NONE)
			err = held_add(holding, shown,
				       path_holder(view->heap->paths, holders, (uint32_t)i),
				       graph_bytes(graph, (uint32_t)i));
	}
	return err;
}

int view_holders(struct view *view)
{
	struct heap_lines_holding holding = {0};
	uint32_t *holders = numbers_new(view->heap->graph->count);
	int err = holders ? holding_fill(view, &holding, holders) : -ENOMEM;

	for (size_t i = 0; i < view->shown; i++)
		view->rows[i].holder = GRAPH_NONE;
	for (size_t i = 0; i < holding.count && !err; i++) {
		const struct heap_lines_held *held = &holding.held[i];
		struct row *row = &view->rows[held->shown];

		if (row->holder != GRAPH_NONE && held->bytes <= row->held_bytes)
			continue;
		row->holder = held->holder;
		row->held_bytes = held->bytes;
	}
	id_map_free(&holding.shown_of);
	id_map_free(&holding.held_of);
	free(holding.held);
	free(holders);
	return err;
}

/* The object of the module of a row without a line; GRAPH_NONE: no module. */
static uint32_t module_of(const struct view *view, const struct row *row)
{
	uint64_t object = row->key - view->heap->lines.name_count;

	return object < view->heap->graph->count ? (uint32_t)object : GRAPH_NONE;
}

void line_text(const struct view *view, const struct row *row)
{
	const struct block_lines *lines = &view->heap->lines;

	if (row->key < lines->name_count) {
		text_print(stdout, lines->names[row->key]);
		return;
	}
	fputs("older than the trace, ", stdout);
	if (module_of(view, row) == GRAPH_NONE)
		fputs("<no module>", stdout);
	else
		path_name(view->heap, module_of(view, row), NULL, NULL);
}

void line_json(struct json *json, const struct view *view, const struct row *row)
{
	const struct block_lines *lines = &view->heap->lines;

	json_text(json, "line", row->key < lines->name_count ? lines->names[row->key] : NULL);
	if (row->key >= lines->name_count && module_of(view, row) == GRAPH_NONE)
		json_none(json, "module");
	else if (row->key >= lines->name_count)
		path_name(view->heap, module_of(view, row), json, "module");
	if (row->holder == GRAPH_NONE)
		return;
	holder_name(view->heap, row->holder, json, "holder");
	json_unsigned(json, "holder_size", row->held_bytes);
}
