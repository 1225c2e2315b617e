/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap --older-than: how old objects are, by a session that has seen their blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/heap/heap_view.h"
#include "report/recording/recording_load.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

/* What the session has not seen is older than its trace, if it has seen all since that began. */
static uint32_t age_of(const struct heap_graph *heap, size_t object)
{
	const struct block_line *block =
		block_lines_at(&heap->lines, heap->graph->addresses[object]);

	return block ? block->age : heap->lines.whole ? AGE_BEFORE : AGE_UNKNOWN;
}

int heap_ages_read(struct heap_ages *out, const struct heap_choice *choice,
		   const struct heap_graph *heap)
{
	const struct graph *graph = heap->graph;
	int err;

	if (!choice->by_age)
		return 0;
	err = cli_ages_at(&choice->ages, heap->lines.taken_ms * AGE_UNIT_NS, &out->wanted);
	if (err)
		return err;
	out->ages = calloc(graph->count + 1, sizeof(*out->ages));
	if (!out->ages)
		return -ENOMEM;
	for (size_t i = 0; i < graph->count; i++) {
		uint64_t bytes = graph_bytes(graph, (uint32_t)i);

		out->ages[i] = age_of(heap, i);
		if (out->ages[i] == AGE_BEFORE) {
			out->before++;
			out->before_bytes += bytes;
		} else if (out->ages[i] == AGE_UNKNOWN) {
			out->unknown++;
			out->unknown_bytes += bytes;
		}
	}
	return 0;
}

void heap_ages_free(struct heap_ages *ages)
{
	free(ages->ages);
}

bool heap_ages_want(const struct heap_ages *ages, const struct heap_graph *heap, uint32_t object)
{
	return !ages->ages ||
	       ages_want(&ages->wanted, ages->ages[object], heap->lines.taken_ms * AGE_UNIT_NS);
}

/* Objects of known age, by row, the oldest first. */
struct aged_object {
	uint64_t key; /* row, and the age's complement */
};

static void row_ages_set(struct row *row, const struct aged_object *objects, size_t count)
{
	row->oldest = ~(uint32_t)objects[0].key;
	row->median = ~(uint32_t)objects[(count - 1) / 2].key;
}

int heap_ages_rows(struct view *view)
{
	size_t objects = view->heap->graph->count, count = 0;
	struct aged_object *aged;

	if (!view->ages.ages)
		return 0;
	aged = calloc(objects + 1, sizeof(*aged));
	if (!aged)
		return -ENOMEM;
	for (size_t i = 0; i < objects; i++) {
		uint32_t row = view->row_of[i], age = view->ages.ages[i];

		if (row != GRAPH_NONE && age == AGE_BEFORE)
			view->rows[row].before++;
		else if (row != GRAPH_NONE)
			aged[count++].key = (uint64_t)row << 32 | (uint32_t)~age;
	}
	if (count)
		qsort(aged, count, sizeof(*aged), key_compare);
	for (size_t first = 0, end; first < count; first = end) {
		uint32_t row = (uint32_t)(aged[first].key >> 32);

		for (end = first; end < count && aged[end].key >> 32 == row; end++)
			;
		row_ages_set(&view->rows[row], &aged[first], end - first);
	}
	free(aged);
	return 0;
}

static const char *age_text(char text[RECORDING_DURATION_BYTES], uint32_t age)
{
	return recording_duration_text(text, age * AGE_UNIT_NS);
}

void heap_ages_row(const struct row *row, int tables)
{
	char oldest[RECORDING_DURATION_BYTES] = "", median[RECORDING_DURATION_BYTES] = "";

	if (row->oldest) {
		age_text(oldest, row->oldest);
		age_text(median, row->median);
	}
	if (tables) {
		printf("%s\t%s\t", row->before ? "before" : oldest, median);
		return;
	}
	if (row->before)
		printf(", before the trace=%" PRIu64, row->before);
	if (row->oldest)
		printf(", oldest=%s, median age=%s", oldest, median);
}

void heap_ages_row_json(struct json *json, const struct row *row)
{
	json_unsigned(json, "before_count", row->before);
	if (!row->oldest)
		return;
	json_fixed(json, "age_oldest", (double)row->oldest / 1e3, 3);
	json_fixed(json, "age_median", (double)row->median / 1e3, 3);
}

void heap_ages_print(const struct view *view)
{
	const struct heap_ages *ages = &view->ages;
	char traced[RECORDING_DURATION_BYTES];

	printf("Only objects of the ages that were asked for, by a session that began %s before: "
	       "of %s objects in all, %s (%s) are from before it or came while "
	       "the heap was copied%s",
	       recording_duration_text(traced, view->heap->lines.traced_ms * AGE_UNIT_NS),
	       COUNT_TEXT(view->heap->graph->count), COUNT_TEXT(ages->before),
	       SIZE_TEXT(ages->before_bytes),
	       ages_want(&ages->wanted, AGE_BEFORE, 0) ? ", and count as older" : "");
	if (view->heap->lines.whole)
		puts("; the age of none is unknown");
	else
		printf("; the age of %s (%s) is not known, as the session sees a part of the "
		       "blocks\n",
		       COUNT_TEXT(ages->unknown), SIZE_TEXT(ages->unknown_bytes));
}

static void sum_json(struct json *json, const char *key, uint64_t bytes, uint64_t count)
{
	json_open(json, key, '{');
	json_numbers(json, {"size", bytes}, {"count", count});
	json_close(json, '}');
}

void heap_ages_json(struct json *json, const struct view *view)
{
	const struct heap_ages *ages = &view->ages;

	json_open(json, "ages", '{');
	json_fixed(json, "traced", (double)view->heap->lines.traced_ms / 1e3, 3);
	json_bool(json, "whole", view->heap->lines.whole);
	sum_json(json, "before", ages->before_bytes, ages->before);
	sum_json(json, "unknown", ages->unknown_bytes, ages->unknown);
	json_close(json, '}');
}
