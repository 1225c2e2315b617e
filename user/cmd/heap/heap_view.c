/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap --retained, --by KEY: a graph's objects in groups. */
#include "cmd/heap/heap_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_chosen.h"
#include "util/array.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

static const char *const by_names[] = {
	[BY_TYPE] = "type", [BY_CLASS] = "class",         [BY_MODULE] = "module",
	[BY_ROOT] = "root", [BY_CONTAINER] = "container", [BY_SIZE] = "size",
	[BY_LINE] = "line", [BY_PATH] = "path",
};

/* Zeroes count rows. 0, -ENOMEM. */
static int view_reserve(struct view *view, size_t count)
{
	int err = array_reserve(&view->rows, &view->capacity, 0, count + 1, sizeof(struct row));

	if (!err)
		memset(view->rows, 0, (count + 1) * sizeof(struct row));
	return err;
}

static bool is_wanted(const struct view *view, uint32_t object)
{
	return heap_ages_want(&view->ages, view->heap, object) &&
	       (!view->only || is_chosen(view->only, object));
}

/* Adds an object to a row, if it is wanted. */
static void row_add(struct view *view, size_t number, uint32_t object)
{
	struct row *row = &view->rows[number];

	if (!is_wanted(view, object))
		return;
	if (view->row_of)
		view->row_of[object] = (uint32_t)number;
	row->bytes += graph_bytes(view->heap->graph, object);
	row->count++;
}

/* --- heap lines ------------------------------------------------------------------------------- */

/*
 * tracer heap --by line: which line allocated the objects, from a session's blocks, and what they
 * are reached through. Objects that are in no block of the session are older than the trace: they
 * are told by module.
 *
 * Keys of rows: the number of a line; then, from the number of lines on, a module's object, or the
 * number of objects for those that no module leads to.
 */

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

/* Rows by the line that allocated the objects, and of older objects by module. 0, -ENOMEM. */
static int view_by_line(struct view *view)
{
	const struct block_lines *lines = &view->heap->lines;
	const struct graph *graph = view->heap->graph;
	size_t rows = lines->name_count + graph->count + 1;
	uint32_t *start = numbers_new(graph->count);
	int err = start ? view_reserve(view, rows) : -ENOMEM;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t line = block_lines_find(lines, graph->addresses[i]);

		row_add(view, line != BLOCK_LINES_NONE ? line : older_row(view, start, (uint32_t)i),
			(uint32_t)i);
	}
	for (size_t i = 0; i < rows && !err; i++)
		view->rows[i].key = i;
	view->count = err ? 0 : rows;
	free(start);
	return err;
}

/* Whether a path's holder is at: a root, a module, or what a variable of a module refers to. */
static bool is_holder(const struct paths *paths, uint32_t at)
{
	const struct graph *graph = paths->graph;
	uint32_t parent = paths->parent[at];

	if (parent == GRAPH_NONE || graph_is_modules(graph, parent))
		return 1;
	/* A module's variables are its dictionary's values; what its C code holds has no name. */
	uint32_t above = paths->kind[at] == REFERENCE_VALUE && paths_is_namespace(paths, parent)
				 ? paths->parent[parent]
				 : GRAPH_NONE;
	above = above == GRAPH_NONE ? GRAPH_NONE : paths->parent[above];
	return above != GRAPH_NONE && graph_is_modules(graph, above);
}

uint32_t path_holder(const struct paths *paths, uint32_t *holders, uint32_t object)
{
	uint32_t at = object;

	while (holders[at] == GRAPH_NONE && !is_holder(paths, at))
		at = paths->parent[at];
	uint32_t found = holders[at] != GRAPH_NONE ? holders[at]
			 : paths->parent[at] == GRAPH_NONE && paths->graph->root[at]
				 ? paths->slot[at]
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
		err = ARRAY_GROW(holding->held, holding->capacity, holding->count)
			      ?: id_map_put(&holding->held_of, key, (uint32_t)holding->count);
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

static int view_holders(struct view *view)
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

/* What the objects of the rows that are shown are reached through. 0, -ENOMEM. */
static void line_text(const struct view *view, const struct row *row)
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

static void line_json(struct json *json, const struct view *view, const struct row *row)
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

/* --- heap view -------------------------------------------------------------------------------- */

static int rows_by_type(struct view *view)
{
	const struct graph *graph = view->heap->graph;
	int err = view_reserve(view, graph->types.count);

	if (err)
		return err;
	for (size_t i = 0; i < graph->types.count; i++) {
		view->rows[i].key = i;
		view->rows[i].exact = graph->proofs[i].exact;
		if (!view->heap->retained)
			continue;
		view->rows[i].retained_bytes = view->heap->retained->types[i].bytes;
		view->rows[i].retained_count = view->heap->retained->types[i].count;
	}
	for (size_t i = 0; i < graph->count; i++)
		row_add(view, graph->type_of[i], (uint32_t)i);
	view->count = graph->types.count;
	return 0;
}

uint32_t path_start(const struct paths *paths, uint32_t *start, uint32_t object)
{
	uint32_t at = object;

	while (start[at] == GRAPH_NONE && paths->parent[at] != GRAPH_NONE &&
	       !graph_is_modules(paths->graph, paths->parent[at]))
		at = paths->parent[at];
	uint32_t found = start[at] == GRAPH_NONE ? at : start[at];
	while (object != at) {
		start[object] = found;
		object = paths->parent[object];
	}
	start[at] = found;
	return found;
}

/* The row of a key: a new one if there is none. 0, -ENOMEM. */
static int row_find(struct view *view, struct id_map *found, uint64_t key, uint32_t *row)
{
	*row = id_map_find(found, key);
	if (*row != ID_MAP_NONE)
		return 0;
	int err = ARRAY_GROW(view->rows, view->capacity, view->count)
			  ?: id_map_put(found, key, (uint32_t)view->count);

	if (err)
		return err;
	*row = (uint32_t)view->count++;
	view->rows[*row] = (struct row){.key = key};
	return 0;
}

/*
 * Keys of rows. By module: the module that an object's path leads through; graph->count: none. By
 * path: the module's variable or root. By root: enum graph_root.
 */
static int rows_by_path(struct view *view)
{
	const struct paths *paths = view->heap->paths;
	const struct graph *graph = view->heap->graph;
	uint32_t *start = numbers_new(graph->count), row = ID_MAP_NONE;
	struct id_map found = {0};
	int err = start ? 0 : -ENOMEM;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t from = (view->choice->by == BY_PATH ? path_holder : path_start)(
			paths, start, (uint32_t)i);
		int module = paths->parent[from] != GRAPH_NONE;
		uint64_t key = module || view->choice->by == BY_PATH ? from : graph->count;

		if (view->choice->by == BY_ROOT)
			key = graph->root[module ? paths->parent[from] : from];
		if (row == ID_MAP_NONE || view->rows[row].key != key)
			err = row_find(view, &found, key, &row);
		if (!err)
			row_add(view, row, (uint32_t)i);
	}
	id_map_free(&found);
	free(start);
	return err;
}

static void buffer_note(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	int *refers = context;

	(void)target;
	(void)slot;
	*refers |= kind == REFERENCE_BUFFER;
}

/*
 * The builtin containers, and any other object with a buffer of its own that refers to objects: a
 * queue, a C extension's table.
 */
static bool is_container(struct graph *graph, uint32_t object)
{
	int refers = 0;

	switch (graph_type(graph, object)->layout) {
	case LAYOUT_DICT:
	case LAYOUT_LIST:
	case LAYOUT_TUPLE:
	case LAYOUT_SET:
	case LAYOUT_DEQUE:
		return 1;
	case LAYOUT_WORDS:
		graph_references(graph, object, buffer_note, &refers);
		return refers;
	default:
		return 0;
	}
}

/*
 * The row of a container. Those that are reached in the same way, but through no module, are one:
 * no name tells one from the other.
 */
static int container_row(struct view *view, struct id_map *found, uint32_t *start, uint32_t object,
			 uint32_t *row)
{
	const struct paths *paths = view->heap->paths;
	uint64_t key = hash_u64(paths->shape[object] ^ hash_u64(paths->graph->type_of[object] + 1));
	int named = paths->parent[path_start(paths, start, object)] != GRAPH_NONE;

	*row = named ? ID_MAP_NONE : id_map_find(found, key);
	if (*row != ID_MAP_NONE)
		return 0;
	int err = ARRAY_GROW(view->rows, view->capacity, view->count);
	if (err)
		return err;
	*row = (uint32_t)view->count++;
	view->rows[*row] = (struct row){.key = object};
	return named ? 0 : id_map_put(found, key, *row);
}

static int containers_retained(struct view *view, const uint32_t *row_of)
{
	struct retained_sum *sums = calloc(view->count + 1, sizeof(*sums));
	int err = sums ? retained_groups(view->heap->retained, row_of, view->count, NULL, sums)
		       : -ENOMEM;

	for (size_t i = 0; i < view->count && !err; i++) {
		view->rows[i].retained_bytes = sums[i].bytes;
		view->rows[i].retained_count = sums[i].count;
	}
	free(sums);
	return err;
}

static int rows_by_container(struct view *view)
{
	struct graph *graph = view->heap->graph;
	uint32_t *start = numbers_new(graph->count), *row_of = numbers_new(graph->count);
	struct id_map found = {0};
	int err = start && row_of ? 0 : -ENOMEM;

	graph_work_begin(graph);
	for (size_t i = 0; i < graph->count && !err; i++) {
		if (!is_container(graph, (uint32_t)i))
			continue;
		err = container_row(view, &found, start, (uint32_t)i, &row_of[i]);
		if (!err)
			row_add(view, row_of[i], (uint32_t)i);
	}
	err = err ?: containers_retained(view, row_of);
	id_map_free(&found);
	free(start);
	free(row_of);
	return err;
}

/* Rows by powers of two: from 2^i to 2^(i+1) - 1 bytes. */
static int rows_by_size(struct view *view)
{
	const struct graph *graph = view->heap->graph;
	int err = view_reserve(view, 64);

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint64_t bytes = graph_bytes(graph, (uint32_t)i);

		row_add(view, bytes ? 63 - __builtin_clzll(bytes) : 0, (uint32_t)i);
	}
	for (size_t i = 0; i < 64 && !err; i++)
		view->rows[i].key = 1ull << i;
	view->count = err ? 0 : 64;
	return err;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return CMP(y->retained_bytes, x->retained_bytes)
	       ?: CMP(y->bytes, x->bytes)
	       ?: CMP(x->key, y->key);
}

/* The path to an object: path_write(), NUL-terminated. 0, -ENOMEM. */
static int path_label(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	struct path path;
	int err = path_read(heap->paths, object, &path) ?: path_write(&path, out);

	path_free(&path);
	return err ?: buffer_append(out, "", 1);
}

int holder_label(const struct heap_graph *heap, uint32_t holder, struct buffer *out)
{
	const struct graph *graph = heap->graph;
	const char *kind = graph_root_name(graph->root[holder]);

	if (heap->paths->parent[holder] != GRAPH_NONE || graph_is_modules(graph, holder))
		return path_label(heap, holder, out);
	int err = buffer_printf(out, "%s ", kind);
	size_t bytes = out->size;
	err = err ?: root_name(graph, holder, 0, out);
	if (!err && out->size == bytes)
		out->size--;
	return err ?: buffer_append(out, "", 1);
}

typedef int (*label_fn)(const struct heap_graph *heap, uint32_t object, struct buffer *out);

static void label_print(const struct heap_graph *heap, uint32_t object, label_fn label_of,
			struct json *json, const char *key)
{
	struct buffer label = {0};
	const char *text = label_of(heap, object, &label) ? "" : (const char *)label.data;

	if (json)
		json_text(json, key, text);
	else
		text_print(stdout, text[0] ? text : "<unnamed>");
	buffer_free(&label);
}

void path_name(const struct heap_graph *heap, uint32_t object, struct json *json, const char *key)
{
	label_print(heap, object, path_label, json, key);
}

void holder_name(const struct heap_graph *heap, uint32_t holder, struct json *json, const char *key)
{
	label_print(heap, holder, holder_label, json, key);
}

void type_text(const struct graph *graph, const struct type *type)
{
	char name[TYPES_FULL_NAME];

	types_full_name(&graph->types, type, name);
	text_print(stdout, name);
}

void type_json(struct json *json, const struct graph *graph, const struct type *type)
{
	char name[TYPES_FULL_NAME];

	types_full_name(&graph->types, type, name);
	json_text(json, "type", type->name);
	json_text(json, "type_name", name);
}

static void key_text(const struct view *view, const struct row *row)
{
	const struct heap_graph *heap = view->heap;
	const struct graph *graph = heap->graph;

	switch (view->choice->by) {
	case BY_LINE:
		line_text(view, row);
		return;
	case BY_MODULE:
	case BY_CONTAINER:
		if (row->key < graph->count)
			path_name(heap, (uint32_t)row->key, NULL, NULL);
		else
			fputs("<no module>", stdout);
		return;
	case BY_ROOT:
		fputs(graph_root_name((enum graph_root)row->key), stdout);
		return;
	case BY_PATH:
		holder_name(heap, (uint32_t)row->key, NULL, NULL);
		return;
	case BY_SIZE:
		printf("%" PRIu64 " to %" PRIu64 " B", row->key, row->key * 2 - 1);
		return;
	default:
		type_text(graph, &graph->types.entries[row->key]);
	}
}

static void key_json(struct json *json, const struct view *view, const struct row *row)
{
	const struct heap_graph *heap = view->heap;
	const struct graph *graph = heap->graph;
	const char *key = by_names[view->choice->by];

	switch (view->choice->by) {
	case BY_LINE:
		line_json(json, view, row);
		return;
	case BY_MODULE:
	case BY_CONTAINER:
		if (row->key < graph->count)
			path_name(heap, (uint32_t)row->key, json, key);
		else
			json_none(json, key);
		return;
	case BY_ROOT:
		json_text(json, key, graph_root_name((enum graph_root)row->key));
		return;
	case BY_PATH:
		holder_name(heap, (uint32_t)row->key, json, key);
		return;
	case BY_SIZE:
		json_unsigned(json, "from", row->key);
		return;
	default:
		type_json(json, graph, &graph->types.entries[row->key]);
	}
}

static void line_holder(const struct view *view, const struct row *row, const char *before)
{
	printf("%s%.0f %% of it through ", before,
	       100.0 * (double)row->held_bytes / (double)row->bytes);
	holder_name(view->heap, row->holder, NULL, NULL);
}

/* The cells of a table's row before the name. */
static void row_cells(const struct row *row, bool aged)
{
	char retained[SIZE_TEXT_MAX] = "", objects[32] = "", size[SIZE_TEXT_MAX], count[32];

	if (row->retained_count) {
		size_text(retained, row->retained_bytes);
		text_count(objects, row->retained_count);
	}
	printf("%s\t%s\t%s\t%s\t", retained, objects, size_text(size, row->bytes),
	       text_count(count, row->count));
	if (aged)
		heap_ages_row(row, 1);
}

static void row_text(const struct view *view, const struct row *row)
{
	if (view->choice->output.opts.tables)
		row_cells(row, view->ages.ages != NULL);
	else
		fputs("  ", stdout);
	key_text(view, row);
	if (view->choice->by == BY_CONTAINER) {
		fputs(" (", stdout);
		type_text(view->heap->graph, graph_type(view->heap->graph, (uint32_t)row->key));
		/* A table would shorten the path in its favour. */
		if (!view->choice->output.opts.tables || view->choice->output.verbose)
			printf("%s at 0x%" PRIx64, row->count > 1 ? ", for example" : "",
			       view->heap->graph->addresses[row->key]);
		putchar(')');
	}
	if (view->choice->output.opts.tables) {
		if (view->choice->by == BY_LINE && row->holder != GRAPH_NONE && row->bytes)
			line_holder(view, row, "\n    ");
		putchar('\n');
		return;
	}
	if (row->retained_count) {
		printf(": retained=%s, retained count=%" PRIu64, SIZE_TEXT(row->retained_bytes),
		       row->retained_count);
		putchar(',');
	} else {
		putchar(':');
	}
	printf(" size=%s, count=%" PRIu64, SIZE_TEXT(row->bytes), row->count);
	if (view->ages.ages)
		heap_ages_row(row, 0);
	if (view->choice->by == BY_LINE && row->holder != GRAPH_NONE && row->bytes)
		line_holder(view, row, ", ");
	putchar('\n');
}

static void view_text(const struct view *view, const struct row *total)
{
	printf("By %s, in bytes of the objects' blocks and of those that they own: %zu of %zu\n",
	       by_names[view->choice->by], view->shown, view->count);
	if (view->choice->output.opts.tables)
		printf("RETAINED\t?OBJECTS\tSIZE\tCOUNT\t%sWHAT\n",
		       view->ages.ages ? "OLDEST\tMEDIAN AGE\t" : "");
	for (size_t i = 0; i < view->shown; i++)
		row_text(view, &view->rows[i]);
	printf("Total: size=%s, count=%" PRIu64 "\n", SIZE_TEXT(total->bytes), total->count);
	if (view->ages.ages)
		heap_ages_print(view);
}

static void row_json(struct json *json, const struct view *view, const struct row *row)
{
	const struct graph *graph = view->heap->graph;

	json_open(json, NULL, '{');
	key_json(json, view, row);
	if (view->choice->by == BY_TYPE)
		json_numbers(json, {"type_address", graph->types.entries[row->key].address},
			     {"exact", row->exact});
	if (view->choice->by == BY_CONTAINER) {
		type_json(json, graph, graph_type(graph, (uint32_t)row->key));
		json_unsigned(json, "address", graph->addresses[row->key]);
	}
	json_numbers(json, {"size", row->bytes}, {"count", row->count});
	if (row->retained_count)
		json_numbers(json, {"retained_size", row->retained_bytes},
			     {"retained_count", row->retained_count});
	if (view->ages.ages)
		heap_ages_row_json(json, row);
	json_close(json, '}');
}

static void view_json(struct json *json, const struct view *view, const struct row *total)
{
	json_text(json, "by", by_names[view->choice->by]);
	if (view->ages.ages)
		heap_ages_json(json, view);
	json_open(json, "total", '{');
	json_numbers(json, {"size", total->bytes}, {"count", total->count});
	json_close(json, '}');
	json_open(json, "statistics", '[');
	for (size_t i = 0; i < view->shown; i++)
		row_json(json, view, &view->rows[i]);
	json_close(json, ']');
}

static int view_write(const struct view *view)
{
	const struct graph *graph = view->heap->graph;
	struct row total = {0};

	for (size_t i = 0; i < graph->count; i++) {
		bool wanted = is_wanted(view, (uint32_t)i);

		total.bytes += wanted ? graph_bytes(graph, (uint32_t)i) : 0;
		total.count += wanted;
	}
	heap_answer_begin(view->choice, view->heap);
	if (view->choice->json)
		view_json(view->choice->json, view, &total);
	else
		view_text(view, &total);
	return heap_answer_end(view->choice, view->heap);
}

static int rows_make(struct view *view)
{
	switch (view->choice->by) {
	case BY_CONTAINER:
		return rows_by_container(view);
	case BY_SIZE:
		return rows_by_size(view);
	case BY_TYPE:
		return rows_by_type(view);
	case BY_LINE:
		return view_by_line(view);
	default:
		return rows_by_path(view);
	}
}

static int rows_print(const struct heap_choice *choice, const struct heap_graph *heap,
		      struct chosen *only)
{
	struct view view = {.choice = choice, .heap = heap, .only = only};
	size_t kept = 0;
	int err = heap_ages_read(&view.ages, choice, heap);

	if (!err && heap_wants_lines(choice)) {
		view.row_of = numbers_new(heap->graph->count);
		err = view.row_of ? 0 : -ENOMEM;
	}
	err = err ?: rows_make(&view) ?: heap_ages_rows(&view);
	if (!err) {
		for (size_t i = 0; i < view.count; i++)
			if (view.rows[i].count)
				view.rows[kept++] = view.rows[i];
		view.count = kept;
		qsort(view.rows, view.count, sizeof(*view.rows), row_compare);
		view.shown = report_rows(&choice->output.opts, view.count);
		err = choice->by == BY_LINE ? view_holders(&view) : 0;
	}
	err = err ?: view_write(&view);
	free(view.rows);
	free(view.row_of);
	heap_ages_free(&view.ages);
	return err;
}

int heap_view_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	return rows_print(choice, heap, NULL);
}

int heap_lines_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct heap_choice by_line = *choice;
	struct chosen chosen;
	int err = chosen_find(heap, choice->what, &chosen);

	by_line.by = BY_LINE;
	err = err ?: rows_print(&by_line, heap, &chosen);
	chosen_free(&chosen);
	return err;
}
