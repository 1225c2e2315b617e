/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words outside of objects that hold some: the frames of threads, whose layout is known, and
 * the words of interpreters' and threads' states and of files' variables. Of the latter nothing
 * says whether they own a reference or borrow it: they count as far as the object's reference count
 * needs them.
 */
#include <errno.h>
#include <stdlib.h>

#include "inspect/graph/graph.h"
#include "util/array.h"
#include "util/sorted.h"

/* --- thread counts ---------------------------------------------------------------------------- */

/*
 * Model (Python/uniqueid.c, 3.14t+). A type, a code object or a module's dictionary that many
 * threads use has a number, its place in a table of the interpreter. Each thread counts references
 * to it in an array of its own; the object's count is the sum of these and of its own. Places of
 * the table without an object hold the address of another place, or nothing.
 */

#define MAX_INTERPRETERS 1024u
#define MAX_THREADS      65536u
#define MAX_COUNT        (1 << 29)  /* of one object, also below 0 */
#define ZERO             (1u << 30) /* a sum of 0 in the map */

/* A table of words; NULL, and *count 0, if it is not in the image. */
static const uint8_t *table_at(const struct image *image, uint64_t address, uint64_t size,
			       uint64_t *count)
{
	uint64_t table = image_u64(image, address);

	*count = image_u64(image, size);
	const uint8_t *words = *count >> 32 || !table ? NULL : image_at(image, table, *count * 8);
	*count = words ? *count : 0;
	return words;
}

static int count_add(struct graph *graph, uint64_t object, int64_t more)
{
	int64_t sum = graph_thread_counts(graph, object);

	if (more == 0 || more < -MAX_COUNT || more > MAX_COUNT || sum + more < -MAX_COUNT ||
	    sum + more > MAX_COUNT || graph_find(graph, object) == GRAPH_NONE)
		return 0;
	return id_map_put(&graph->thread_counts, object, (uint32_t)(sum + more) + ZERO);
}

static int thread_read(struct graph *graph, uint64_t tstate, const uint8_t *ids, uint64_t id_count)
{
	const struct free_threaded_offsets *at = &graph->image->offsets.free_threaded;
	uint64_t count;
	int err = 0;

	const uint8_t *counts = table_at(graph->image, tstate + at->tstate_counts,
					 tstate + at->tstate_counts_size, &count);
	if (count > id_count)
		count = id_count;
	for (uint64_t i = 0; i < count && !err; i++)
		err = count_add(graph, word_at(ids + i * 8), (int64_t)word_at(counts + i * 8));
	return err;
}

int graph_thread_counts_read(struct graph *graph)
{
	const struct image *image = graph->image;
	const struct python_offsets *offsets = &image->offsets;
	const struct free_threaded_offsets *at = &offsets->free_threaded;
	uint64_t interpreter = image->interpreters;
	int err = 0;

	if (offsets->build != BUILD_FREE_THREADED || at->tstate_counts == ABI_NONE)
		return 0;
	for (uint32_t i = 0; i < MAX_INTERPRETERS && interpreter && !err; i++) {
		uint64_t tstate = image_u64(image, interpreter + offsets->abi.interp_threads_head);
		uint64_t id_count;
		const uint8_t *ids = table_at(image, interpreter + at->interp_ids,
					      interpreter + at->interp_ids_size, &id_count);

		for (uint32_t j = 0; j < MAX_THREADS && tstate && !err; j++) {
			err = thread_read(graph, tstate, ids, id_count);
			tstate = image_u64(image, tstate + offsets->abi.tstate_next);
		}
		interpreter = image_u64(image, interpreter + offsets->abi.interp_next);
	}
	return err;
}

int32_t graph_thread_counts(const struct graph *graph, uint64_t address)
{
	uint32_t count = id_map_find(&graph->thread_counts, address);

	return count == ID_MAP_NONE ? 0 : (int32_t)(count - ZERO);
}

/* --- interpreters ----------------------------------------------------------------------------- */

/* The interpreters of a process: their modules, and what their collectors do not free. */

#define MAX_INTERPRETERS 1024u
#define GC_FROZEN        8u /* _PyGC_BITS_FROZEN, without the GIL */

/* Whether it is a dictionary with modules at the keys sys and builtins. */
static bool is_modules(const struct graph *graph, uint64_t address)
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

bool graph_is_kept_list(const struct graph *graph, uint32_t object)
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
	const struct collector_source source = collector_source_of(graph->image);
	int err = interpreters_list(graph)
			  ?: collectors_read(&graph->collectors, &source, COLLECTORS_MAX);

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

/* --- roots ------------------------------------------------------------------------------------ */

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

	if (abi->frame_owner == ABI_NONE) {
		words_visit(rooting, tstate + abi->tstate_frame, 8, ROOT_FRAME, MAX_DEPTH);
		return;
	}
	uint64_t frame = abi->tstate_frame == ABI_NONE
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

	return CMP(x->object, y->object) ?: CMP(x->address, y->address) ?: CMP(x->root, y->root);
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
static bool is_in_object(const struct graph *graph, uint64_t address)
{
	size_t above = keys_above(graph->addresses, graph->count, address);

	return above &&
	       address - graph->addresses[above - 1] < static_bytes(graph, (uint32_t)(above - 1));
}

int graph_word_add(struct graph *graph, const struct graph_root_word *word)
{
	int err = ARRAY_GROW(graph->words, graph->word_capacity, graph->word_count);

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
