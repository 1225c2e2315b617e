/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreters of a process: their modules, and what their collectors do not free. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/graph.h"

#define MAX_INTERPRETERS 1024u
#define GC_FROZEN        8u /* _PyGC_BITS_FROZEN, without the GIL */

/* Whether it is a dictionary with modules at the keys sys and builtins. */
static int is_modules(const struct graph *graph, uint64_t address)
{
	const struct image *image = graph->image;
	uint32_t object = graph_find(graph, address);
	struct keys keys;
	unsigned int found = 0;

	if (object == GRAPH_NONE || graph_type(graph, object)->layout != LAYOUT_DICT ||
	    keys_read(image, image_u64(image, address + image->offsets.objects.dict_keys), &keys) ||
	    keys.count < 2)
		return 0;
	/* They are imported first. */
	for (uint64_t i = 0; i < keys.count && i < 8; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;
		uint64_t key = image_u64(image, entry + keys.key_at);
		uint32_t value = graph_find(graph, image_u64(image, entry + keys.value_at));
		char name[16];

		if (value == GRAPH_NONE || graph_type(graph, value)->layout != LAYOUT_MODULE)
			continue;
		image_text(image, key + image->offsets.abi.unicode_ascii, name, sizeof(name));
		found |= !__builtin_strcmp(name, "sys")        ? 1u
			 : !__builtin_strcmp(name, "builtins") ? 2u
							       : 0u;
	}
	return found == 3;
}

/* Its place in the interpreter's state differs by release: it is recognised by its contents. */
static uint64_t modules_find(const struct graph *graph, uint64_t state)
{
	for (uint64_t at = 0; at < graph->image->offsets.objects.interp_bytes; at += 8) {
		uint64_t word = image_u64(graph->image, state + at);

		if (word && is_modules(graph, word))
			return word;
	}
	return 0;
}

const struct graph_interpreter *graph_interpreter(const struct graph *graph, uint32_t object)
{
	for (size_t i = 0; i < graph->interpreter_count; i++)
		if (graph->interpreters[i].modules == graph->addresses[object])
			return &graph->interpreters[i];
	return NULL;
}

int graph_is_kept_list(const struct graph *graph, uint32_t object)
{
	for (size_t i = 0; i < graph->collectors.count; i++)
		if (graph->collectors.entries[i].kept == graph->addresses[object])
			return 1;
	return 0;
}

static int interpreters_list(struct graph *graph)
{
	const struct image *image = graph->image;
	uint64_t address = image->interpreters;

	graph->interpreters = calloc(MAX_INTERPRETERS, sizeof(*graph->interpreters));
	if (!graph->interpreters)
		return -ENOMEM;
	for (; address && graph->interpreter_count < MAX_INTERPRETERS;
	     address = image_u64(image, address + image->offsets.abi.interp_next))
		graph->interpreters[graph->interpreter_count++] = (struct graph_interpreter){
			.modules = modules_find(graph, address),
			.id = (int64_t)image_u64(image,
						 address + image->offsets.objects.interp_id)};
	return 0;
}

/* A list that was visited before, or that leads into itself, ends here. */
static int frozen_visit(void *context, uint64_t address)
{
	struct graph *graph = context;
	uint32_t object = graph_find(graph, address);

	if (object == GRAPH_NONE || graph->kept[object] == KEPT_FROZEN)
		return 1;
	graph->kept[object] = KEPT_FROZEN;
	graph->frozen++;
	return 0;
}

static void listed_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct graph *graph = context;

	(void)slot;
	if (kind == REFERENCE_ITEM)
		graph->kept[graph_find(graph, target)] = KEPT_LISTED;
}

/* Without the GIL each object says whether it is frozen. */
static void frozen_bits(struct graph *graph)
{
	uint32_t at = graph->image->offsets.free_threaded.object_bits;

	for (size_t i = 0; i < graph->count; i++) {
		const uint8_t *bits = image_at(graph->image, graph->addresses[i] + at, 1);

		if (bits && *bits & GC_FROZEN && graph_type(graph, (uint32_t)i)->flags & TYPE_GC)
			frozen_visit(graph, graph->addresses[i]);
	}
}

int graph_interpreters_read(struct graph *graph)
{
	int err = interpreters_list(graph) ?: collectors_read(&graph->collectors, graph->image);

	graph->kept = array_new(graph->count + 1, 1);
	if (err || !graph->kept)
		return -ENOMEM;
	graph_work_begin(graph);
	for (size_t i = 0; i < graph->collectors.count; i++) {
		const struct collector *collector = &graph->collectors.entries[i];
		uint32_t list = graph_find(graph, collector->kept);

		collector_each_frozen(collector, graph->image, frozen_visit, graph);
		if (list != GRAPH_NONE && graph_type(graph, list)->layout == LAYOUT_LIST)
			graph_references(graph, list, listed_visit, graph);
	}
	if (graph->image->offsets.build == BUILD_FREE_THREADED && graph->collectors.count)
		frozen_bits(graph);
	return 0;
}
