/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/refcount.h"
#include "util/array.h"
#include "util/error.h"

#define WORK_FACTOR    4u         /* steps for each word of the image, in each pass */
#define WORK_MINIMUM   (1u << 20) /* steps */
#define INTERNED_LEAST 64u        /* entries of the dictionary of interned strings */

const struct type *graph_type(const struct graph *graph, uint32_t object)
{
	return &graph->types.entries[graph->type_of[object]];
}

uint64_t graph_refcount(const struct graph *graph, uint64_t address)
{
	const struct python_offsets *offsets = &graph->image->offsets;
	const uint8_t *object = image_at(graph->image, address, refcount_header(offsets));
	int64_t count = object ? refcount_read(offsets, object) : 0;

	if (count == REFCOUNT_IMMORTAL)
		return UINT64_MAX;
	count += graph_thread_counts(graph, address);
	return count < 0 ? 0 : (uint64_t)count;
}

struct graph_filter {
	struct graph *graph;
	uint32_t source;
	uint64_t only; /* references to this address; 0: all */
	reference_fn visit;
	void *context;
};

static void object_filter(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	const struct graph_filter *filter = context;

	if (filter->only ? target != filter->only : graph_find(filter->graph, target) == GRAPH_NONE)
		return;
	if (filter->graph->refuted.count &&
	    id_map_find(&filter->graph->refuted, graph_word_address(filter->graph, filter->source,
								    kind, slot)) != ID_MAP_NONE)
		kind = REFERENCE_REFUTED;
	filter->visit(filter->context, target, kind, slot);
}

void graph_work_begin(struct graph *graph)
{
	graph->references.work = graph->image->resident_bytes / 8 * WORK_FACTOR + WORK_MINIMUM;
}

void graph_references(struct graph *graph, uint32_t object, reference_fn visit, void *context)
{
	graph_references_to(graph, object, 0, visit, context);
}

void graph_references_to(struct graph *graph, uint32_t object, uint64_t target, reference_fn visit,
			 void *context)
{
	struct graph_filter filter = {.graph = graph,
				      .source = object,
				      .only = target,
				      .visit = visit,
				      .context = context};

	references_each(&graph->references, graph->addresses[object], graph_type(graph, object),
			object_filter, &filter);
	graph->cut |= !graph->references.work;
}

/* Bits of PyASCIIObject.state below the kind. */
static unsigned int interned_state(const struct graph *graph, uint64_t text)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;

	return image_u64(graph->image, text + abi->unicode_state) &
	       ((1u << abi->unicode_kind_shift) - 1);
}

/* How many strings it maps to themselves, if nothing else is in it and all are interned. */
static uint64_t interned_count(const struct graph *graph, uint64_t dict)
{
	const struct image *image = graph->image;
	struct keys keys;
	uint64_t count = 0;

	if (keys_read(image, image_u64(image, dict + image->offsets.objects.dict_keys), &keys) ||
	    keys.count < INTERNED_LEAST)
		return 0;
	for (uint64_t i = 0; i < keys.count; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;
		uint64_t key = image_u64(image, entry + keys.key_at);
		uint64_t value = image_u64(image, entry + keys.value_at);

		if (!value)
			continue;
		if (key != value || !interned_state(graph, key))
			return 0;
		count++;
	}
	return count;
}

/*
 * The dictionary of interned strings holds all of them, so it is the largest that looks like it.
 * Its references are not in the strings' counts.
 */
static void interned_find(struct graph *graph)
{
	uint64_t most = 0;

	for (size_t i = 0; i < graph->count; i++) {
		if (graph_type(graph, (uint32_t)i)->layout != LAYOUT_DICT)
			continue;
		uint64_t count = interned_count(graph, graph->addresses[i]);
		if (count <= most)
			continue;
		most = count;
		graph->interned = graph->addresses[i];
	}
}

struct edging {
	struct graph *graph;
	uint32_t source;
	size_t edges, capacity;
	int err;
};

int graph_counts(const struct graph *graph, uint32_t source, uint64_t target,
		 enum reference_kind kind)
{
	if (kind == REFERENCE_WEAK || kind == REFERENCE_MAYBE || kind == REFERENCE_REFUTED)
		return 0;
	return graph->addresses[source] != graph->interned ||
	       (kind != REFERENCE_KEY && kind != REFERENCE_VALUE) ||
	       interned_state(graph, target) != 1;
}

int graph_beside_add(struct graph *graph, uint32_t source)
{
	if (graph->beside_count && graph->beside[graph->beside_count - 1] == source)
		return 0;
	int err = ARRAY_GROW(graph->beside, graph->beside_capacity, graph->beside_count);
	if (!err)
		graph->beside[graph->beside_count++] = source;
	return err;
}

static void edge_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct edging *edging = context;
	struct graph *graph = edging->graph;
	uint32_t object = graph_find(graph, target);

	if (object == GRAPH_NONE || edging->err)
		return;
	bool counts = graph_counts(graph, edging->source, target, kind);
	if (!counts || object == edging->source)
		edging->err = graph_beside_add(graph, edging->source);
	if (edging->err)
		return;
	if (kind == REFERENCE_MAYBE) {
		struct graph_root_word word = {.object = object,
					       .root = ROOT_FRAME,
					       .kind = kind,
					       .address = graph->addresses[edging->source],
					       .slot = slot};

		edging->err = graph_word_add(graph, &word);
		return;
	}
	if (!counts)
		return;
	if (graph->held[object] < UINT32_MAX)
		graph->held[object]++;
	if (object == edging->source)
		return;
	edging->err = ARRAY_GROW(graph->out, edging->capacity, edging->edges);
	if (!edging->err)
		graph->out[edging->edges++] = object;
}

/* The edges of all objects, one object's after the other's. */
static int edges_find(struct edging *edging)
{
	struct graph *graph = edging->graph;

	graph_work_begin(graph);
	for (size_t i = 0; i < graph->count && !edging->err; i++) {
		graph->out_start[i] = (uint32_t)edging->edges;
		edging->source = (uint32_t)i;
		references_each(&graph->references, graph->addresses[i],
				graph_type(graph, (uint32_t)i), edge_visit, edging);
	}
	graph->out_start[graph->count] = (uint32_t)edging->edges;
	graph->cut |= !graph->references.work;
	return edging->err == -EOVERFLOW ? -E2BIG : edging->err;
}

static void edges_turn(struct graph *graph, size_t edges)
{
	uint32_t *start = graph->in_start, sum = 0;

	for (size_t i = 0; i < edges; i++)
		start[graph->out[i]]++;
	for (size_t i = 0; i <= graph->count; i++) {
		uint32_t here = start[i];

		start[i] = sum;
		sum += here;
	}
	for (size_t i = 0; i < graph->count; i++)
		for (uint32_t at = graph->out_start[i]; at < graph->out_start[i + 1]; at++)
			graph->in[start[graph->out[at]]++] = (uint32_t)i;
	memmove(start + 1, start, graph->count * sizeof(*start));
	start[0] = 0;
}

static int graph_edges(struct graph *graph)
{
	struct edging edging = {.graph = graph};

	graph->out_start = array_new(graph->count + 1, sizeof(uint32_t));
	graph->in_start = array_new(graph->count + 1, sizeof(uint32_t));
	if (!graph->out_start || !graph->in_start)
		return -ENOMEM;
	int err = array_reserve(&graph->out, &edging.capacity, 0, graph->count, sizeof(uint32_t))
		  ?: edges_find(&edging)
		  ?: graph_guesses_drop(graph);
	if (err)
		return err;
	edging.edges = graph->out_start[graph->count];
	array_fit(NULL, &graph->out, &edging.capacity, edging.edges, sizeof(*graph->out));
	graph->in = array_new(edging.edges, sizeof(uint32_t));
	if (!graph->in)
		return -ENOMEM;
	edges_turn(graph, edging.edges);
	return 0;
}

static int bytes_find(struct graph *graph)
{
	for (size_t i = 0; i < graph->count; i++) {
		uint64_t bytes = graph_own_bytes(graph, graph->addresses[i],
						 graph_type(graph, (uint32_t)i)) /
				 8;

		graph->bytes[i] = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
	}
	for (size_t i = 0; i < graph->references.claim_count; i++) {
		const struct claim *claim = &graph->references.claims[i];
		uint32_t owner = graph_find(graph, claim->owner);
		uint64_t bytes = claim->bytes / 8;

		if (owner == GRAPH_NONE)
			continue;
		bytes += graph->bytes[owner];
		graph->bytes[owner] = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
	}
	return 0;
}

static int graph_build(struct graph *graph)
{
	int err = image_blocks_read(&graph->blocks, graph->image);

	err = err ?: types_open(&graph->types, graph->image);
	if (!err && types_find(&graph->types, graph->image->type_type) == TYPES_NONE)
		err = error_set(-ENOTSUP, "PyType_Type is not where its file says");
	if (err)
		return err;
	graph->references.image = graph->image;
	graph->references.blocks = &graph->blocks;
	graph->references.types = &graph->types;
	graph_work_begin(graph);
	err = graph_discover(graph);
	graph->cut = !graph->references.work;
	err = err ?: graph_index(graph);
	if (err)
		return err;
	graph->bytes = array_new(graph->count + 1, sizeof(uint32_t));
	graph->held = array_new(graph->count + 1, sizeof(uint32_t));
	graph->root = array_new(graph->count + 1, 1);
	graph->proofs = calloc(graph->types.count + 1, sizeof(*graph->proofs));
	if (!graph->bytes || !graph->held || !graph->root || !graph->proofs)
		return -ENOMEM;
	interned_find(graph);
	err = graph_thread_counts_read(graph);
	if (err)
		return err;
	graph_work_begin(graph);
	err = bytes_find(graph) ?: graph_roots(graph) ?: graph_edges(graph);
	if (err)
		return err;
	graph_words_sort(graph);
	return graph_interpreters_read(graph) ?: graph_prove(graph)
							 ?: graph_garbage_find(graph)
							 ?: graph_lost_find(graph);
}

int graph_new(struct graph **out, const struct image *image)
{
	struct graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return -ENOMEM;
	graph->image = image;
	int err = graph_build(graph);
	if (err) {
		graph_free(graph);
		return err;
	}
	*out = graph;
	return 0;
}

void graph_free(struct graph *graph)
{
	if (!graph)
		return;
	image_blocks_free(&graph->blocks);
	types_free(&graph->types);
	references_free(&graph->references);
	id_map_free(&graph->found);
	id_map_free(&graph->thread_counts);
	id_map_free(&graph->refuted);
	collectors_free(&graph->collectors);
	free(graph->interpreters);
	free(graph->kept);
	free(graph->addresses);
	free(graph->type_of);
	free(graph->bytes);
	free(graph->held);
	free(graph->root);
	free(graph->out_start);
	free(graph->out);
	free(graph->in_start);
	free(graph->in);
	free(graph->beside);
	free(graph->words);
	free(graph->proofs);
	free(graph->pages);
	free(graph->page_start);
	free(graph);
}
