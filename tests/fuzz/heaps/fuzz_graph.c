/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image with a type of every layout, pools and malloc's chunks, whose objects and tables are
 * arbitrary words: addresses in the image, and small numbers. The graph of it is made, its retained
 * sizes, the path to every object, what it wastes, its cycles, and the code that fills containers.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/graph/owners.h"
#include "inspect/holders/fillers.h"
#include "inspect/holders/paths.h"
#include "inspect/holders/type_holders.h"
#include "inspect/holders/values.h"
#include "inspect/waste/cycles.h"
#include "inspect/waste/waste.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	TYPES = 0x10000000,
	NAMES = 0x20000000,
	HEAP = 0x30000000,
	CHUNKS = 0x40000000,
	TYPE_SIZE = 1024,
	TYPE_COUNT = 28,
	DATA_BYTES = 64 << 10,
	NAME_BYTES = 4096,
	HEAP_BYTES = 256 << 10,
	CHUNK_BYTES = 64 << 10,
	POOLS_USED = 3,
	TRICKLE = 64,
};

static const char *const names[TYPE_COUNT] = {
	"type",
	"object",
	"int",
	"str",
	"bytes",
	"dict",
	"list",
	"tuple",
	"set",
	"frozenset",
	"weakref",
	"code",
	"frame",
	"generator",
	"module",
	"coroutine",
	"function",
	"cell",
	"method",
	"memoryview",
	"collections.deque",
	"functools._lru_cache_wrapper",
	"functools._lru_list_elem",
	"array.array",
	"A",
	"B",
	"greenlet.greenlet",
	"bytearray",
};

struct world {
	uint8_t *types, *names, *heap, *chunks;
	struct image_segment segments[4];
	struct heap_head head;
	struct image image;
	const uint8_t *data;
	size_t size;
};

static uint32_t take(struct world *world, unsigned int bytes)
{
	uint32_t value = 0;

	for (unsigned int i = 0; i < bytes && world->size; i++, world->size--)
		value = value << 8 | *world->data++;
	return value;
}

static void put(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* A word: an address in the image, a number, or bits. */
static uint64_t word(struct world *world)
{
	uint32_t value = take(world, 2);

	switch (value & 7) {
	case 0:
	case 1:
	case 2:
		return HEAP + (value >> 3) * 16u % HEAP_BYTES;
	case 3:
		return CHUNKS + (value >> 3) * 16u % CHUNK_BYTES;
	case 4:
		return TYPES + (value >> 3) % TYPE_COUNT * TYPE_SIZE;
	case 5:
		return (uint64_t)take(world, 4) << 32 | take(world, 4);
	default:
		return value >> 3;
	}
}

static void types_make(struct world *world)
{
	const struct python_offsets *offsets = &world->image.offsets;
	const struct object_offsets *at = &offsets->objects;
	uint32_t name = offsets->heap.type_name, text = 0;

	for (uint32_t i = 0; i < TYPE_COUNT; i++) {
		uint8_t *type = world->types + i * TYPE_SIZE;

		put(type, 1000);
		put(type + offsets->abi.object_type, TYPES);
		put(type + name, NAMES + text);
		strcpy((char *)world->names + text, names[i]);
		text += strlen(names[i]) + 1;
		put(type + name + 8, i == 0 ? 900 : 16 + take(world, 1));
		put(type + name + 16, take(world, 1) & 8);
		put(type + offsets->heap.type_flags, (i == 0   ? TYPE_TYPE
						      : i == 3 ? TYPE_STR
						      : i == 4 ? TYPE_BYTES
							       : 0) |
							     (take(world, 2) & 0x421cu) |
							     (i >= 24 ? TYPE_HEAP : 0));
		put(type + at->type_base, word(world));
		put(type + at->type_dict, word(world));
		put(type + at->type_members, word(world));
		put(type + at->type_dictoffset, take(world, 1));
		if (i >= 24 && at->heaptype_keys < TYPE_SIZE - 8)
			put(type + at->heaptype_keys, word(world));
	}
}

/* Blocks of a pool that are all live, each with a count and a type. */
static void pool_make(struct world *world, uint32_t pool)
{
	const struct heap_offsets *heap = &world->image.offsets.heap;
	uint8_t *bytes = world->heap + pool * heap->pool_bytes;
	uint32_t block = 16 * (2 + take(world, 1) % 30), header = heap->pool_header_size;
	uint32_t count = (heap->pool_bytes - header) / block, value = count;
	uint32_t head = heap->gc_head_bytes;

	for (uint32_t i = 0; i < count && world->size; i++) {
		uint8_t *at = bytes + header + i * block;
		uint32_t offset = take(world, 1) & 1 ? head : 0;

		for (uint32_t j = 0; j < block; j += 8)
			put(at + j, word(world));
		if (offset + 16 > block)
			continue;
		put(at + offset, 1 + take(world, 1) % 4);
		put(at + offset + world->image.offsets.abi.object_type,
		    TYPES + take(world, 1) % TYPE_COUNT * TYPE_SIZE);
	}
	memcpy(bytes + heap->pool_count, &value, 4);
	value = block / 16 - 1;
	memcpy(bytes + heap->pool_szidx, &value, 4);
	value = header + count * block;
	memcpy(bytes + heap->pool_nextoffset, &value, 4);
	value = heap->pool_bytes - block;
	memcpy(bytes + heap->pool_maxnextoffset, &value, 4);
	put(bytes + heap->pool_freeblock, 0);
}

static void chunks_make(struct world *world)
{
	for (uint32_t at = 0; at + 1024 < CHUNK_BYTES && world->size;) {
		uint32_t bytes = 32 + 16 * (take(world, 1) % 40);

		put(world->chunks + at + 8, bytes | 1);
		for (uint32_t i = 16; i < bytes; i += 8)
			put(world->chunks + at + i, word(world));
		at += bytes;
	}
}

static void world_make(struct world *world)
{
	const struct heap_offsets *heap = &world->image.offsets.heap;
	uint8_t *state = world->types + DATA_BYTES - 4096;
	uint32_t one = 1;

	types_make(world);
	for (uint32_t i = 0; i < POOLS_USED; i++)
		pool_make(world, i);
	chunks_make(world);
	put(state, TYPES + DATA_BYTES - 2048);
	memcpy(state + 8, &one, 4);
	put(state + 2048 + heap->arena_address, HEAP);
	put(state + 2048 + heap->arena_pool_address, HEAP + POOLS_USED * heap->pool_bytes);
	world->head = (struct heap_head){.arenas = TYPES + DATA_BYTES - 4096,
					 .maxarenas = TYPES + DATA_BYTES - 4096 + 8,
					 .raw_blocks = TYPES + DATA_BYTES - 4096 + 16};
	world->image.heads = &world->head;
	world->image.head_count = 1;
	world->image.type_type = TYPES;
	world->image.data = TYPES;
	world->image.data_bytes = DATA_BYTES;
	world->image.interpreters = word(world);
	world->image.resident_bytes = DATA_BYTES + NAME_BYTES + HEAP_BYTES + CHUNK_BYTES;
	world->segments[0] = (struct image_segment){TYPES, TYPES + DATA_BYTES, world->types,
						    IMAGE_DATA, "lib.so"};
	world->segments[1] = (struct image_segment){NAMES, NAMES + NAME_BYTES, world->names,
						    IMAGE_CONSTANT, "lib.so"};
	world->segments[2] =
		(struct image_segment){HEAP, HEAP + HEAP_BYTES, world->heap, IMAGE_HEAP, ""};
	world->segments[3] =
		(struct image_segment){CHUNKS, CHUNKS + CHUNK_BYTES, world->chunks, IMAGE_HEAP, ""};
	world->image.segments = world->segments;
	world->image.count = 4;
}

static bool any(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return true;
}

/* A table's waste is in its object's bytes; an object is in one cycle at most. */
static void waste_use(const struct paths *paths, const struct retained *retained)
{
	struct waste_list list;
	struct cycles cycles;
	uint64_t objects = 0;

	if (waste_find(&list, paths) || cycles_find(&cycles, paths, retained))
		abort();
	for (size_t i = 0; i < list.count; i++)
		if (!list.entries[i].count || list.entries[i].example >= paths->graph->count)
			abort();
	for (size_t i = 0; i < cycles.count; i++) {
		objects += cycles.entries[i].count;
		if (cycles.entries[i].garbage + cycles.entries[i].frozen + cycles.entries[i].kept >
			    cycles.entries[i].cycles ||
		    cycles.entries[i].garbage_retained > cycles.entries[i].retained ||
		    cycles.entries[i].finalized > cycles.entries[i].count)
			abort();
	}
	if (objects != cycles.total.count || objects > paths->graph->count)
		abort();
	waste_free(&list);
	cycles_free(&cycles);
}

static void names_use(const struct graph *graph)
{
	struct owners owners;

	for (size_t i = 0; i < graph->types.count; i++) {
		char name[TYPES_FULL_NAME];

		types_full_name(&graph->types, &graph->types.entries[i], name);
		if (strlen(name) < strlen(graph->types.entries[i].name) && !strchr(name, '.'))
			abort();
	}
	if (owners_read(&owners, graph))
		abort();
	for (uint32_t i = 0; i < graph->count; i++)
		if (owners_find(&owners, graph->addresses[i], 16) == GRAPH_NONE)
			abort();
	owners_free(&owners);
}

static void fillers_use(const struct paths *paths)
{
	struct filler_row rows[FILLERS_ROWS];
	size_t count = paths->graph->count, row_count = count < FILLERS_ROWS ? count : FILLERS_ROWS;
	struct filler *fillers;
	struct strings *names;

	for (size_t i = 0; i < row_count; i++) {
		uint32_t object = (uint32_t)(i * count / row_count);

		rows[i] = (struct filler_row){paths->shape[object], object};
	}
	if (strings_new(&names) || fillers_find(paths, rows, row_count, names, &fillers, &count))
		abort();
	for (size_t i = 0; i < count; i++)
		if (fillers[i].row >= row_count || !strings_get(names, fillers[i].filename)[0] ||
		    (i && fillers[i].row < fillers[i - 1].row))
			abort();
	free(fillers);
	strings_free(names);
}

/* Collectors whose states are anywhere: arbitrary words, and lists that have no end. */
static void collectors_use(const struct graph *graph)
{
	const struct collector_source source = collector_source_of(graph->image);
	uint64_t most = (HEAP_BYTES + CHUNK_BYTES + DATA_BYTES + NAME_BYTES) / 8;

	for (unsigned int i = 0; i < 16; i++) {
		uint64_t at = HEAP + i * (HEAP_BYTES / 16) + 32;
		const struct collector collector = {
			.state = at, .young = at + 64, .permanent = at + 256};
		struct collector_figures figures;

		collector_figures_read(&collector, &source, &figures);
		collector_objects_count(&collector, graph->image, &figures);
		for (unsigned int k = 0; k < COLLECTOR_GENERATIONS; k++)
			if (figures.generations[k].objects > most || figures.frozen > most)
				abort();
	}
}

struct held_count {
	const struct graph *graph;
	uint64_t count;
};

static void held_count(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct held_count *held = context;

	(void)kind;
	(void)slot;
	held->count += graph_find(held->graph, target) != GRAPH_NONE;
}

/* Every reference is counted once. */
static void holders_use(struct graph *graph)
{
	struct held_count held = {.graph = graph};
	struct type_holders holders;
	uint64_t counted = 0;
	int was_cut = graph->cut, err = type_holders_read(&holders, graph);

	if ((err && err != -E2BIG) || graph->cut != was_cut)
		abort();
	graph_work_begin(graph);
	for (uint32_t i = 0; i < graph->count; i++)
		graph_references(graph, i, held_count, &held);
	for (size_t i = 0; i < holders.count; i++) {
		const struct type_holder *holder = &holders.items[i];

		counted += holder->count;
		if (holder->held >= graph->types.count || holder->type >= graph->types.count ||
		    graph->type_of[holder->example] != holder->type)
			abort();
	}
	if (!err && counted != held.count)
		abort();
	graph->cut = was_cut;
	type_holders_free(&holders);
}

static void graph_use(struct graph *graph)
{
	struct retained *retained;
	struct path_group *groups;
	struct paths *paths;
	uint64_t all = 0, top = 0;
	size_t count;

	if (retained_new(&retained, graph) || paths_new(&paths, graph) ||
	    paths_group(paths, retained, any, NULL, &groups, &count))
		abort();
	for (uint32_t i = 0; i < graph->count; i++) {
		struct buffer value = {0};
		struct path path;

		all += graph_bytes(graph, i);
		top += retained->idom[i] == graph->count ? retained->bytes[i] : 0;
		if (retained->bytes[i] < graph_bytes(graph, i))
			abort();
		if (i < TRICKLE && (path_read(paths, i, &path) || path_write(&path, &value) ||
				    path_fold(paths, i, graph->count - 1 - i, &path)))
			abort();
		if (i < TRICKLE)
			path_free(&path);
		values_repr(graph, graph->addresses[i], &value);
		buffer_free(&value);
	}
	/* Every object is retained once. */
	if (all != top || graph->proof.exact > graph->proof.all_found ||
	    graph->proof.all_found > graph->proof.objects)
		abort();
	waste_use(paths, retained);
	names_use(graph);
	collectors_use(graph);
	fillers_use(paths);
	holders_use(graph);
	free(groups);
	paths_free(paths);
	retained_free(retained);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world world = {.data = data + 1, .size = size - 1};
	const struct python_offsets *offsets;
	struct graph *graph;

	if (!size)
		return 0;
	offsets = offsets_for(0x0308 + *data % 8, *data >> 7 ? BUILD_DEBUG : BUILD_RELEASE);
	if (!offsets)
		return 0;
	world.image.offsets = *offsets;
	world.types = calloc(1, DATA_BYTES);
	world.names = calloc(1, NAME_BYTES);
	world.heap = calloc(1, HEAP_BYTES);
	world.chunks = calloc(1, CHUNK_BYTES);
	if (!world.types || !world.names || !world.heap || !world.chunks)
		abort();
	world_make(&world);
	if (!graph_new(&graph, &world.image)) {
		graph_use(graph);
		graph_free(graph);
	}
	free(world.types);
	free(world.names);
	free(world.heap);
	free(world.chunks);
	return 0;
}
