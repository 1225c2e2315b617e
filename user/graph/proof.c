/* SPDX-License-Identifier: Apache-2.0 */
/* What holds each object: the roots, and the proof by reference counts. */
#include "graph/graph.h"

static const char *const roots[ROOT_COUNT] = {
	[ROOT_NONE] = "object",
	[ROOT_MODULES] = "modules",
	[ROOT_SUBMODULES] = "subinterpreter",
	[ROOT_FRAME] = "frame",
	[ROOT_INTERPRETER] = "interpreter",
	[ROOT_STATIC] = "static object",
	[ROOT_VARIABLE] = "variable",
	[ROOT_NATIVE] = "native code",
	[ROOT_LOST] = "lost reference",
	[ROOT_FROZEN] = "frozen garbage",
	[ROOT_GARBAGE] = "garbage",
};

const char *graph_root_name(enum graph_root root)
{
	return root < ROOT_COUNT ? roots[root] : "";
}

static int is_static(const struct graph *graph, uint64_t address)
{
	const struct image_segment *segment = image_segment(graph->image, address);

	return segment && segment->kind == IMAGE_DATA;
}

/* The root of an object that has `missing` references more than were found. */
static enum graph_root root_choose(const struct graph *graph, uint32_t object, uint64_t missing,
				   uint64_t *words)
{
	size_t count;
	const struct graph_root_word *word = graph_words(graph, object, &count);
	enum graph_root root = ROOT_COUNT;

	*words = 0;
	for (size_t i = 0; i < count; i++) {
		int certain = word[i].kind != REFERENCE_MAYBE;

		*words += !certain;
		if ((certain || missing) && word[i].root < root)
			root = word[i].root;
	}
	if (root == ROOT_COUNT)
		return missing ? ROOT_NATIVE : ROOT_NONE;
	return root;
}

static void object_prove(struct graph *graph, uint32_t object)
{
	uint64_t address = graph->addresses[object];
	uint64_t count = graph_refcount(graph, address), held = graph->held[object], words;
	struct graph_proof *proof = &graph->proofs[graph->type_of[object]];
	uint64_t missing = count != UINT64_MAX && count > held ? count - held : 0;
	enum graph_root root;

	if (count == UINT64_MAX)
		missing = 1; /* a root word keeps it as well as anything */
	root = root_choose(graph, object, missing, &words);
	if (is_static(graph, address))
		root = ROOT_STATIC;
	else if (count == UINT64_MAX && root == ROOT_NATIVE &&
		 graph->in_start[object] != graph->in_start[object + 1])
		root = ROOT_NONE;
	graph->root[object] = (uint8_t)root;
	if (is_static(graph, address)) {
		graph->statics++;
	} else if (count == UINT64_MAX) {
		graph->immortal++;
	} else {
		int all = held + words >= count, exact = all && held <= count;

		proof->objects++;
		proof->all_found += (unsigned int)all;
		proof->exact += (unsigned int)exact;
		graph->proof.objects++;
		graph->proof.all_found += (unsigned int)all;
		graph->proof.exact += (unsigned int)exact;
	}
}

int graph_prove(struct graph *graph)
{
	for (size_t i = 0; i < graph->count; i++)
		object_prove(graph, (uint32_t)i);
	for (size_t i = 0; i < graph->interpreter_count; i++) {
		uint32_t modules = graph_find(graph, graph->interpreters[i].modules);

		if (modules != GRAPH_NONE)
			graph->root[modules] =
				i + 1 < graph->interpreter_count ? ROOT_SUBMODULES : ROOT_MODULES;
	}
	return 0;
}
