/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap diff OLD NEW [LATER]: what came between two dumps, and what has stayed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_view.h"
#include "util/array.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/strings.h"
#include "util/terminal.h"
#include "util/text.h"

struct heap_diff_change {
	uint32_t name;       /* in names */
	uint32_t short_name; /* of a type: without its module */
	uint64_t old_bytes, old_count, bytes, count;
	/* of the later dump: objects that the new one has, too, and the old one has not */
	uint64_t stayed_bytes, stayed_count;
};

struct difference {
	const struct heap_choice *choice;
	const struct heap_graph *const *heaps; /* old, new, and later if there is one */
	int later;
	struct strings *names;
	struct heap_diff_change *rows; /* by name; sorted for the output */
	size_t count, capacity;
	/* of the current dump, GRAPH_NONE: not known yet */
	uint32_t *named; /* names by type, or by the object that a path is named after */
	uint32_t *start; /* path_start() or path_holder() of each object */
};

static int text_intern(struct difference *difference, const char *text, uint32_t *id)
{
	return strings_intern(difference->names, text, strlen(text), id);
}

/* The name of a module, or of a module's variable or a root; "": no module. */
static int path_intern(struct difference *difference, const struct heap_graph *heap, uint32_t at,
		       uint32_t *id)
{
	struct buffer label = {0};
	int err = 0;

	if (difference->choice->by == BY_MODULE && heap->paths->parent[at] == GRAPH_NONE)
		return text_intern(difference, "", id);
	err = holder_label(heap, at, &label)
		      ?: text_intern(difference, (const char *)label.data, id);
	buffer_free(&label);
	return err;
}

static int type_intern(struct difference *difference, const struct graph *graph, uint32_t type,
		       uint32_t *id)
{
	char name[TYPES_FULL_NAME];

	types_full_name(&graph->types, &graph->types.entries[type], name);
	return text_intern(difference, name, id);
}

/* The name of the row of an object. */
static int name_find(struct difference *difference, const struct heap_graph *heap, uint32_t object,
		     uint32_t *id)
{
	const struct graph *graph = heap->graph;
	enum heap_by by = difference->choice->by;
	uint32_t at = by == BY_TYPE     ? graph->type_of[object]
		      : by == BY_MODULE ? path_start(heap->paths, difference->start, object)
					: path_holder(heap->paths, difference->start, object);
	int err = 0;

	if (difference->named[at] == GRAPH_NONE)
		err = by == BY_TYPE ? type_intern(difference, graph, at, &difference->named[at])
				    : path_intern(difference, heap, at, &difference->named[at]);
	*id = difference->named[at];
	return err;
}

/* Types, modules and paths of one name are one row. */
static int row_of(struct difference *difference, const struct heap_graph *heap, uint32_t object,
		  struct heap_diff_change **out)
{
	uint32_t id, short_id = 0;
	int err = name_find(difference, heap, object, &id);

	if (!err && id >= difference->count) {
		size_t more = id + 1 - difference->count;

		err = array_reserve(&difference->rows, &difference->capacity, difference->count,
				    more, sizeof(struct heap_diff_change));
		if (err)
			return err;
		memset(difference->rows + difference->count, 0,
		       more * sizeof(struct heap_diff_change));
		difference->count = id + 1;
	}
	if (!err && !difference->rows[id].short_name)
		err = text_intern(difference, graph_type(heap->graph, object)->name, &short_id);
	if (err)
		return err;
	if (!difference->rows[id].short_name)
		difference->rows[id].short_name = short_id;
	difference->rows[id].name = id;
	*out = &difference->rows[id];
	return 0;
}

/* Whether the graph has an object at the address whose type has the same name. */
static bool has_object(const struct graph *graph, uint64_t address, const char *type)
{
	uint32_t object = graph_find(graph, address);

	return object != GRAPH_NONE && !strcmp(graph_type(graph, object)->name, type);
}

static bool has_stayed(const struct difference *difference, const struct graph *later,
		       uint32_t object)
{
	const char *type = graph_type(later, object)->name;
	uint64_t address = later->addresses[object];

	return !has_object(difference->heaps[0]->graph, address, type) &&
	       has_object(difference->heaps[1]->graph, address, type);
}

/* number: of the dump, 0 is the oldest. */
static int dump_add(struct difference *difference, size_t number)
{
	const struct heap_graph *heap = difference->heaps[number];
	const struct graph *graph = heap->graph;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint64_t bytes = graph_bytes(graph, (uint32_t)i);
		struct heap_diff_change *row;

		err = row_of(difference, heap, (uint32_t)i, &row);
		if (err || (number == 2 && !has_stayed(difference, graph, (uint32_t)i)))
			continue;
		*(number == 0   ? &row->old_bytes
		  : number == 1 ? &row->bytes
				: &row->stayed_bytes) += bytes;
		++*(number == 0 ? &row->old_count : number == 1 ? &row->count : &row->stayed_count);
	}
	return err;
}

static int rows_fill(struct difference *difference)
{
	size_t heaps = difference->later ? 3 : 2;
	int err = 0;

	for (size_t i = 0; i < heaps && !err; i++) {
		const struct graph *graph = difference->heaps[i]->graph;

		difference->named = numbers_new(graph->count + graph->types.count);
		difference->start = numbers_new(graph->count);
		err = difference->named && difference->start ? dump_add(difference, i) : -ENOMEM;
		free(difference->named);
		free(difference->start);
	}
	return err;
}

static uint64_t row_weight(const struct heap_diff_change *row)
{
	uint64_t grown = row->bytes > row->old_bytes ? row->bytes - row->old_bytes
						     : row->old_bytes - row->bytes;

	return row->stayed_bytes ? row->stayed_bytes : grown;
}

static int row_compare(const void *a, const void *b)
{
	const struct heap_diff_change *x = a, *y = b;

	return CMP(!x->stayed_bytes, !y->stayed_bytes)
	       ?: CMP(row_weight(y), row_weight(x))
	       ?: CMP(x->name, y->name);
}

static void row_text(const struct difference *difference, const struct heap_diff_change *row)
{
	uint64_t grown = row->bytes > row->old_bytes ? row->bytes - row->old_bytes
						     : row->old_bytes - row->bytes;
	const char *name = strings_get(difference->names, row->name);
	char size[32], change[32], stayed[32] = "", count[32], kept[32] = "";

	if (difference->choice->output.opts.tables) {
		if (row->stayed_count) {
			size_text(stayed, row->stayed_bytes);
			text_count(kept, row->stayed_count);
		}
		printf("%s\t%s%s\t%s\t%+" PRId64 "\t%s\t%s\t", size_text(size, row->bytes),
		       row->bytes < row->old_bytes ? "-" : "+", size_text(change, grown),
		       text_count(count, row->count), (int64_t)(row->count - row->old_count),
		       stayed, kept);
		text_print(stdout, name[0] ? name : "<no module>");
		putchar('\n');
		return;
	}
	fputs("  ", stdout);
	text_print(stdout, name[0] ? name : "<no module>");
	printf(": size=%s (%s%s), count=%" PRIu64 " (%+" PRId64 ")", size_text(size, row->bytes),
	       row->bytes < row->old_bytes ? "-" : "+", size_text(change, grown), row->count,
	       (int64_t)(row->count - row->old_count));
	if (difference->later)
		printf(", stayed=%s, stayed count=%" PRIu64, size_text(stayed, row->stayed_bytes),
		       row->stayed_count);
	putchar('\n');
}

static void row_json(const struct difference *difference, const struct heap_diff_change *row)
{
	const char *name = strings_get(difference->names, row->name);
	struct json *json = difference->choice->json;
	enum heap_by by = difference->choice->by;

	json_open(json, NULL, '{');
	if (by == BY_TYPE)
		json_text(json, "type", strings_get(difference->names, row->short_name));
	json_text(json,
		  by == BY_TYPE     ? "type_name"
		  : by == BY_MODULE ? "module"
				    : "path",
		  by == BY_MODULE && !name[0] ? NULL : name);
	json_unsigned(json, "size", row->bytes);
	json_signed(json, "size_diff", (int64_t)(row->bytes - row->old_bytes));
	json_unsigned(json, "count", row->count);
	json_signed(json, "count_diff", (int64_t)(row->count - row->old_count));
	if (difference->later)
		json_numbers(json, {"stayed_size", row->stayed_bytes},
			     {"stayed_count", row->stayed_count});
	json_close(json, '}');
}

static int difference_write(struct difference *difference)
{
	const struct heap_choice *choice = difference->choice;
	struct json *json = choice->json;
	size_t kept = 0;
	const char *by = choice->by == BY_TYPE     ? "type"
			 : choice->by == BY_MODULE ? "module"
						   : "path";

	for (size_t i = 0; i < difference->count; i++)
		if (row_weight(&difference->rows[i]))
			difference->rows[kept++] = difference->rows[i];
	if (kept)
		qsort(difference->rows, kept, sizeof(struct heap_diff_change), row_compare);
	size_t shown = report_rows(&choice->output.opts, kept);
	heap_answer_begin(choice, difference->heaps[1]);
	if (json) {
		json_text(json, "by", by);
		json_open(json, "statistics", '[');
	} else {
		printf("%zu of %zu %ss that have changed%s\n", shown, kept, by,
		       difference->later ? "; stayed: what came and is there later, too" : "");
	}
	if (!json && shown && choice->output.opts.tables)
		printf("SIZE\tCHANGE\tCOUNT\tCHANGE\t?STAYED\t?STAYED COUNT\t%s\n",
		       choice->by == BY_TYPE     ? "TYPE"
		       : choice->by == BY_MODULE ? "MODULE"
						 : "PATH");
	for (size_t i = 0; i < shown; i++)
		(json ? row_json : row_text)(difference, &difference->rows[i]);
	if (json)
		json_close(json, ']');
	return heap_answer_end(choice, difference->heaps[1]);
}

int heap_diff_graphs(const struct heap_choice *choice, const struct heap_graph *const *heaps,
		     size_t count)
{
	struct difference difference = {.choice = choice, .heaps = heaps, .later = count == 3};
	int err = strings_new(&difference.names)
			  ?: rows_fill(&difference)
			  ?: difference_write(&difference);

	strings_free(difference.names);
	free(difference.rows);
	return err;
}

int heap_diff_print(const struct heap_choice *choice, char *const *dumps, size_t count)
{
	struct heap_graph heaps[3] = {0};
	const struct heap_graph *const all[] = {&heaps[0], &heaps[1], &heaps[2]};
	struct terminal terminal = {0};
	size_t opened = 0;
	int err = 0;

	while (opened < count && !err) {
		err = heap_graph_open(choice, dumps[opened], choice->by == BY_TYPE ? 0 : HEAP_PATHS,
				      &heaps[opened]);
		opened += !err;
	}
	if (!err) {
		if (choice->output.format == FORMAT_TEXT)
			terminal_begin(&terminal, &stdout);
		err = heap_diff_graphs(choice, all, count);
		terminal_end(&terminal);
		if (err)
			error_print(err, NULL, "heap diff");
	}
	while (opened)
		heap_graph_close(&heaps[--opened]);
	return err;
}
