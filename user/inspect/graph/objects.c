/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the objects. Those in pymalloc's blocks come first; the references of each object, its
 * neighbours in the collector's lists and the roots then lead to those in other memory.
 */
#include <errno.h>
#include <stdlib.h>

#include "inspect/graph/graph.h"
#include "runtime/cpython/refcount.h"
#include "util/array.h"
#include "util/sorted.h"

#define PREHEADER     16u
#define PAGE          4096u
#define LEAST_POINTER (1u << 20)
#define LIST_FLAGS    3u /* in the collector's links */

/*
 * Whether what would be a count is an address: a heap may be below 4 GiB, and a module's state may
 * be {an object, a type}. No count is so large that its references have no room in the memory.
 */
static bool is_pointer(const struct image *image, uint64_t count)
{
	return count >= LEAST_POINTER && !(count & 7) && count > image->resident_bytes / 8 &&
	       image->offsets.build != BUILD_FREE_THREADED && image_segment(image, count);
}

/* The type of the object that begins at address, by its contents; TYPES_NONE: there is none. */
static uint32_t type_at(struct graph *graph, uint64_t address)
{
	const struct image *image = graph->image;
	const uint8_t *object = image_at(image, address, refcount_header(&image->offsets));

	if (!object ||
	    !refcount_plausible(&image->offsets, object, image->data, image->data_bytes) ||
	    is_pointer(image, word_at(object)))
		return TYPES_NONE;
	return types_find(&graph->types, word_at(object + image->offsets.abi.object_type));
}

/*
 * Objects in pools are marked there: a table of all of them would take longer to search. One that
 * cannot be marked is where no object is.
 */
static int object_put(struct graph *graph, uint64_t address, uint32_t type)
{
	const struct image_blocks_pool *pool = image_blocks_pool(&graph->blocks, address);

	if (graph->count == GRAPH_NONE - 1)
		return -E2BIG;
	if (pool && !image_blocks_object(pool, address, 1))
		return 0;
	int err = ARRAY_GROW(graph->addresses, graph->capacity, graph->count)
			  ?: ARRAY_GROW(graph->type_of, graph->type_capacity, graph->count);
	if (!err && !pool)
		err = id_map_put(&graph->found, address, (uint32_t)graph->count);
	if (err)
		return err;
	graph->addresses[graph->count] = address;
	graph->type_of[graph->count++] = type;
	return graph_tables_mark(graph, address, &graph->types.entries[type]);
}

/* An object in a live block of a pool. */
static int block_visit(struct graph *graph, uint64_t block, uint64_t bytes)
{
	uint32_t head = graph->image->offsets.heap.gc_head_bytes;
	const uint32_t offsets[] = {0, head, head + PREHEADER, PREHEADER};

	block += image_blocks_hooks(graph->image, block, bytes);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		if (offsets[i] + refcount_header(&graph->image->offsets) > bytes)
			continue;
		uint32_t type = type_at(graph, block + offsets[i]);
		if (type != TYPES_NONE &&
		    types_head(&graph->types, &graph->types.entries[type]) == offsets[i])
			return object_put(graph, block + offsets[i], type);
	}
	return 0;
}

/* Room for an object in every live block, so that arrays of millions do not move. */
static int objects_reserve(struct graph *graph)
{
	size_t blocks = 0;

	for (size_t i = 0; i < graph->blocks.count; i++)
		for (size_t word = 0; word < BLOCKS_PER_POOL / 64; word++)
			blocks += (size_t)__builtin_popcountll(graph->blocks.pools[i].live[word]);
	return array_reserve(&graph->addresses, &graph->capacity, 0, blocks, sizeof(uint64_t))
		       ?: array_reserve(&graph->type_of, &graph->type_capacity, 0, blocks,
					sizeof(uint32_t));
}

static int pools_visit(struct graph *graph)
{
	int err = objects_reserve(graph);

	for (size_t i = 0; i < graph->blocks.count && !err; i++) {
		const struct image_blocks_pool *pool = &graph->blocks.pools[i];

		for (uint32_t j = 0; j < pool->count && j < BLOCKS_PER_POOL && !err; j++)
			if (pool->live[j / 64] >> j % 64 & 1)
				err = block_visit(graph,
						  pool->address + (uint64_t)j * pool->block_bytes,
						  pool->block_bytes);
	}
	return err;
}

/* Adds the object at address, if there is one outside of pymalloc's pools. 0, -ENOMEM, -E2BIG. */
static int graph_object_add(struct graph *graph, uint64_t address)
{
	if (!address || address & 7 || image_blocks_pool(&graph->blocks, address) ||
	    id_map_find(&graph->found, address) != ID_MAP_NONE)
		return 0;
	const struct image_segment *segment = image_segment(graph->image, address);
	if (!segment || segment->kind == IMAGE_CONSTANT || segment->kind == IMAGE_STACK)
		return 0;
	uint32_t type = type_at(graph, address);
	if (type == TYPES_NONE || !graph->types.entries[type].basic_bytes ||
	    !image_at(graph->image, address, graph->types.entries[type].basic_bytes))
		return 0;
	return object_put(graph, address, type);
}

struct discovery {
	struct graph *graph;
	int err;
};

static void reference_follow(void *context, uint64_t target, enum reference_kind kind,
			     uint64_t slot)
{
	struct discovery *discovery = context;

	(void)kind;
	(void)slot;
	if (!discovery->err)
		discovery->err = graph_object_add(discovery->graph, target);
}

static void root_follow(void *context, uint64_t target, const struct graph_root_word *word)
{
	(void)word;
	reference_follow(context, target, REFERENCE_WORD, 0);
}

/* Before the graph is sorted. */
static bool found_is_object(void *context, uint64_t address)
{
	struct graph *graph = context;
	const struct image_blocks_pool *pool = image_blocks_pool(&graph->blocks, address);

	if (pool && image_blocks_object(pool, address, 0))
		return 1;
	if (graph_object_add(graph, address))
		return 0;
	return id_map_find(&graph->found, address) != ID_MAP_NONE;
}

static bool sorted_is_object(void *context, uint64_t address)
{
	return graph_find(context, address) != GRAPH_NONE;
}

/* _gc_next and _gc_prev lead to other objects that the collector tracks. */
static void neighbours_follow(struct discovery *discovery, uint64_t object, const struct type *type)
{
	const struct graph *graph = discovery->graph;
	uint32_t head = graph->image->offsets.heap.gc_head_bytes;

	if (!(type->flags & TYPE_GC) || !head)
		return;
	for (unsigned int i = 0; i < 2; i++) {
		uint64_t link = image_u64(graph->image, object - head + i * 8);

		link &= ~(uint64_t)LIST_FLAGS;
		if (link)
			reference_follow(discovery, link + head, REFERENCE_WORD, 0);
	}
}

static int list_follow(void *context, uint64_t object)
{
	reference_follow(context, object, REFERENCE_WORD, 0);
	return 1;
}

/* The first object of each of the collector's lists: the others are its neighbours. */
static int collectors_follow(struct discovery *discovery)
{
	const struct image *image = discovery->graph->image;
	struct collectors collectors;
	const struct collector_source source = collector_source_of(image);
	int err = collectors_read(&collectors, &source, COLLECTORS_MAX);

	for (size_t i = 0; i < collectors.count && !err; i++)
		collector_each_list(&collectors.entries[i], image, list_follow, discovery);
	collectors_free(&collectors);
	return err;
}

int graph_discover(struct graph *graph)
{
	struct discovery discovery = {.graph = graph};
	int err = pools_visit(graph);

	if (err)
		return err;
	graph->in_pools = graph->count;
	graph->references.is_object = found_is_object;
	graph->references.context = graph;
	graph->references.discovers = 1;
	graph_root_words(graph, root_follow, &discovery);
	err = collectors_follow(&discovery);
	if (err)
		return err;
	for (size_t i = 0; i < graph->count && !discovery.err; i++) {
		/* The table of types grows: a copy. */
		struct type type = graph->types.entries[graph->type_of[i]];

		if (type.flags & TYPE_HEAP || type.address)
			reference_follow(&discovery, type.address, REFERENCE_TYPE, 0);
		references_each(&graph->references, graph->addresses[i], &type, reference_follow,
				&discovery);
		neighbours_follow(&discovery, graph->addresses[i], &type);
	}
	graph->references.discovers = 0;
	graph->references.is_object = sorted_is_object;
	return discovery.err ?: graph->references.err ?: graph->types.err;
}

struct sortable {
	uint64_t address;
	uint32_t type;
};

/* Those in pools are in order already: the others are sorted, and merged from the end on. */
static int objects_sort(struct graph *graph)
{
	size_t pooled = graph->in_pools, others = graph->count - pooled, to = graph->count;
	struct sortable *sorted = calloc(others + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < others; i++)
		sorted[i] =
			(struct sortable){graph->addresses[pooled + i], graph->type_of[pooled + i]};
	SORT_BY(sorted, others, address);
	while (others) {
		int other = !pooled || sorted[others - 1].address > graph->addresses[pooled - 1];

		to--;
		others -= other ? 1 : 0;
		pooled -= other ? 0 : 1;
		graph->addresses[to] = other ? sorted[others].address : graph->addresses[pooled];
		graph->type_of[to] = other ? sorted[others].type : graph->type_of[pooled];
	}
	free(sorted);
	return 0;
}

/* pages: for each page of each segment, the first object at or after its start. */
static int pages_make(struct graph *graph)
{
	const struct image *image = graph->image;
	size_t pages = 0, object = 0;

	graph->page_start = calloc(image->count + 1, sizeof(uint32_t));
	if (!graph->page_start)
		return -ENOMEM;
	for (size_t i = 0; i < image->count; i++) {
		graph->page_start[i] = (uint32_t)pages;
		pages += (image->segments[i].end - image->segments[i].start) / PAGE + 2;
		if (pages > GRAPH_NONE)
			return -E2BIG;
	}
	graph->pages = calloc(pages + 1, sizeof(uint32_t));
	if (!graph->pages)
		return -ENOMEM;
	for (size_t i = 0; i < image->count; i++) {
		const struct image_segment *segment = &image->segments[i];
		uint64_t count = (segment->end - segment->start) / PAGE + 2;

		for (uint64_t j = 0; j < count; j++) {
			uint64_t at = segment->start + j * PAGE;

			while (object < graph->count && graph->addresses[object] < at &&
			       graph->addresses[object] < segment->end)
				object++;
			graph->pages[graph->page_start[i] + j] = (uint32_t)object;
		}
	}
	return 0;
}

int graph_index(struct graph *graph)
{
	int err = objects_sort(graph);

	id_map_free(&graph->found);
	if (err)
		return err;
	image_blocks_number(&graph->blocks, graph->addresses, graph->count);
	return pages_make(graph);
}

uint32_t graph_find(const struct graph *graph, uint64_t address)
{
	const struct image_segment *segment = image_segment(graph->image, address);

	if (!segment)
		return GRAPH_NONE;
	const struct image_blocks_pool *pool =
		image_blocks_pool_in(&graph->blocks, segment, address);
	if (pool)
		return image_blocks_object_number(pool, address);
	const uint32_t *page = graph->pages + graph->page_start[segment - graph->image->segments] +
			       (address - segment->start) / PAGE;
	uint32_t low = page[0], high = page[1];
	low += (uint32_t)keys_from(graph->addresses + low, high - low, address);
	return low < graph->count && graph->addresses[low] == address ? low : GRAPH_NONE;
}
