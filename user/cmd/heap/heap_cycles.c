/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap cycles: what only the collector can free, by the types in a cycle. */
#include <inttypes.h>
#include <stdio.h>

#include "cmd/heap/heap_view.h"
#include "inspect/waste/cycles.h"
#include "util/json.h"
#include "util/size.h"

#define MAX_NAMES 6u /* types of a cycle that are printed */

/* The types of an entry, or those of them with a finalizer. */
static void types_text(const struct graph *graph, const struct cycles *cycles,
		       const struct cycle *cycle, int finalized)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cycle->type_count; i++) {
		const struct type *type =
			&graph->types.entries[cycles->types[cycle->first_type + i]];

		if ((finalized && !type->finalize) || count++ >= MAX_NAMES)
			continue;
		fputs(count > 1 ? ", " : "", stdout);
		type_text(graph, type);
	}
	if (count > MAX_NAMES)
		printf(" and %u others", count - MAX_NAMES);
}

static void types_json(struct json *json, const char *key, const struct graph *graph,
		       const struct cycles *cycles, const struct cycle *cycle, int finalized)
{
	json_open(json, key, '[');
	for (uint32_t i = 0; i < cycle->type_count; i++) {
		const struct type *type =
			&graph->types.entries[cycles->types[cycle->first_type + i]];

		if (!finalized || type->finalize)
			json_text(json, NULL, type->name);
	}
	json_close(json, ']');
}

static void cycle_text(const struct heap_graph *heap, const struct cycles *cycles,
		       const struct cycle *cycle)
{
	printf("  %" PRIu64 " cycle%s of ", cycle->cycles, cycle->cycles == 1 ? "" : "s");
	types_text(heap->graph, cycles, cycle, 0);
	printf(": retained=%s, size=%s, count=%" PRIu64, SIZE_TEXT(cycle->retained),
	       SIZE_TEXT(cycle->bytes), cycle->count);
	if (cycle->garbage)
		printf(", garbage=%" PRIu64, cycle->garbage);
	if (cycle->frozen)
		printf(", frozen garbage=%" PRIu64, cycle->frozen);
	if (cycle->garbage_retained && cycle->garbage + cycle->frozen < cycle->cycles)
		printf(" (retained=%s)", SIZE_TEXT(cycle->garbage_retained));
	if (cycle->kept)
		printf(", in gc.garbage=%" PRIu64, cycle->kept);
	if (cycle->finalized) {
		fputs(", with __del__: ", stdout);
		types_text(heap->graph, cycles, cycle, 1);
	}
	fputs("\n    for example ", stdout);
	path_name(heap, cycle->example, NULL, NULL);
	printf(" at 0x%" PRIx64 ", a cycle of %u objects\n", heap->graph->addresses[cycle->example],
	       cycle->largest);
}

static void sums_json(struct json *json, const struct cycle *cycle)
{
	json_numbers(json, {"cycles", cycle->cycles}, {"size", cycle->bytes},
		     {"count", cycle->count}, {"finalized_count", cycle->finalized},
		     {"garbage", cycle->garbage}, {"frozen", cycle->frozen},
		     {"in_gc_garbage", cycle->kept});
}

static void cycle_json(struct json *json, const struct heap_graph *heap,
		       const struct cycles *cycles, const struct cycle *cycle)
{
	json_open(json, NULL, '{');
	sums_json(json, cycle);
	json_numbers(json, {"retained_size", cycle->retained},
		     {"garbage_retained_size", cycle->garbage_retained});
	types_json(json, "types", heap->graph, cycles, cycle, 0);
	types_json(json, "finalized", heap->graph, cycles, cycle, 1);
	json_numbers(json, {"address", heap->graph->addresses[cycle->example]},
		     {"largest", cycle->largest});
	path_name(heap, cycle->example, json, "example");
	json_close(json, '}');
}

/* What becomes of the garbage. */
static void garbage_print(const struct heap_graph *heap, const struct cycles *cycles)
{
	const struct cycle *total = &cycles->total;
	size_t states = heap->graph->collectors.count;
	size_t off = collectors_off(&heap->graph->collectors);

	if (total->garbage)
		printf("Garbage: %" PRIu64 " cycle%s; a collection frees %s", total->garbage,
		       total->garbage == 1 ? "" : "s", SIZE_TEXT(cycles->garbage_bytes));
	if (total->garbage && off && off == states)
		fputs("; the collector is off", stdout);
	else if (total->garbage && off)
		printf("; the collector is off in %zu of %zu interpreters", off, states);
	else if (total->garbage && !states)
		fputs("; whether the collector is on was not found", stdout);
	if (total->garbage)
		putchar('\n');
	if (total->frozen)
		printf("Frozen garbage: %" PRIu64 " cycle%s with %s: no collection frees them, "
		       "they were there at gc.freeze()\n",
		       total->frozen, total->frozen == 1 ? "" : "s",
		       SIZE_TEXT(cycles->frozen_bytes));
	if (total->kept)
		printf("In gc.garbage: %" PRIu64 " cycle%s with %s: no collection frees them\n",
		       total->kept, total->kept == 1 ? "" : "s", SIZE_TEXT(cycles->kept_bytes));
}

static void head_text(const struct heap_graph *heap, const struct cycles *cycles, size_t shown)
{
	const struct cycle *total = &cycles->total;

	printf("Cycles: %" PRIu64 ", size=%s, count=%" PRIu64 "; objects with __del__: %" PRIu64
	       "\n",
	       total->cycles, SIZE_TEXT(total->bytes), total->count, total->finalized);
	garbage_print(heap, cycles);
	printf("By the types in a cycle: %zu of %zu\n", shown, cycles->count);
}

static void head_json(struct json *json, const struct heap_graph *heap, const struct cycles *cycles)
{
	const struct collectors *collectors = &heap->graph->collectors;

	json_open(json, "total", '{');
	sums_json(json, &cycles->total);
	json_close(json, '}');
	json_numbers(json, {"garbage_size", cycles->garbage_bytes},
		     {"frozen_size", cycles->frozen_bytes},
		     {"in_gc_garbage_size", cycles->kept_bytes}, {"collectors", collectors->count},
		     {"collectors_off", collectors_off(collectors)},
		     {"frozen_count", heap->graph->frozen}, {"statistics_total", cycles->count});
	json_open(json, "statistics", '[');
}

int heap_cycles_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct json *json = choice->json;
	size_t shown;
	struct cycles cycles;
	int err = cycles_find(&cycles, heap->paths, heap->retained);

	if (!err) {
		shown = report_rows(&choice->output.opts, cycles.count);
		heap_answer_begin(choice, heap);
		if (json)
			head_json(json, heap, &cycles);
		else
			head_text(heap, &cycles, shown);
		for (size_t i = 0; i < shown; i++)
			if (json)
				cycle_json(json, heap, &cycles, &cycles.entries[i]);
			else
				cycle_text(heap, &cycles, &cycles.entries[i]);
		if (json)
			json_close(json, ']');
		err = heap_answer_end(choice, heap);
	}
	cycles_free(&cycles);
	return err;
}
