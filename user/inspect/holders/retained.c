/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/retained.h"

#include <errno.h>
#include <stdlib.h>

#include "inspect/holders/dominators.h"
#include "util/array.h"
#include "util/sorted.h"

static void sums_find(struct retained *retained, const uint32_t *order, uint32_t reached)
{
	const struct graph *graph = retained->graph;

	for (size_t i = 0; i < graph->count; i++) {
		retained->bytes[i] = graph_bytes(graph, (uint32_t)i);
		retained->counts[i] = 1;
	}
	for (uint32_t i = reached; i-- > 0;) {
		uint32_t object = order[i], above = retained->idom[object];

		if (above >= graph->count)
			continue;
		retained->bytes[above] += retained->bytes[object];
		retained->counts[above] += retained->counts[object];
	}
}

static void children_find(struct retained *retained)
{
	size_t count = retained->graph->count;
	uint32_t *start = retained->child_start, sum = 0;

	for (size_t i = 0; i < count; i++)
		if (retained->idom[i] != DOMINATORS_NONE)
			start[retained->idom[i]]++;
	for (size_t i = 0; i <= count + 1; i++) {
		uint32_t here = i <= count ? start[i] : 0;

		start[i] = sum;
		sum += here;
	}
	for (size_t i = 0; i < count; i++)
		if (retained->idom[i] != DOMINATORS_NONE)
			retained->children[start[retained->idom[i]]++] = (uint32_t)i;
	for (size_t i = count + 1; i > 0; i--)
		start[i] = start[i - 1];
	start[0] = 0;
}

struct retained_summing {
	const struct retained *retained;
	const uint32_t *group_of;
	const uint8_t *apart;
	struct retained_sum *sums;
	uint32_t *open;  /* by group: its objects on the way to the current one */
	uint32_t *stack; /* places among the children, of the way to the current object */
	uint32_t *near;  /* by depth: the group of the nearest object that has one */
};

static void object_enter(struct retained_summing *summing, uint32_t at, size_t depth)
{
	const struct retained *retained = summing->retained;
	uint32_t group = summing->group_of[at], above = summing->near[depth];

	summing->near[depth + 1] = group == GRAPH_NONE ? above : group;
	if (group == GRAPH_NONE)
		return;
	if (above != GRAPH_NONE && summing->apart && summing->apart[above]) {
		summing->sums[above].bytes -= retained->bytes[at];
		summing->sums[above].count -= retained->counts[at];
	}
	struct retained_sum *sum = &summing->sums[group];
	if (!summing->open[group]++ || (summing->apart && summing->apart[group])) {
		sum->bytes += retained->bytes[at];
		sum->count += retained->counts[at];
	}
}

/* Goes down the tree of dominators. */
static void groups_sum(struct retained_summing *summing)
{
	const struct retained *retained = summing->retained;
	uint32_t at = (uint32_t)retained->graph->count, place = retained->child_start[at];
	uint32_t *stack = summing->stack;
	size_t depth = 0;

	summing->near[0] = GRAPH_NONE;
	for (;;) {
		if (place == retained->child_start[at + 1]) {
			if (!depth)
				return;
			if (summing->group_of[at] != GRAPH_NONE)
				summing->open[summing->group_of[at]]--;
			place = stack[--depth] + 1;
			at = depth ? retained->children[stack[depth - 1]]
				   : (uint32_t)retained->graph->count;
			continue;
		}
		at = retained->children[place];
		object_enter(summing, at, depth);
		stack[depth++] = place;
		place = retained->child_start[at];
	}
}

int retained_groups(const struct retained *retained, const uint32_t *group_of, size_t count,
		    const uint8_t *apart, struct retained_sum *sums)
{
	struct retained_summing summing = {
		.retained = retained,
		.group_of = group_of,
		.apart = apart,
		.sums = sums,
		.open = calloc(count + 1, sizeof(uint32_t)),
		.stack = array_new(retained->graph->count + 2, sizeof(uint32_t)),
		.near = array_new(retained->graph->count + 2, sizeof(uint32_t)),
	};
	int err = summing.open && summing.stack && summing.near ? 0 : -ENOMEM;

	if (!err)
		groups_sum(&summing);
	free(summing.open);
	free(summing.stack);
	free(summing.near);
	return err;
}

enum { UNKNOWN, OUTSIDE, INSIDE };

/* Is the object a matched one, or in one? Each is looked at once: state keeps the answers. */
static bool is_inside(const struct retained *retained, const uint8_t *matched, uint8_t *state,
		      uint32_t object)
{
	uint32_t root = (uint32_t)retained->graph->count, end = object;

	while (end < root && !state[end] && !matched[end])
		end = retained->idom[end];
	uint8_t found = end >= root ? OUTSIDE : state[end] ? state[end] : INSIDE;
	for (; object != end; object = retained->idom[object])
		state[object] = found;
	if (end < root)
		state[end] = found;
	return found == INSIDE;
}

int retained_together(const struct retained *retained, const uint8_t *matched,
		      struct retained_sum *sum)
{
	size_t count = retained->graph->count;
	uint8_t *state = array_new(count + 1, 1);

	*sum = (struct retained_sum){0};
	for (size_t i = 0; state && i < count; i++) {
		if (!matched[i] || retained->idom[i] == DOMINATORS_NONE ||
		    is_inside(retained, matched, state, retained->idom[i]))
			continue;
		sum->bytes += retained->bytes[i];
		sum->count += retained->counts[i];
	}
	free(state);
	return state ? 0 : -ENOMEM;
}

static int sums_and_children(struct retained *retained, const uint32_t *order, uint32_t reached)
{
	size_t count = retained->graph->count;

	retained->bytes = array_new(count, sizeof(uint64_t));
	retained->counts = array_new(count, sizeof(uint32_t));
	retained->child_start = array_new(count + 2, sizeof(uint32_t));
	retained->children = array_new(count, sizeof(uint32_t));
	if (!retained->bytes || !retained->counts || !retained->child_start || !retained->children)
		return -ENOMEM;
	sums_find(retained, order, reached);
	children_find(retained);
	return 0;
}

static int types_fill(struct retained *retained)
{
	const struct graph *graph = retained->graph;

	retained->types = calloc(graph->types.count + 1, sizeof(*retained->types));
	return retained->types ? retained_groups(retained, graph->type_of, graph->types.count, NULL,
						 retained->types)
			       : -ENOMEM;
}

static int largest_compare(const void *a, const void *b, void *context)
{
	const struct retained *retained = context;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return CMP(retained->bytes[y], retained->bytes[x]) ?: CMP(x, y);
}

/* Sorting all of millions would take seconds: twice as many as are wanted are kept at a time. */
uint32_t *retained_largest(const struct retained *retained, const uint8_t *matched, size_t most,
			   size_t *count)
{
	size_t all = retained->graph->count, room = most < all / 2 ? 2 * most : all, kept = 0;
	uint32_t *objects = malloc((room + 1) * sizeof(*objects));
	bool is_full = false; /* objects[most - 1] is the smallest of the largest ones so far */

	for (uint32_t i = 0; objects && most && i < all; i++) {
		if ((matched && !matched[i]) ||
		    (is_full && largest_compare(&i, &objects[most - 1], (void *)retained) > 0))
			continue;
		if (kept == room) {
			qsort_r(objects, kept, sizeof(*objects), largest_compare, (void *)retained);
			kept = most;
			is_full = true;
		}
		objects[kept++] = i;
	}
	if (objects)
		qsort_r(objects, kept, sizeof(*objects), largest_compare, (void *)retained);
	*count = kept < most ? kept : most;
	return objects;
}

/* Each step allocates what it needs: the dominators take as much as the rest. */
static int retained_fill(struct retained *retained)
{
	const struct graph *graph = retained->graph;
	size_t count = graph->count;
	struct flow flow = {.count = (uint32_t)count,
			    .out_start = graph->out_start,
			    .out = graph->out,
			    .in_start = graph->in_start,
			    .in = graph->in,
			    .is_root = graph->root};
	uint32_t *order = array_new(count + 2, sizeof(uint32_t)), reached = 0;
	int err = -ENOMEM;

	retained->idom = array_new(count, sizeof(uint32_t));
	if (order && retained->idom)
		err = dominators_find(&flow, retained->idom, order, &reached)
			      ?: sums_and_children(retained, order, reached);
	free(order);
	return err ?: types_fill(retained);
}

int retained_new(struct retained **out, const struct graph *graph)
{
	struct retained *retained = calloc(1, sizeof(*retained));

	if (!retained)
		return -ENOMEM;
	retained->graph = graph;
	int err = retained_fill(retained);
	if (err) {
		retained_free(retained);
		return err;
	}
	*out = retained;
	return 0;
}

void retained_free(struct retained *retained)
{
	if (!retained)
		return;
	free(retained->idom);
	free(retained->child_start);
	free(retained->children);
	free(retained->bytes);
	free(retained->counts);
	free(retained->types);
	free(retained);
}
