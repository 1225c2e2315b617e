/* SPDX-License-Identifier: Apache-2.0 */
/* What no root reaches: cycles, and what only they hold. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/graph.h"

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
static int is_frozen(struct unreached *unreached, uint32_t object)
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
