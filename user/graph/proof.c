/* SPDX-License-Identifier: Apache-2.0 */
/* What holds each object: the roots, and the proof by reference counts. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/graph.h"

#define MAX_INTERPRETER_BYTES (1u << 24)

static const char *const roots[ROOT_COUNT] = {
	[ROOT_NONE] = "object",          [ROOT_MODULES] = "modules",
	[ROOT_FRAME] = "frame",          [ROOT_INTERPRETER] = "interpreter",
	[ROOT_STATIC] = "static object", [ROOT_VARIABLE] = "variable",
	[ROOT_NATIVE] = "native code",   [ROOT_LOST] = "lost reference",
	[ROOT_GARBAGE] = "garbage",
};

const char *graph_root_name(enum graph_root root)
{
	return root < ROOT_COUNT ? roots[root] : "";
}

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
static void modules_find(struct graph *graph)
{
	for (size_t i = 0; i < graph->word_count && !graph->modules; i++)
		if (graph->words[i].root == ROOT_INTERPRETER &&
		    is_modules(graph, graph->addresses[graph->words[i].object]))
			graph->modules = graph->addresses[graph->words[i].object];
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
	if (address == graph->modules)
		root = ROOT_MODULES;
	else if (is_static(graph, address))
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

/* Marks everything that can be reached from object; stack has room for all objects. */
static void reach(const struct graph *graph, uint32_t object, uint8_t *reached, uint32_t *stack)
{
	size_t count = 0;

	if (reached[object])
		return;
	reached[object] = 1;
	stack[count++] = object;
	while (count) {
		uint32_t from = stack[--count];

		for (uint32_t i = graph->out_start[from]; i < graph->out_start[from + 1]; i++)
			if (!reached[graph->out[i]]) {
				reached[graph->out[i]] = 1;
				stack[count++] = graph->out[i];
			}
	}
}

/* What no root reaches is garbage: one object of each part of it is marked. */
static int garbage_find(struct graph *graph)
{
	uint8_t *reached = array_new(graph->count + 1, 1);
	uint32_t *stack = array_new(graph->count + 1, sizeof(*stack));
	int err = reached && stack ? 0 : -ENOMEM;

	for (size_t i = 0; i < graph->count && !err; i++)
		if (graph->root[i] != ROOT_NONE)
			reach(graph, (uint32_t)i, reached, stack);
	for (size_t i = 0; i < graph->count && !err; i++)
		if (!reached[i]) {
			graph->root[i] = ROOT_GARBAGE;
			reach(graph, (uint32_t)i, reached, stack);
		}
	free(reached);
	free(stack);
	return err;
}

int graph_prove(struct graph *graph)
{
	modules_find(graph);
	for (size_t i = 0; i < graph->count; i++)
		object_prove(graph, (uint32_t)i);
	return garbage_find(graph);
}
