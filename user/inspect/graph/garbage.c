/* SPDX-License-Identifier: Apache-2.0 */
/* What no root reaches: cycles, and what only they hold. */
#include <errno.h>
#include <stdlib.h>

#include "inspect/graph/graph.h"
#include "util/array.h"

/* --- proof ------------------------------------------------------------------------------------ */

/* What holds each object: the roots, and the proof by reference counts. */

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

static bool is_static(const struct graph *graph, uint64_t address)
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

/* --- guesses ---------------------------------------------------------------------------------- */

/* References that were found word by word, held against the reference counts of their targets. */

struct dropping {
	struct graph *graph;
	uint32_t *excess; /* by object: references that were found beyond its count */
	uint32_t source;
	enum reference_kind kind; /* that is dropped in this round */
	int err;
};

uint64_t graph_word_address(const struct graph *graph, uint32_t source, enum reference_kind kind,
			    uint64_t slot)
{
	return kind == REFERENCE_WORD     ? graph->addresses[source] + slot
	       : kind == REFERENCE_BUFFER ? slot
					  : 0;
}

/* Whether it was found word by word, and nothing says that a reference is there. */
static bool is_unnamed(const struct graph *graph, uint32_t source, enum reference_kind kind,
		       uint64_t slot)
{
	const struct type *type = graph_type(graph, source);
	struct object_field field;
	char member[TYPES_NAME];

	switch (type->layout) {
	case LAYOUT_DICT: /* an OrderedDict's nodes */
	case LAYOUT_CODE:
	case LAYOUT_GENERATOR:
	case LAYOUT_MODULE:
	case LAYOUT_LRU_LINK:
		return 0;
	default:
		break;
	}
	return kind == REFERENCE_BUFFER ||
	       (kind == REFERENCE_WORD && !types_field(&graph->types, type, slot, &field) &&
		!types_member(&graph->types, type, slot, member));
}

bool graph_is_guess(const struct graph *graph, uint32_t source, uint64_t target,
		    enum reference_kind kind, uint64_t slot)
{
	uint32_t object = graph_find(graph, target);

	return object != GRAPH_NONE && graph->held[object] != graph_refcount(graph, target) &&
	       is_unnamed(graph, source, kind, slot);
}

/* Returns whether there are any. */
static int excess_find(struct dropping *dropping)
{
	const struct graph *graph = dropping->graph;
	int any = 0;

	for (size_t i = 0; i < graph->count; i++) {
		const struct image_segment *segment =
			image_segment(graph->image, graph->addresses[i]);

		if (!graph->held[i] || !segment || segment->kind == IMAGE_DATA)
			continue;
		uint64_t count = graph_refcount(graph, graph->addresses[i]);
		if (count >= graph->held[i])
			continue;
		dropping->excess[i] = graph->held[i] - (uint32_t)count;
		any = 1;
	}
	return any;
}

/* Takes one edge out of the source's; those to itself are not among them. */
static void edge_remove(struct graph *graph, uint32_t source, uint32_t target)
{
	for (uint32_t i = graph->out_start[source]; i < graph->out_start[source + 1]; i++)
		if (graph->out[i] == target) {
			graph->out[i] = GRAPH_NONE;
			return;
		}
}

static void guess_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct dropping *dropping = context;
	struct graph *graph = dropping->graph;

	if (kind != dropping->kind || dropping->err)
		return;
	uint32_t object = graph_find(graph, target);
	if (object == GRAPH_NONE || !dropping->excess[object] ||
	    !is_unnamed(graph, dropping->source, kind, slot))
		return;
	uint64_t word = graph_word_address(graph, dropping->source, kind, slot);
	dropping->err =
		id_map_put(&graph->refuted, word, 1) ?: graph_beside_add(graph, dropping->source);
	if (dropping->err)
		return;
	dropping->excess[object]--;
	graph->held[object]--;
	edge_remove(graph, dropping->source, object);
}

static int refers_to_excess(const struct dropping *dropping, uint32_t source)
{
	const struct graph *graph = dropping->graph;

	if (dropping->excess[source])
		return 1;
	for (uint32_t i = graph->out_start[source]; i < graph->out_start[source + 1]; i++)
		if (graph->out[i] != GRAPH_NONE && dropping->excess[graph->out[i]])
			return 1;
	return 0;
}

static void round_drop(struct dropping *dropping, enum reference_kind kind)
{
	struct graph *graph = dropping->graph;

	dropping->kind = kind;
	for (uint32_t i = 0; i < graph->count && !dropping->err; i++) {
		if (!refers_to_excess(dropping, i))
			continue;
		dropping->source = i;
		references_each(&graph->references, graph->addresses[i], graph_type(graph, i),
				guess_visit, dropping);
	}
}

static void edges_close_up(struct graph *graph)
{
	uint32_t kept = 0, from = 0;

	for (size_t i = 0; i < graph->count; i++) {
		uint32_t end = graph->out_start[i + 1];

		for (; from < end; from++)
			if (graph->out[from] != GRAPH_NONE)
				graph->out[kept++] = graph->out[from];
		graph->out_start[i + 1] = kept;
	}
}

int graph_guesses_drop(struct graph *graph)
{
	struct dropping dropping = {.graph = graph,
				    .excess = array_new(graph->count + 1, sizeof(uint32_t))};

	if (!dropping.excess)
		return -ENOMEM;
	if (excess_find(&dropping)) {
		graph_work_begin(graph);
		round_drop(&dropping, REFERENCE_BUFFER);
		round_drop(&dropping, REFERENCE_WORD);
		graph->cut |= !graph->references.work;
		edges_close_up(graph);
	}
	free(dropping.excess);
	return dropping.err;
}

/* --- lost ------------------------------------------------------------------------------------- */

/*
 * A reference is a word of memory. An object whose count says more than all words that have its
 * address has references that nothing holds any more: C code has forgotten them, such as the code
 * objects that Cython makes for functions that cannot be traced. Words are counted with the three
 * lowest bits cleared, which may be a tag; too many of them only hide a lost reference.
 */

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
	int err = ARRAY_GROW(losing->objects, losing->capacity, losing->count);

	err = err ?: id_map_put(&losing->number_of, address, (uint32_t)losing->count);
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
		if (graph->root[i] != ROOT_NATIVE)
			continue;
		uint64_t count = graph_refcount(graph, graph->addresses[i]);
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

		if (word - first > range)
			continue;
		uint32_t bit = filter_bit(word);
		if (!(filter[bit / 8] >> bit % 8 & 1))
			continue;
		uint32_t number = id_map_find(&losing->number_of, word);
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

/* --- garbage ---------------------------------------------------------------------------------- */

enum reach { REACH_NOT, REACH_LEFT, REACH_CYCLE, REACH_DONE };

struct unreached {
	struct graph *graph;
	uint8_t *reach;  /* by object: enum reach */
	uint32_t *stack; /* room for all objects */
	uint32_t *next;  /* by object: the edge to follow next */
	uint32_t *left;  /* objects in the order in which they were left */
	size_t left_count;
};

/* Marks everything that can be reached from object. */
static void reach_from(struct unreached *unreached, uint32_t object)
{
	const struct graph *graph = unreached->graph;
	size_t count = 0;

	if (unreached->reach[object] == REACH_DONE)
		return;
	unreached->reach[object] = REACH_DONE;
	unreached->stack[count++] = object;
	while (count) {
		uint32_t from = unreached->stack[--count];

		for (uint32_t i = graph->out_start[from]; i < graph->out_start[from + 1]; i++) {
			uint32_t to = graph->out[i];

			if (unreached->reach[to] == REACH_DONE)
				continue;
			unreached->reach[to] = REACH_DONE;
			unreached->stack[count++] = to;
		}
	}
}

/* Depth first: an object is left when all that it refers to was. */
static void leave_from(struct unreached *unreached, uint32_t object)
{
	const struct graph *graph = unreached->graph;
	uint32_t *stack = unreached->stack;
	size_t depth = 1;

	unreached->reach[object] = REACH_LEFT;
	unreached->next[object] = graph->out_start[object];
	stack[0] = object;
	while (depth) {
		uint32_t at = stack[depth - 1], to;

		if (unreached->next[at] == graph->out_start[at + 1]) {
			unreached->left[unreached->left_count++] = at;
			depth--;
			continue;
		}
		to = graph->out[unreached->next[at]++];
		if (unreached->reach[to] != REACH_NOT)
			continue;
		unreached->reach[to] = REACH_LEFT;
		unreached->next[to] = graph->out_start[to];
		stack[depth++] = to;
	}
}

/*
 * Whether the collector leaves a part of the cycle alone, which then holds the rest. All that
 * refers to the object, directly or through others, is on its cycle.
 */
static bool is_frozen(struct unreached *unreached, uint32_t object)
{
	const struct graph *graph = unreached->graph;
	int frozen = graph->kept[object] == KEPT_FROZEN;
	size_t count = 0;

	if (!graph->frozen)
		return 0;
	unreached->stack[count++] = object;
	unreached->reach[object] = REACH_CYCLE;
	while (count) {
		uint32_t to = unreached->stack[--count];

		for (uint32_t i = graph->in_start[to]; i < graph->in_start[to + 1]; i++) {
			uint32_t from = graph->in[i];

			if (unreached->reach[from] != REACH_LEFT)
				continue;
			unreached->reach[from] = REACH_CYCLE;
			frozen |= graph->kept[from] == KEPT_FROZEN;
			unreached->stack[count++] = from;
		}
	}
	return frozen;
}

/*
 * One object of each cycle that no other object refers to is marked as garbage: all other garbage
 * hangs below these. Of the objects that are not reached yet, the one that was left last lies on
 * such a cycle. Instances of a program's classes are entered first, so that they are marked rather
 * than their dictionaries.
 */
static void garbage_mark(struct unreached *unreached)
{
	struct graph *graph = unreached->graph;

	for (int instances = 1; instances >= 0; instances--)
		for (size_t i = 0; i < graph->count; i++)
			if (unreached->reach[i] == REACH_NOT &&
			    (!instances || graph_type(graph, (uint32_t)i)->flags & TYPE_HEAP))
				leave_from(unreached, (uint32_t)i);
	while (unreached->left_count) {
		uint32_t object = unreached->left[--unreached->left_count];

		if (unreached->reach[object] == REACH_DONE)
			continue;
		graph->root[object] = is_frozen(unreached, object) ? ROOT_FROZEN : ROOT_GARBAGE;
		reach_from(unreached, object);
	}
}

int graph_garbage_find(struct graph *graph)
{
	struct unreached unreached = {.graph = graph,
				      .reach = array_new(graph->count + 1, 1),
				      .stack = array_new(graph->count + 1, sizeof(uint32_t)),
				      .next = array_new(graph->count + 1, sizeof(uint32_t)),
				      .left = array_new(graph->count + 1, sizeof(uint32_t))};
	int err = unreached.reach && unreached.stack && unreached.next && unreached.left ? 0
											 : -ENOMEM;

	for (size_t i = 0; i < graph->count && !err; i++)
		if (graph->root[i] != ROOT_NONE)
			reach_from(&unreached, (uint32_t)i);
	if (!err)
		garbage_mark(&unreached);
	free(unreached.reach);
	free(unreached.stack);
	free(unreached.next);
	free(unreached.left);
	return err;
}
