/* SPDX-License-Identifier: Apache-2.0 */
/* References that were found word by word, held against the reference counts of their targets. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/graph.h"

struct dropping {
	struct graph *graph;
	uint32_t *excess; /* by object: references that were found beyond its count */
	uint32_t source;
	enum reference_kind kind; /* that is dropped in this round */
	int err;
};

uint64_t graph_word_address(const struct graph *graph, uint32_t source, enum reference_kind kind,
			    uint64_t slot)
{
	return kind == REFERENCE_WORD     ? graph->addresses[source] + slot
	       : kind == REFERENCE_BUFFER ? slot
					  : 0;
}

/* Whether it was found word by word, and nothing says that a reference is there. */
static int is_unnamed(const struct graph *graph, uint32_t source, enum reference_kind kind,
		      uint64_t slot)
{
	const struct type *type = graph_type(graph, source);
	struct object_field field;
	char member[TYPES_NAME];

	switch (type->layout) {
	case LAYOUT_DICT: /* an OrderedDict's nodes */
	case LAYOUT_CODE:
	case LAYOUT_GENERATOR:
	case LAYOUT_MODULE:
	case LAYOUT_LRU_LINK:
		return 0;
	default:
		break;
	}
	return kind == REFERENCE_BUFFER ||
	       (kind == REFERENCE_WORD && !types_field(&graph->types, type, slot, &field) &&
		!types_member(&graph->types, type, slot, member));
}

int graph_is_guess(const struct graph *graph, uint32_t source, uint64_t target,
		   enum reference_kind kind, uint64_t slot)
{
	uint32_t object = graph_find(graph, target);

	return object != GRAPH_NONE && graph->held[object] != graph_refcount(graph, target) &&
	       is_unnamed(graph, source, kind, slot);
}

/* Returns whether there are any. */
static int excess_find(struct dropping *dropping)
{
	const struct graph *graph = dropping->graph;
	int any = 0;

	for (size_t i = 0; i < graph->count; i++) {
		const struct image_segment *segment =
			image_segment(graph->image, graph->addresses[i]);
		uint64_t count;

		if (!graph->held[i] || !segment || segment->kind == IMAGE_DATA)
			continue;
		count = graph_refcount(graph, graph->addresses[i]);
		if (count >= graph->held[i])
			continue;
		dropping->excess[i] = graph->held[i] - (uint32_t)count;
		any = 1;
	}
	return any;
}

/* Takes one edge out of the source's; those to itself are not among them. */
static void edge_remove(struct graph *graph, uint32_t source, uint32_t target)
{
	for (uint32_t i = graph->out_start[source]; i < graph->out_start[source + 1]; i++)
		if (graph->out[i] == target) {
			graph->out[i] = GRAPH_NONE;
			return;
		}
}

static void guess_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct dropping *dropping = context;
	struct graph *graph = dropping->graph;
	uint32_t object;
	uint64_t word;

	if (kind != dropping->kind || dropping->err)
		return;
	object = graph_find(graph, target);
	if (object == GRAPH_NONE || !dropping->excess[object] ||
	    !is_unnamed(graph, dropping->source, kind, slot))
		return;
	word = graph_word_address(graph, dropping->source, kind, slot);
	dropping->err = id_map_put(&graph->refuted, word, 1);
	if (dropping->err)
		return;
	dropping->excess[object]--;
	graph->held[object]--;
	edge_remove(graph, dropping->source, object);
}

static int refers_to_excess(const struct dropping *dropping, uint32_t source)
{
	const struct graph *graph = dropping->graph;

	if (dropping->excess[source])
		return 1;
	for (uint32_t i = graph->out_start[source]; i < graph->out_start[source + 1]; i++)
		if (graph->out[i] != GRAPH_NONE && dropping->excess[graph->out[i]])
			return 1;
	return 0;
}

static void round_drop(struct dropping *dropping, enum reference_kind kind)
{
	struct graph *graph = dropping->graph;

	dropping->kind = kind;
	for (uint32_t i = 0; i < graph->count && !dropping->err; i++) {
		if (!refers_to_excess(dropping, i))
			continue;
		dropping->source = i;
		references_each(&graph->references, graph->addresses[i], graph_type(graph, i),
				guess_visit, dropping);
	}
}

static void edges_close_up(struct graph *graph)
{
	uint32_t kept = 0, from = 0;

	for (size_t i = 0; i < graph->count; i++) {
		uint32_t end = graph->out_start[i + 1];

		for (; from < end; from++)
			if (graph->out[from] != GRAPH_NONE)
				graph->out[kept++] = graph->out[from];
		graph->out_start[i + 1] = kept;
	}
}

int graph_guesses_drop(struct graph *graph)
{
	struct dropping dropping = {.graph = graph,
				    .excess = array_new(graph->count + 1, sizeof(uint32_t))};

	if (!dropping.excess)
		return -ENOMEM;
	if (excess_find(&dropping)) {
		graph_work_begin(graph);
		round_drop(&dropping, REFERENCE_BUFFER);
		round_drop(&dropping, REFERENCE_WORD);
		graph->cut |= !graph->references.work;
		edges_close_up(graph);
	}
	free(dropping.excess);
	return dropping.err;
}
