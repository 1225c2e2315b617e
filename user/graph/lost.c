/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reference is a word of memory. An object whose count says more than all words that have its
 * address has references that nothing holds any more: C code has forgotten them, such as the code
 * objects that Cython makes for functions that cannot be traced. Words are counted with the three
 * lowest bits cleared, which may be a tag; too many of them only hide a lost reference.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/graph.h"

#define FILTER_BITS 20u /* of the filter in front of the map */
#define TAG         7u

struct losing {
	struct graph *graph;
	struct id_map number_of; /* by address, in `objects` */
	uint32_t *objects, *words;
	size_t count, capacity;
	uint64_t first, last; /* addresses of the objects */
	uint8_t *filter;
};

static uint32_t filter_bit(uint64_t address)
{
	return (uint32_t)(hash_u64(address) & ((1u << FILTER_BITS) - 1));
}

/* Words that may hold the object, as far as they were found. */
static uint64_t found_words(const struct graph *graph, uint32_t object)
{
	uint64_t words = graph->held[object];
	size_t count;
	const struct graph_root_word *word = graph_words(graph, object, &count);

	for (size_t i = 0; i < count; i++)
		words += word[i].kind == REFERENCE_MAYBE;
	return words;
}

static int candidate_add(struct losing *losing, uint32_t object)
{
	uint64_t address = losing->graph->addresses[object];
	uint32_t bit = filter_bit(address);
	int err = array_reserve(&losing->objects, &losing->capacity, losing->count, 1,
				sizeof(*losing->objects));

	if (!err)
		err = id_map_put(&losing->number_of, address, (uint32_t)losing->count);
	if (err)
		return err;
	losing->filter[bit / 8] |= (uint8_t)(1u << bit % 8);
	if (!losing->count || address < losing->first)
		losing->first = address;
	if (!losing->count || address > losing->last)
		losing->last = address;
	losing->objects[losing->count++] = object;
	return 0;
}

static int candidates_find(struct losing *losing)
{
	const struct graph *graph = losing->graph;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint64_t count;

		if (graph->root[i] != ROOT_NATIVE)
			continue;
		count = graph_refcount(graph, graph->addresses[i]);
		if (count != UINT64_MAX && count > found_words(graph, (uint32_t)i))
			err = candidate_add(losing, (uint32_t)i);
	}
	return err;
}

static void segment_count(struct losing *losing, const struct image_segment *segment)
{
	const uint64_t first = losing->first, range = losing->last - first;
	const uint8_t *filter = losing->filter;

	for (uint64_t at = 0; at + 8 <= segment->end - segment->start; at += 8) {
		uint64_t word = word_at(segment->bytes + at) & ~(uint64_t)TAG;
		uint32_t bit, number;

		if (word - first > range)
			continue;
		bit = filter_bit(word);
		if (!(filter[bit / 8] >> bit % 8 & 1))
			continue;
		number = id_map_find(&losing->number_of, word);
		if (number != ID_MAP_NONE)
			losing->words[number]++;
	}
}

/* What is in no word but those that were found is lost. */
static void lost_mark(struct losing *losing)
{
	struct graph *graph = losing->graph;

	for (size_t i = 0; i < losing->count; i++) {
		uint32_t object = losing->objects[i];

		if (losing->words[i] > found_words(graph, object))
			continue;
		graph->root[object] = ROOT_LOST;
		graph->proof.lost++;
		graph->proofs[graph->type_of[object]].lost++;
	}
}

int graph_lost_find(struct graph *graph)
{
	struct losing losing = {.graph = graph, .filter = calloc(1u << FILTER_BITS, 1)};
	int err = losing.filter ? 0 : -ENOMEM;

	/* Where memory is missing, or of another moment, a word may be there. */
	if (!err && !graph->image->ran && !graph->image->bytes_lost &&
	    !graph->image->bytes_swapped && !graph->cut)
		err = candidates_find(&losing);
	losing.words = err || !losing.count ? NULL : calloc(losing.count, sizeof(*losing.words));
	if (!err && losing.count && !losing.words)
		err = -ENOMEM;
	for (size_t i = 0; losing.words && i < graph->image->count; i++)
		segment_count(&losing, &graph->image->segments[i]);
	if (losing.words)
		lost_mark(&losing);
	id_map_free(&losing.number_of);
	free(losing.objects);
	free(losing.words);
	free(losing.filter);
	return err;
}
