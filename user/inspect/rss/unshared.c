/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/unshared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/dump/collector_look.h"
#include "inspect/rss/service.h"
#include "proc/pagemap.h"
#include "util/array.h"
#include "util/sorted.h"

#define PAGE       PAGEMAP_PAGE
#define PAGE_WORDS (PAGE / 8)
#define ANEW_WORDS (PAGE_WORDS / 2)
#define RUN_PAGES  64u /* of the parent's memory, read at once */

/* --- what a word is --------------------------------------------------------------------------- */

/* Bytes at an object's beginning that are its reference count, with what belongs to that. */
static uint64_t count_bytes(const struct graph *graph)
{
	const struct free_threaded_offsets *at = &graph->image->offsets.free_threaded;

	return graph->image->offsets.build == BUILD_FREE_THREADED ? at->object_shared + 8 : 8;
}

/* The class of a word, by the objects around it. */
static enum unshared_class object_word(const struct graph *graph, uint64_t address)
{
	size_t above = keys_above(graph->addresses, graph->count, address);
	uint32_t head = graph->image->offsets.heap.gc_head_bytes;

	if (above && address - graph->addresses[above - 1] < count_bytes(graph))
		return UNSHARED_COUNTS;
	if (above < graph->count && graph->addresses[above] - address <= head &&
	    graph_type(graph, (uint32_t)above)->flags & TYPE_GC)
		return UNSHARED_HEADS;
	return UNSHARED_CONTENT;
}

static enum unshared_class word_class(const struct graph *graph, uint64_t address)
{
	const struct image_blocks_pool *pool = image_blocks_pool(&graph->blocks, address);
	uint64_t block;

	if (!pool)
		return object_word(graph, address);
	if (address < pool->address)
		return UNSHARED_FREED;
	block = (address - pool->address) / pool->block_bytes;
	if (block >= pool->count || !(pool->live[block / 64] >> block % 64 & 1))
		return UNSHARED_FREED;
	return object_word(graph, address);
}

static enum unshared_class page_class(const struct graph *graph, uint64_t address,
				      const uint8_t *own, const uint8_t *parent)
{
	enum unshared_class class = UNSHARED_SAME;
	unsigned int differing = 0;

	for (unsigned int i = 0; i < PAGE_WORDS; i++) {
		enum unshared_class word;

		if (word_at(own + i * 8) == word_at(parent + i * 8))
			continue;
		differing++;
		word = class < UNSHARED_CONTENT ? word_class(graph, address + i * 8ull) : class;
		class = word > class ? word : class;
	}
	return differing > ANEW_WORDS ? UNSHARED_ANEW : class;
}

/* --- pages ------------------------------------------------------------------------------------ */

struct comparison {
	struct unshared *out;
	const struct graph *graph;
	struct space *parent;
	struct unshared_type *types; /* by type of the graph */
	unshared_object_fn visit;
	void *context;
	int err; /* of visit */
};

/* Counts the objects that begin in a page by their types. True if the collector tracks one. */
static bool objects_count(struct comparison *comparison, uint64_t address, bool counts)
{
	const struct graph *graph = comparison->graph;
	bool tracked = 0;

	for (size_t i = keys_from(graph->addresses, graph->count, address);
	     i < graph->count && graph->addresses[i] < address + PAGE; i++) {
		struct unshared_type *type = &comparison->types[graph->type_of[i]];
		const struct type *of = graph_type(graph, (uint32_t)i);
		uint64_t bytes = graph_block_bytes(graph, graph->addresses[i] -
								  types_head(&graph->types, of));

		tracked |= (of->flags & TYPE_GC) != 0;
		if (!counts)
			continue;
		bytes = bytes < PAGE ? bytes : PAGE;
		type->objects++;
		type->bytes += bytes;
		if (comparison->visit && !comparison->err)
			comparison->err =
				comparison->visit(comparison->context, (uint32_t)i, bytes);
	}
	return tracked;
}

static void page_count(struct comparison *comparison, uint64_t address, const uint8_t *parent)
{
	const uint8_t *own = image_at(comparison->graph->image, address, PAGE);
	enum unshared_class class;

	if (!own) {
		comparison->out->unread++;
		return;
	}
	class = page_class(comparison->graph, address, own, parent);
	comparison->out->pages[class]++;
	if (objects_count(comparison, address, class <= UNSHARED_COUNTS) && class <= UNSHARED_HEADS)
		comparison->out->tracked++;
}

/* Pages that follow each other. */
static int run_visit(void *context, uint64_t address, size_t pages)
{
	struct comparison *comparison = context;
	uint8_t bytes[RUN_PAGES * PAGE];

	while (pages) {
		size_t count = pages < RUN_PAGES ? pages : RUN_PAGES;
		int err = space_read(comparison->parent, address, bytes, count * PAGE);

		if (err == -ESRCH || err == -ENOMEM)
			return err;
		if (err)
			comparison->out->unread += count;
		for (size_t i = 0; i < count && !err; i++)
			page_count(comparison, address + i * PAGE, bytes + i * PAGE);
		address += count * PAGE;
		pages -= count;
	}
	return comparison->err;
}

static int type_compare(const void *a, const void *b)
{
	const struct unshared_type *x = a, *y = b;

	return CMP(y->bytes, x->bytes) ?: CMP(x->type, y->type);
}

/* Keeps the types that have something. */
static void types_take(struct unshared *out, struct unshared_type *types, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct unshared_type type = types[i];

		if (!type.objects)
			continue;
		type.type = (uint32_t)i;
		types[out->type_count++] = type;
	}
	if (out->type_count)
		qsort(types, out->type_count, sizeof(*types), type_compare);
	out->types = types;
}

/* The collections of all generations, in the process of the image and in its parent. */
static bool has_collected(const struct graph *graph, struct space *parent)
{
	const struct collector_source copy = collector_source_of(graph->image);
	const struct collector_source live = collector_source_live(parent, graph->image);
	const struct collectors *collectors = &graph->collectors;

	for (size_t i = 0; i < collectors->count; i++) {
		const struct collector *collector = &collectors->entries[i];
		struct collector_figures own, its;

		collector_figures_read(collector, &copy, &own);
		collector_figures_read(collector, &live, &its);
		for (unsigned int k = 0; k < COLLECTOR_GENERATIONS; k++)
			if (own.generations[k].collections != its.generations[k].collections)
				return 1;
	}
	return 0;
}

int unshared_read(struct unshared *out, const struct graph *graph, struct space *parent,
		  unshared_object_fn visit, void *context)
{
	struct unshared unshared = {0};
	struct comparison comparison = {.out = &unshared,
					.graph = graph,
					.parent = parent,
					.visit = visit,
					.context = context};

	comparison.types = calloc(graph->types.count + 1, sizeof(*comparison.types));
	if (!comparison.types)
		return -ENOMEM;
	int err = service_unshared_each((pid_t)graph->image->pid, space_pid(parent), run_visit,
					&comparison);
	if (err) {
		free(comparison.types);
		return err;
	}
	unshared.collected = has_collected(graph, parent);
	types_take(&unshared, comparison.types, graph->types.count);
	*out = unshared;
	return 0;
}

void unshared_free(struct unshared *unshared)
{
	free(unshared->types);
	*unshared = (struct unshared){0};
}
