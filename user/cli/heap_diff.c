/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap diff OLD NEW [LATER]: what came between two dumps, by type, and what has stayed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "cli/heap_choice.h"
#include "tables/strings.h"
#include "text/json.h"
#include "text/size.h"
#include "text/text.h"

struct row {
	uint32_t name; /* in names */
	uint64_t old_bytes, old_count, bytes, count;
	/* of the later dump: objects that the new one has, too, and the old one has not */
	uint64_t stayed_bytes, stayed_count;
};

struct difference {
	const struct heap_choice *choice;
	struct heap_graph *heaps; /* old, new, and later if there is one */
	int later;
	struct strings *names;
	struct row *rows; /* by name; sorted for the output */
	size_t count, capacity;
};

/* The row of an object's type: types of one name are one row. */
static int row_of(struct difference *difference, const struct graph *graph, uint32_t object,
		  struct row **out)
{
	const char *name = graph_type(graph, object)->name;
	uint32_t id;
	int err = strings_intern(difference->names, name, strlen(name), &id);

	if (!err && id >= difference->count) {
		size_t more = id + 1 - difference->count;

		err = array_reserve(&difference->rows, &difference->capacity, difference->count,
				    more, sizeof(struct row));
		if (err)
			return err;
		memset(difference->rows + difference->count, 0, more * sizeof(struct row));
		difference->count = id + 1;
	}
	if (err)
		return err;
	difference->rows[id].name = id;
	*out = &difference->rows[id];
	return 0;
}

/* Whether the graph has an object at the address whose type has the same name. */
static int has_object(const struct graph *graph, uint64_t address, const char *type)
{
	uint32_t object = graph_find(graph, address);

	return object != GRAPH_NONE && !strcmp(graph_type(graph, object)->name, type);
}

static int has_stayed(const struct difference *difference, const struct graph *later,
		      uint32_t object)
{
	const char *type = graph_type(later, object)->name;
	uint64_t address = later->addresses[object];

	return !has_object(difference->heaps[0].graph, address, type) &&
	       has_object(difference->heaps[1].graph, address, type);
}

static int rows_fill(struct difference *difference)
{
	size_t heaps = difference->later ? 3 : 2;
	int err = 0;

	for (size_t i = 0; i < heaps; i++) {
		const struct graph *graph = difference->heaps[i].graph;

		for (size_t j = 0; j < graph->count && !err; j++) {
			uint64_t bytes = graph_bytes(graph, (uint32_t)j);
			struct row *row;

			err = row_of(difference, graph, (uint32_t)j, &row);
			if (err)
				return err;
			if (i == 2 && !has_stayed(difference, graph, (uint32_t)j))
				continue;
			*(i == 0   ? &row->old_bytes
			  : i == 1 ? &row->bytes
				   : &row->stayed_bytes) += bytes;
			++*(i == 0 ? &row->old_count : i == 1 ? &row->count : &row->stayed_count);
		}
	}
	return 0;
}

static uint64_t row_weight(const struct row *row)
{
	uint64_t grown = row->bytes > row->old_bytes ? row->bytes - row->old_bytes
						     : row->old_bytes - row->bytes;

	return row->stayed_bytes ? row->stayed_bytes : grown;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (!x->stayed_bytes != !y->stayed_bytes)
		return x->stayed_bytes ? -1 : 1;
	if (row_weight(x) != row_weight(y))
		return row_weight(x) < row_weight(y) ? 1 : -1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static void row_text(const struct difference *difference, const struct row *row)
{
	uint64_t grown = row->bytes > row->old_bytes ? row->bytes - row->old_bytes
						     : row->old_bytes - row->bytes;
	char size[32], change[32], stayed[32];

	fputs("  ", stdout);
	text_print(stdout, strings_get(difference->names, row->name));
	printf(": size=%s (%s%s), count=%" PRIu64 " (%+" PRId64 ")", size_text(size, row->bytes),
	       row->bytes < row->old_bytes ? "-" : "+", size_text(change, grown), row->count,
	       (int64_t)(row->count - row->old_count));
	if (difference->later)
		printf(", stayed=%s, stayed count=%" PRIu64, size_text(stayed, row->stayed_bytes),
		       row->stayed_count);
	putchar('\n');
}

static void row_json(const struct difference *difference, const struct row *row, int first)
{
	printf("%s{\"type\": ", first ? "" : ", ");
	json_string(stdout, strings_get(difference->names, row->name));
	printf(", \"size\": %" PRIu64 ", \"size_diff\": %" PRId64 ", \"count\": %" PRIu64
	       ", \"count_diff\": %" PRId64,
	       row->bytes, (int64_t)(row->bytes - row->old_bytes), row->count,
	       (int64_t)(row->count - row->old_count));
	if (difference->later)
		printf(", \"stayed_size\": %" PRIu64 ", \"stayed_count\": %" PRIu64,
		       row->stayed_bytes, row->stayed_count);
	putchar('}');
}

static int difference_write(struct difference *difference)
{
	int json = difference->choice->output.format == FORMAT_JSON;
	size_t top = difference->choice->output.opts.top, shown, kept = 0;

	for (size_t i = 0; i < difference->count; i++)
		if (row_weight(&difference->rows[i]))
			difference->rows[kept++] = difference->rows[i];
	if (kept)
		qsort(difference->rows, kept, sizeof(struct row), row_compare);
	shown = top && top < kept ? top : kept;
	if (json) {
		heap_graph_json(&difference->heaps[1]);
		fputs(", \"by\": \"type\", \"statistics\": [", stdout);
	} else {
		heap_graph_head(&difference->heaps[1]);
		printf("%zu of %zu types that have changed%s\n", shown, kept,
		       difference->later ? "; stayed: what came and is there later, too" : "");
	}
	for (size_t i = 0; i < shown; i++)
		if (json)
			row_json(difference, &difference->rows[i], !i);
		else
			row_text(difference, &difference->rows[i]);
	if (json)
		puts("]}");
	return fflush(stdout) || ferror(stdout) ? -EIO : 0;
}

int heap_diff_print(const struct heap_choice *choice, char *const *dumps, size_t count)
{
	struct heap_graph heaps[3] = {0};
	struct difference difference = {.choice = choice, .heaps = heaps, .later = count == 3};
	size_t opened = 0;
	int err = 0;

	while (opened < count && !err) {
		err = heap_graph_open(choice, dumps[opened], 0, &heaps[opened]);
		opened += !err;
	}
	if (!err) {
		err = strings_new(&difference.names) ?: rows_fill(&difference)
					       ?: difference_write(&difference);
		if (err)
			error_print(err, NULL, "heap diff");
	}
	strings_free(difference.names);
	free(difference.rows);
	while (opened)
		heap_graph_close(&heaps[--opened]);
	return err;
}
