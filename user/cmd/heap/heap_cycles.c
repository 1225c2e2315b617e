/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap cycles: what only the collector can free, by the types in a cycle. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cmd/heap/heap_view.h"
#include "inspect/waste/cycles.h"
#include "util/json.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/text.h"

#define MAX_NAMES 6u /* types of a cycle that are printed */

/* The types of an entry, or those of them with a finalizer. Returns how many there are. */
static uint32_t types_print(const struct graph *graph, const struct cycles *cycles,
			    const struct cycle *cycle, int finalized, int json)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cycle->type_count; i++) {
		const struct type *type =
			&graph->types.entries[cycles->types[cycle->first_type + i]];

		if (finalized && !type->finalize)
			continue;
		if (!json && count++ >= MAX_NAMES)
			continue;
		if (json) {
			fputs(count++ ? ", " : "", stdout);
			json_string(stdout, type->name);
		} else {
			fputs(count > 1 ? ", " : "", stdout);
			type_text(graph, type);
		}
	}
	if (!json && count > MAX_NAMES)
		printf(" and %u others", count - MAX_NAMES);
	return count;
}

static void cycle_text(const struct heap_graph *heap, const struct cycles *cycles,
		       const struct cycle *cycle)
{
	char size[32], retained[32];

	printf("  %" PRIu64 " cycle%s of ", cycle->cycles, cycle->cycles == 1 ? "" : "s");
	types_print(heap->graph, cycles, cycle, 0, 0);
	printf(": retained=%s, size=%s, count=%" PRIu64, size_text(retained, cycle->retained),
	       size_text(size, cycle->bytes), cycle->count);
	if (cycle->garbage)
		printf(", garbage=%" PRIu64, cycle->garbage);
	if (cycle->frozen)
		printf(", frozen garbage=%" PRIu64, cycle->frozen);
	if (cycle->garbage_retained && cycle->garbage + cycle->frozen < cycle->cycles)
		printf(" (retained=%s)", size_text(retained, cycle->garbage_retained));
	if (cycle->kept)
		printf(", in gc.garbage=%" PRIu64, cycle->kept);
	if (cycle->finalized) {
		fputs(", with __del__: ", stdout);
		types_print(heap->graph, cycles, cycle, 1, 0);
	}
	fputs("\n    for example ", stdout);
	path_name(heap, cycle->example, stdout, 0);
	printf(" at 0x%" PRIx64 ", a cycle of %u objects\n", heap->graph->addresses[cycle->example],
	       cycle->largest);
}

static void sums_json(const struct cycle *cycle)
{
	printf("{\"cycles\": %" PRIu64 ", \"size\": %" PRIu64 ", \"count\": %" PRIu64
	       ", \"finalized_count\": %" PRIu64 ", \"garbage\": %" PRIu64 ", \"frozen\": %" PRIu64
	       ", \"in_gc_garbage\": %" PRIu64,
	       cycle->cycles, cycle->bytes, cycle->count, cycle->finalized, cycle->garbage,
	       cycle->frozen, cycle->kept);
}

static void cycle_json(const struct heap_graph *heap, const struct cycles *cycles,
		       const struct cycle *cycle)
{
	sums_json(cycle);
	printf(", \"retained_size\": %" PRIu64 ", \"garbage_retained_size\": %" PRIu64,
	       cycle->retained, cycle->garbage_retained);
	fputs(", \"types\": [", stdout);
	types_print(heap->graph, cycles, cycle, 0, 1);
	fputs("], \"finalized\": [", stdout);
	types_print(heap->graph, cycles, cycle, 1, 1);
	printf("], \"address\": %" PRIu64 ", \"largest\": %u, \"example\": ",
	       heap->graph->addresses[cycle->example], cycle->largest);
	path_name(heap, cycle->example, stdout, 1);
	putchar('}');
}

/* What becomes of the garbage. */
static void garbage_print(const struct heap_graph *heap, const struct cycles *cycles)
{
	const struct cycle *total = &cycles->total;
	size_t states = heap->graph->collectors.count;
	size_t off = collectors_off(&heap->graph->collectors);
	char size[32];

	if (total->garbage)
		printf("Garbage: %" PRIu64 " cycle%s; a collection frees %s", total->garbage,
		       total->garbage == 1 ? "" : "s", size_text(size, cycles->garbage_bytes));
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
		       size_text(size, cycles->frozen_bytes));
	if (total->kept)
		printf("In gc.garbage: %" PRIu64 " cycle%s with %s: no collection frees them\n",
		       total->kept, total->kept == 1 ? "" : "s",
		       size_text(size, cycles->kept_bytes));
}

static void garbage_json(const struct heap_graph *heap, const struct cycles *cycles)
{
	printf(", \"garbage_size\": %" PRIu64 ", \"frozen_size\": %" PRIu64
	       ", \"in_gc_garbage_size\": %" PRIu64 ", \"collectors\": %zu, "
	       "\"collectors_off\": %zu, \"frozen_count\": %" PRIu64,
	       cycles->garbage_bytes, cycles->frozen_bytes, cycles->kept_bytes,
	       heap->graph->collectors.count, collectors_off(&heap->graph->collectors),
	       heap->graph->frozen);
}

static void head_print(const struct heap_graph *heap, const struct cycles *cycles, size_t shown,
		       int json)
{
	const struct cycle *total = &cycles->total;
	char size[32];

	if (json) {
		heap_graph_json(heap);
		fputs(", \"total\": ", stdout);
		sums_json(total);
		putchar('}');
		garbage_json(heap, cycles);
		printf(", \"statistics_total\": %zu, \"statistics\": [", cycles->count);
		return;
	}
	heap_graph_head(heap);
	printf("Cycles: %" PRIu64 ", size=%s, count=%" PRIu64 "; objects with __del__: %" PRIu64
	       "\n",
	       total->cycles, size_text(size, total->bytes), total->count, total->finalized);
	garbage_print(heap, cycles);
	printf("By the types in a cycle: %zu of %zu\n", shown, cycles->count);
}

int heap_cycles_print(const struct heap_choice *choice, const struct heap_graph *heap,
		      const char *what)
{
	int json = choice->output.format == FORMAT_JSON;
	size_t top = choice->output.opts.top, shown;
	struct cycles cycles;
	int err = cycles_find(&cycles, heap->paths, heap->retained);

	(void)what;
	if (!err) {
		shown = top && top < cycles.count ? top : cycles.count;
		head_print(heap, &cycles, shown, json);
		for (size_t i = 0; i < shown; i++) {
			if (json && i)
				fputs(", ", stdout);
			(json ? cycle_json : cycle_text)(heap, &cycles, &cycles.entries[i]);
		}
		if (json)
			puts("]}");
		else
			heap_graph_foot(&choice->output.opts, heap);
		err = stream_flush(stdout);
	}
	cycles_free(&cycles);
	return err;
}
