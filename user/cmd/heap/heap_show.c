/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap show. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cmd/heap/heap_chosen.h"
#include "cmd/heap/heap_view.h"
#include "inspect/holders/values.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"
#include "util/text.h"

struct showing {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	uint32_t object, source;
	uint64_t shown, total;
	int inwards, err;
};

static void reference_show(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct showing *showing = context;
	struct json *json = showing->choice->json;
	const struct graph *graph = showing->heap->graph;
	uint64_t top = showing->choice->output.opts.top;
	uint32_t other = showing->inwards ? showing->source : graph_find(graph, target);
	struct buffer name = {0};
	const char *kind_name;

	if (showing->err)
		return;
	showing->total++;
	if (top && showing->shown == top)
		return;
	showing->err = reference_name(graph, showing->source, kind, slot, &kind_name, &name)
			       ?: buffer_append(&name, "", 1);
	if (!showing->err && json) {
		json_open(json, NULL, '{');
		json_text(json, "kind", kind_name);
		json_text(json, "name", (const char *)name.data);
		type_json(json, graph, graph_type(graph, other));
		json_unsigned(json, "address", graph->addresses[other]);
		json_close(json, '}');
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
	struct json *json = showing->choice->json;
	struct graph *graph = showing->heap->graph;
	uint64_t top = showing->choice->output.opts.top;

	showing->inwards = inwards;
	showing->shown = showing->total = 0;
	graph_work_begin(graph);
	if (json)
		json_open(json, inwards ? "references_in" : "references_out", '[');
	else
		puts(inwards ? "  is held by" : "  holds");
	if (!inwards) {
		showing->source = showing->object;
		graph_references(graph, showing->object, reference_show, showing);
	}
	for (uint32_t i = graph->in_start[showing->object],
		      end = graph->in_start[showing->object + 1];
	     inwards && i < end; i++) {
		/* A class may have millions of objects: those not shown are only counted. */
		if (top && showing->shown == top) {
			const uint32_t *last = &graph->in[i];

			while (i < end && graph->in[i] == last[-1])
				i++;
			showing->total += end - i;
			break;
		}
		/* An object with several references is several times in the list. */
		if (i > graph->in_start[showing->object] && graph->in[i] == graph->in[i - 1])
			continue;
		showing->source = graph->in[i];
		graph_references_to(graph, showing->source, graph->addresses[showing->object],
				    reference_show, showing);
	}
	if (json) {
		json_close(json, ']');
		json_unsigned(json, inwards ? "references_in_total" : "references_out_total",
			      showing->total);
	} else if (showing->shown < showing->total) {
		printf("    %" PRIu64 " others\n", showing->total - showing->shown);
	}
}

static void object_text(const struct heap_graph *heap, uint32_t object, const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);

	type_text(graph, graph_type(graph, object));
	printf(" at 0x%" PRIx64 "%s", graph->addresses[object], value[0] ? ": " : "");
	text_print(stdout, value);
	printf("\n  size=%s, retained=%s, ", SIZE_TEXT(graph_bytes(graph, object)),
	       SIZE_TEXT(heap->retained->bytes[object]));
	if (count == UINT64_MAX)
		puts("immortal");
	else
		printf("reference count=%" PRIu64 ", found=%u\n", count, graph->held[object]);
}

static void object_json(struct json *json, const struct heap_graph *heap, uint32_t object,
			const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);

	type_json(json, graph, graph_type(graph, object));
	json_numbers(json, {"address", graph->addresses[object]},
		     {"size", graph_bytes(graph, object)},
		     {"retained_size", heap->retained->bytes[object]});
	if (count == UINT64_MAX)
		json_none(json, "refcount");
	else
		json_unsigned(json, "refcount", count);
	json_unsigned(json, "found", graph->held[object]);
	json_text(json, "value", value[0] ? value : NULL);
}

/* A frame of the stack that allocated an object; the first one is its line. */
static void frame_show(struct json *json, const struct block_lines *lines, uint32_t frame,
		       int is_first)
{
	const char *line = lines->names[lines->frames[frame].line];
	const char *function = lines->frames[frame].function;

	if (json) {
		json_open(json, NULL, '{');
		json_text(json, "line", line);
		json_text(json, "function", function);
		json_close(json, '}');
		return;
	}
	fputs(is_first ? " in " : "    ", stdout);
	if (!is_first) {
		text_print(stdout, line);
		fputs(" in ", stdout);
	}
	text_print(stdout, function);
	putchar('\n');
}

/* The line and the stack that allocated the object, if a session or its blocks are known. */
static void lines_show(const struct heap_choice *choice, const struct block_lines *lines,
		       uint64_t address)
{
	const struct block_line *block = block_lines_at(lines, address);
	struct json *json = choice->json;
	uint32_t stack = block ? block->stack : BLOCK_LINES_NONE, first = stack;

	if (!lines->pid)
		return;
	if (json) {
		json_text(json, "line", block ? lines->names[block->line] : NULL);
		json_open(json, "traceback", '[');
	} else {
		fputs(block ? "  allocated at " : "  older than the trace", stdout);
		text_print(stdout, block ? lines->names[block->line] : "");
		if (stack == BLOCK_LINES_NONE)
			putchar('\n');
	}
	for (uint32_t parent; stack != BLOCK_LINES_NONE; stack = parent) {
		frame_show(json, lines, lines->stacks[stack].frame, stack == first);
		parent = lines->stacks[stack].parent;
	}
	if (json)
		json_close(json, ']');
}

int heap_show_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct showing showing = {.choice = choice, .heap = heap};
	struct buffer value = {0};
	struct chosen chosen;
	int err = chosen_find(heap, choice->what, &chosen), is_type = chosen.types != NULL;

	chosen_free(&chosen);
	if (err)
		return err;
	if (is_type)
		return error_set(-ENOENT,
				 "show takes an address; tracer heap holders TYPE shows some");
	showing.object = chosen.object;
	heap->graph->texts_hidden = !choice->values;
	err = values_repr(heap->graph, heap->graph->addresses[chosen.object], &value);
	err = err < 0 ? err : buffer_append(&value, "", 1);
	if (err) {
		buffer_free(&value);
		return err;
	}
	heap_answer_begin(choice, heap);
	if (choice->json)
		object_json(choice->json, heap, chosen.object, (const char *)value.data);
	else
		object_text(heap, chosen.object, (const char *)value.data);
	buffer_free(&value);
	lines_show(choice, &heap->lines, heap->graph->addresses[chosen.object]);
	direction_show(&showing, 0);
	direction_show(&showing, 1);
	err = heap_answer_end(choice, heap);
	return showing.err ?: err;
}
