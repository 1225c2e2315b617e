/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap waste: duplicate texts, and tables that are larger than their entries need. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/heap/heap_view.h"
#include "inspect/holders/values.h"
#include "inspect/waste/waste.h"
#include "util/array.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

/* All waste of one kind and type. */
struct sum {
	enum waste_kind kind;
	uint32_t type;
	uint64_t groups, count, bytes;
};

struct heap_waste_sums {
	struct sum *entries;
	size_t count, capacity;
	struct sum total;
};

static void sum_add(struct sum *sum, const struct waste *waste)
{
	sum->groups++;
	sum->count += waste->count;
	sum->bytes += waste->bytes;
}

static int sum_compare(const void *a, const void *b)
{
	const struct sum *x = a, *y = b;

	return CMP(y->bytes, x->bytes) ?: CMP(x->type, y->type) ?: CMP(x->kind, y->kind);
}

static int sums_make(struct heap_waste_sums *sums, const struct waste_list *list)
{
	struct id_map found = {0};
	int err = 0;

	for (size_t i = 0; i < list->count && !err; i++) {
		const struct waste *waste = &list->entries[i];
		uint64_t key = (uint64_t)waste->type << 8 | waste->kind;
		uint32_t at = id_map_find(&found, key);

		if (at == ID_MAP_NONE) {
			at = (uint32_t)sums->count;
			err = ARRAY_GROW(sums->entries, sums->capacity, sums->count)
				      ?: id_map_put(&found, key, at);
			if (err)
				break;
			sums->entries[sums->count++] =
				(struct sum){.kind = waste->kind, .type = waste->type};
		}
		sum_add(&sums->entries[at], waste);
		sum_add(&sums->total, waste);
	}
	id_map_free(&found);
	if (sums->count)
		qsort(sums->entries, sums->count, sizeof(*sums->entries), sum_compare);
	return err;
}

static void sums_text(const struct graph *graph, const struct heap_waste_sums *sums)
{
	printf("Waste: %s, in bytes that the same contents would not need\n",
	       SIZE_TEXT(sums->total.bytes));
	for (size_t i = 0; i < sums->count; i++) {
		const struct sum *sum = &sums->entries[i];

		printf("  %s ", waste_kind_name(sum->kind));
		type_text(graph, &graph->types.entries[sum->type]);
		printf(": size=%s, count=%" PRIu64, SIZE_TEXT(sum->bytes), sum->count);
		if (sum->kind == WASTE_DUPLICATE)
			printf(" of %" PRIu64 " contents", sum->groups);
		putchar('\n');
	}
}

static void sums_json(struct json *json, const struct graph *graph,
		      const struct heap_waste_sums *sums)
{
	json_unsigned(json, "waste", sums->total.bytes);
	json_open(json, "kinds", '[');
	for (size_t i = 0; i < sums->count; i++) {
		const struct sum *sum = &sums->entries[i];

		json_open(json, NULL, '{');
		json_text(json, "kind", waste_kind_name(sum->kind));
		json_text(json, "type", graph->types.entries[sum->type].name);
		json_numbers(json, {"size", sum->bytes}, {"count", sum->count},
			     {"groups", sum->groups});
		json_close(json, '}');
	}
	json_close(json, ']');
}

/* Characters of a text, entries of a table. */
static uint64_t example_length(const struct graph *graph, const struct waste *waste)
{
	struct values_text text = {0};
	uint64_t entries;

	if (waste->kind == WASTE_DUPLICATE)
		return values_text(graph, graph->addresses[waste->example], &text) ? text.length
										   : 0;
	waste_spare(graph, waste->example, &entries);
	return entries;
}

static void waste_text(const struct heap_graph *heap, const struct waste *waste, const char *value)
{
	const struct graph *graph = heap->graph;

	printf("  %s ", waste_kind_name(waste->kind));
	type_text(graph, &graph->types.entries[waste->type]);
	printf(": size=%s, count=%" PRIu64 ", for example ", SIZE_TEXT(waste->bytes), waste->count);
	path_name(heap, waste->example, NULL, NULL);
	printf(" at 0x%" PRIx64, graph->addresses[waste->example]);
	if (waste->kind == WASTE_DUPLICATE)
		printf(", %" PRIu64 " characters%s", example_length(graph, waste),
		       value[0] ? ": " : "");
	else
		printf(", %s with %" PRIu64 " entries", SIZE_TEXT(waste->worst),
		       example_length(graph, waste));
	text_print(stdout, value);
	putchar('\n');
}

static void waste_json(struct json *json, const struct heap_graph *heap, const struct waste *waste,
		       const char *value)
{
	const struct graph *graph = heap->graph;

	json_open(json, NULL, '{');
	json_text(json, "kind", waste_kind_name(waste->kind));
	json_text(json, "type", graph->types.entries[waste->type].name);
	json_numbers(json, {"size", waste->bytes}, {"count", waste->count},
		     {"address", graph->addresses[waste->example]},
		     {"length", example_length(graph, waste)});
	path_name(heap, waste->example, json, "example");
	if (value[0])
		json_text(json, "value", value);
	json_close(json, '}');
}

/* 0, -ENOMEM. */
static int entry_print(const struct heap_choice *choice, const struct heap_graph *heap,
		       const struct waste *waste)
{
	struct buffer value = {0};
	int err = 0;

	if (choice->values && waste->kind == WASTE_DUPLICATE)
		err = values_repr(heap->graph, heap->graph->addresses[waste->example], &value);
	err = err < 0 ? err : buffer_append(&value, "", 1);
	if (!err && choice->json)
		waste_json(choice->json, heap, waste, (const char *)value.data);
	else if (!err)
		waste_text(heap, waste, (const char *)value.data);
	buffer_free(&value);
	return err;
}

static int list_print(const struct heap_choice *choice, const struct heap_graph *heap,
		      const struct waste_list *list, const struct heap_waste_sums *sums)
{
	struct json *json = choice->json;
	size_t shown = report_rows(&choice->output.opts, list->count);
	int err = 0;

	heap_answer_begin(choice, heap);
	if (json) {
		sums_json(json, heap->graph, sums);
		json_unsigned(json, "statistics_total", list->count);
		json_open(json, "statistics", '[');
	} else {
		sums_text(heap->graph, sums);
		printf("By contents of texts and by kind of path to tables: %zu of %zu\n", shown,
		       list->count);
	}
	for (size_t i = 0; i < shown && !err; i++)
		err = entry_print(choice, heap, &list->entries[i]);
	if (json)
		json_close(json, ']');
	return heap_answer_end(choice, heap) ?: err;
}

int heap_waste_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct waste_list list;
	struct heap_waste_sums sums = {0};
	int err = waste_find(&list, heap->paths)
	       ?: sums_make(&sums, &list)
	       ?: list_print(choice, heap, &list, &sums);

	free(sums.entries);
	waste_free(&list);
	return err;
}
