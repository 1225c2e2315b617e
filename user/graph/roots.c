/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words outside of objects that hold some: the frames of threads, whose layout is known, and
 * the words of interpreters' and threads' states and of files' variables. Of the latter nothing
 * says whether they own a reference or borrow it: they count as far as the object's reference count
 * needs them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/sorted.h"
#include "graph/graph.h"

#define MAX_INTERPRETERS 1024u
#define MAX_THREADS      65536u
#define MAX_FRAMES       65536u /* of one thread */
#define MAX_DEPTH        2u     /* blocks that lead to blocks */

struct rooting {
	struct graph *graph;
	root_fn visit;
	void *context;
	struct graph_root_word word;
	struct id_map seen; /* blocks that were visited */
};

static void words_visit(struct rooting *rooting, uint64_t from, uint64_t bytes,
			enum graph_root root, unsigned int depth);

/* A block that such a word leads to, and that is no object's: an array of the interpreter's. */
static void block_visit(struct rooting *rooting, uint64_t address, enum graph_root root,
			unsigned int depth)
{
	struct references *references = &rooting->graph->references;
	uint64_t bytes = image_blocks_bytes(references->blocks, address);

	if (!bytes || image_blocks_is_table(references->blocks, address) ||
	    id_map_find(&rooting->seen, address) != ID_MAP_NONE ||
	    id_map_find(&references->claim_of, address) != ID_MAP_NONE ||
	    references->is_object(references->context, address))
		return;
	if (!id_map_put(&rooting->seen, address, 1))
		words_visit(rooting, address, bytes / 8 * 8, root, depth + 1);
}

static void words_visit(struct rooting *rooting, uint64_t from, uint64_t bytes,
			enum graph_root root, unsigned int depth)
{
	const uint8_t *at = image_at(rooting->graph->image, from, bytes);

	for (uint64_t i = 0; at && i + 8 <= bytes; i += 8) {
		uint64_t target = word_at(at + i);

		if (target < 4096 || target & 7 || target >> 47)
			continue;
		rooting->word = (struct graph_root_word){
			.root = root, .kind = REFERENCE_MAYBE, .address = from + i};
		rooting->visit(rooting->context, target, &rooting->word);
		if (depth < MAX_DEPTH)
			block_visit(rooting, target, root, depth);
	}
}

static void frame_reference(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct rooting *rooting = context;

	rooting->word.kind = kind;
	rooting->word.slot = slot;
	if (kind != REFERENCE_WEAK)
		rooting->visit(rooting->context, target, &rooting->word);
}

/* Up to 3.10 frames are objects: the newest one is in the thread's state. */
static void frames_visit(struct rooting *rooting, uint64_t tstate)
{
	const struct image *image = rooting->graph->image;
	const struct abi_offsets *abi = &image->offsets.abi;
	uint64_t frame;

	if (abi->frame_owner == ABI_NONE) {
		words_visit(rooting, tstate + abi->tstate_frame, 8, ROOT_FRAME, MAX_DEPTH);
		return;
	}
	frame = abi->tstate_frame == ABI_NONE
			? image_u64(image, image_u64(image, tstate + abi->tstate_cframe) +
						   abi->cframe_current_frame)
			: image_u64(image, tstate + abi->tstate_frame);
	for (uint32_t i = 0; i < MAX_FRAMES && frame; i++) {
		const uint8_t *owner = image_at(image, frame + abi->frame_owner, 1);

		if (!owner)
			return;
		rooting->word = (struct graph_root_word){.root = ROOT_FRAME, .address = frame};
		/* Those of generators and frame objects are read with these. */
		if (*owner != abi->owner_generator && *owner < abi->owner_skip)
			references_inner_frame(&rooting->graph->references, frame, 0,
					       frame_reference, rooting);
		frame = image_u64(image, frame + abi->frame_previous);
	}
}

static void threads_visit(struct rooting *rooting, uint64_t interpreter)
{
	const struct image *image = rooting->graph->image;
	const struct python_offsets *offsets = &image->offsets;
	uint64_t tstate = image_u64(image, interpreter + offsets->abi.interp_threads_head);

	for (uint32_t i = 0; i < MAX_THREADS && tstate; i++) {
		frames_visit(rooting, tstate);
		words_visit(rooting, tstate, offsets->objects.tstate_bytes, ROOT_INTERPRETER, 0);
		tstate = image_u64(image, tstate + offsets->abi.tstate_next);
	}
}

/* The state's size may differ by release: it is cut at the end of its memory. */
static void interpreter_visit(struct rooting *rooting, uint64_t interpreter)
{
	const struct image_segment *segment = image_segment(rooting->graph->image, interpreter);
	uint64_t bytes = rooting->graph->image->offsets.objects.interp_bytes;

	if (!segment)
		return;
	if (bytes > segment->end - interpreter)
		bytes = segment->end - interpreter;
	words_visit(rooting, interpreter, bytes / 8 * 8, ROOT_INTERPRETER, 0);
	threads_visit(rooting, interpreter);
}

void graph_root_words(struct graph *graph, root_fn visit, void *context)
{
	struct rooting rooting = {.graph = graph, .visit = visit, .context = context};
	const struct image *image = graph->image;
	uint64_t interpreter = image->interpreters;

	for (uint32_t i = 0; i < MAX_INTERPRETERS && interpreter; i++) {
		interpreter_visit(&rooting, interpreter);
		interpreter = image_u64(image, interpreter + image->offsets.abi.interp_next);
	}
	for (size_t i = 0; i < image->count; i++) {
		const struct image_segment *segment = &image->segments[i];

		if (segment->kind == IMAGE_DATA)
			words_visit(&rooting, segment->start, segment->end - segment->start,
				    ROOT_VARIABLE, 0);
	}
	id_map_free(&rooting.seen);
}

static int word_compare(const void *a, const void *b)
{
	const struct graph_root_word *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return x->root < y->root ? -1 : x->root > y->root;
}

struct collecting {
	struct graph *graph;
	int err;
};

/* Bytes of an object that is a variable; a static type is smaller than one on the heap. */
static uint64_t static_bytes(const struct graph *graph, uint32_t object)
{
	const struct type *type = graph_type(graph, object);
	uint32_t finalize = graph->image->offsets.objects.type_finalize;

	return type->layout == LAYOUT_TYPE && type->basic_bytes > finalize + 8 ? finalize + 8
									       : type->basic_bytes;
}

/* Words of objects that are variables of a file are theirs. */
static int is_in_object(const struct graph *graph, uint64_t address)
{
	size_t above = keys_above(graph->addresses, graph->count, address);

	return above &&
	       address - graph->addresses[above - 1] < static_bytes(graph, (uint32_t)(above - 1));
}

int graph_word_add(struct graph *graph, const struct graph_root_word *word)
{
	int err = array_reserve(&graph->words, &graph->word_capacity, graph->word_count, 1,
				sizeof(*word));

	if (!err)
		graph->words[graph->word_count++] = *word;
	return err;
}

static void word_collect(void *context, uint64_t target, const struct graph_root_word *word)
{
	struct collecting *collecting = context;
	struct graph *graph = collecting->graph;
	uint32_t object = graph_find(graph, target);

	struct graph_root_word added = *word;

	if (object == GRAPH_NONE || collecting->err ||
	    (word->root == ROOT_VARIABLE && is_in_object(graph, word->address)))
		return;
	added.object = object;
	collecting->err = graph_word_add(graph, &added);
	if (word->root == ROOT_FRAME && word->kind != REFERENCE_MAYBE)
		graph->held[object]++;
}

int graph_roots(struct graph *graph)
{
	struct collecting collecting = {.graph = graph};

	graph_root_words(graph, word_collect, &collecting);
	return collecting.err;
}

/* An interpreter's state may be a variable of a file: its words were seen twice. */
void graph_words_sort(struct graph *graph)
{
	struct graph_root_word *words = graph->words;
	size_t kept = 0;

	if (graph->word_count)
		qsort(words, graph->word_count, sizeof(*words), word_compare);
	for (size_t i = 0; i < graph->word_count; i++) {
		const struct graph_root_word *last = kept ? &words[kept - 1] : NULL;

		if (last && last->object == words[i].object && last->address == words[i].address &&
		    words[i].root == ROOT_VARIABLE)
			continue;
		words[kept++] = words[i];
	}
	graph->word_count = kept;
}

const struct graph_root_word *graph_words(const struct graph *graph, uint32_t object, size_t *count)
{
	size_t low = 0, high = graph->word_count, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (graph->words[middle].object < object)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < graph->word_count && graph->words[end].object == object; end++)
		;
	*count = end - low;
	return *count ? &graph->words[low] : NULL;
}
