/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap show. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cmd/heap/heap_chosen.h"
#include "cmd/heap/heap_view.h"
#include "inspect/dominators/values.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/text.h"

struct showing {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	uint32_t object, source;
	uint64_t shown, total;
	int inwards, json, err;
};

static void reference_show(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct showing *showing = context;
	const struct graph *graph = showing->heap->graph;
	uint64_t top = showing->choice->output.opts.top;
	uint32_t other = showing->inwards ? showing->source : graph_find(graph, target);
	struct buffer name = {0};
	const char *kind_name;

	if (showing->err || (showing->inwards && target != graph->addresses[showing->object]))
		return;
	showing->total++;
	if (top && showing->shown == top)
		return;
	showing->err = reference_name(graph, showing->source, kind, slot, &kind_name, &name)
			       ?: buffer_append(&name, "", 1);
	if (!showing->err && showing->json) {
		printf("%s{\"kind\": \"%s\", \"name\": ", showing->shown ? ", " : "", kind_name);
		json_string(stdout, (const char *)name.data);
		fputs(", ", stdout);
		type_json(graph, graph_type(graph, other));
		printf(", \"address\": %" PRIu64 "}", graph->addresses[other]);
	} else if (!showing->err) {
		printf("    %s ", kind_name);
		text_print(stdout, (const char *)name.data);
		printf("%s", showing->inwards ? " of " : " -> ");
		type_text(graph, graph_type(graph, other));
		printf(" at 0x%" PRIx64 "\n", graph->addresses[other]);
	}
	showing->shown++;
	buffer_free(&name);
}

static void direction_show(struct showing *showing, int inwards)
{
	struct graph *graph = showing->heap->graph;

	showing->inwards = inwards;
	showing->shown = showing->total = 0;
	graph_work_begin(graph);
	if (showing->json)
		printf(", \"%s\": [", inwards ? "references_in" : "references_out");
	else
		puts(inwards ? "  is held by" : "  holds");
	if (!inwards) {
		showing->source = showing->object;
		graph_references(graph, showing->object, reference_show, showing);
	}
	for (uint32_t i = graph->in_start[showing->object];
	     inwards && i < graph->in_start[showing->object + 1]; i++) {
		/* An object with several references is several times in the list. */
		if (i > graph->in_start[showing->object] && graph->in[i] == graph->in[i - 1])
			continue;
		showing->source = graph->in[i];
		graph_references(graph, showing->source, reference_show, showing);
	}
	if (showing->json)
		printf("], \"%s\": %" PRIu64,
		       inwards ? "references_in_total" : "references_out_total", showing->total);
	else if (showing->shown < showing->total)
		printf("    %" PRIu64 " others\n", showing->total - showing->shown);
}

static void object_text(const struct heap_graph *heap, uint32_t object, const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);
	char size[32], retained[32];

	type_text(graph, graph_type(graph, object));
	printf(" at 0x%" PRIx64 "%s", graph->addresses[object], value[0] ? ": " : "");
	text_print(stdout, value);
	printf("\n  size=%s, retained=%s, ", size_text(size, graph_bytes(graph, object)),
	       size_text(retained, heap->retained->bytes[object]));
	if (count == UINT64_MAX)
		puts("immortal");
	else
		printf("reference count=%" PRIu64 ", found=%u\n", count, graph->held[object]);
}

static void object_json(const struct heap_graph *heap, uint32_t object, const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);

	heap_graph_json(heap);
	fputs(", ", stdout);
	type_json(graph, graph_type(graph, object));
	printf(", \"address\": %" PRIu64 ", \"size\": %" PRIu64 ", \"retained_size\": %" PRIu64
	       ", \"refcount\": ",
	       graph->addresses[object], graph_bytes(graph, object), heap->retained->bytes[object]);
	if (count == UINT64_MAX)
		fputs("null", stdout);
	else
		printf("%" PRIu64, count);
	printf(", \"found\": %u, \"value\": ", graph->held[object]);
	if (value[0])
		json_string(stdout, value);
	else
		fputs("null", stdout);
}

int heap_show_print(const struct heap_choice *choice, const struct heap_graph *heap,
		    const char *what)
{
	struct showing showing = {
		.choice = choice, .heap = heap, .json = choice->output.format == FORMAT_JSON};
	struct buffer value = {0};
	struct chosen chosen;
	int err = chosen_find(heap, what, &chosen), is_type = chosen.types != NULL;

	chosen_free(&chosen);
	if (err)
		return err;
	if (is_type)
		return error_print(error_set(-ENOENT, "show takes an address"),
				   "tracer heap holders TYPE shows some", "%s", what);
	showing.object = chosen.object;
	heap->graph->texts_hidden = !choice->values;
	err = values_repr(heap->graph, heap->graph->addresses[chosen.object], &value);
	err = err < 0 ? err : buffer_append(&value, "", 1);
	if (err) {
		buffer_free(&value);
		return err;
	}
	if (showing.json) {
		object_json(heap, chosen.object, (const char *)value.data);
	} else {
		heap_graph_head(heap);
		object_text(heap, chosen.object, (const char *)value.data);
	}
	buffer_free(&value);
	direction_show(&showing, 0);
	direction_show(&showing, 1);
	if (showing.json)
		puts("}");
	else
		heap_graph_foot(&choice->output.opts, heap);
	return showing.err ?: stream_flush(stdout);
}
