/* SPDX-License-Identifier: Apache-2.0 */
/*
 * T. Lengauer, R. E. Tarjan: A Fast Algorithm for Finding Dominators in a Flowgraph (1979), the
 * simple version. Nodes are numbered from 1 in the order of a depth-first search; number 1 is the
 * root of all roots, 0 is none. Arrays are by number.
 */
#include "inspect/holders/dominators.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

/*
 * Arrays share memory where their times do not overlap: a node leaves the bucket of its
 * semidominator when its dominator is stored, and its own bucket is empty for good before it gets
 * into one. A node's parent becomes its ancestor when it is linked: all nodes above `linked` are.
 */
struct dominators_search {
	const struct flow *flow;
	uint32_t *number; /* by node; 0: not reached */
	uint32_t *node;   /* count for the root of all roots */
	uint32_t *parent, *semi, *label;
	uint32_t *bucket; /* its first node; of a node in a bucket the next one; its dominator */
	uint32_t *stack;
	uint32_t count, linked;
};

static void visit(struct dominators_search *search, uint32_t node, uint32_t parent, uint32_t *depth)
{
	uint32_t number = ++search->count;

	search->number[node] = number;
	search->node[number] = node;
	search->parent[number] = parent;
	search->semi[number] = search->label[number] = number;
	search->bucket[number] = search->flow->out_start[node];
	search->stack[(*depth)++] = node;
}

/* Until the search has ended, a node's bucket has the edge to follow next. */
static void depth_first(struct dominators_search *search)
{
	const struct flow *flow = search->flow;
	uint32_t depth = 0;

	search->count = 1;
	search->node[1] = flow->count;
	search->semi[1] = search->label[1] = 1;
	for (uint32_t root = 0; root < flow->count; root++) {
		if (!flow->is_root[root] || search->number[root])
			continue;
		visit(search, root, 1, &depth);
		while (depth) {
			uint32_t from = search->stack[depth - 1];
			uint32_t *next = &search->bucket[search->number[from]], edge = *next;

			if (edge == flow->out_start[from + 1]) {
				*next = 0;
				depth--;
				continue;
			}
			++*next;
			if (!search->number[flow->out[edge]])
				visit(search, flow->out[edge], search->number[from], &depth);
		}
	}
}

/* Shortens the path from a node to the root of its tree; labels keep the least semidominator. */
static void compress(struct dominators_search *search, uint32_t from)
{
	uint32_t depth = 0;

	for (uint32_t at = from; search->parent[at] > search->linked; at = search->parent[at])
		search->stack[depth++] = at;
	while (depth) {
		uint32_t at = search->stack[--depth], above = search->parent[at];

		if (search->semi[search->label[above]] < search->semi[search->label[at]])
			search->label[at] = search->label[above];
		search->parent[at] = search->parent[above];
	}
}

static uint32_t evaluate(struct dominators_search *search, uint32_t number)
{
	if (number > search->linked)
		compress(search, number);
	return search->label[number];
}

static void semi_find(struct dominators_search *search, uint32_t number)
{
	const struct flow *flow = search->flow;
	uint32_t node = search->node[number];

	if (flow->is_root[node])
		search->semi[number] = 1;
	for (uint32_t i = flow->in_start[node]; i < flow->in_start[node + 1]; i++) {
		uint32_t before = search->number[flow->in[i]], least;

		if (!before)
			continue;
		least = evaluate(search, before);
		if (search->semi[least] < search->semi[number])
			search->semi[number] = search->semi[least];
	}
}

static void bucket_empty(struct dominators_search *search, uint32_t of)
{
	for (uint32_t at = search->bucket[of], next; at; at = next) {
		uint32_t least = evaluate(search, at);

		next = search->bucket[at];
		search->bucket[at] = search->semi[least] < search->semi[at] ? least : of;
	}
	search->bucket[of] = 0;
}

static void dominators_compute(struct dominators_search *search)
{
	search->linked = search->count;
	for (uint32_t number = search->count; number > 1; number--) {
		uint32_t parent = search->parent[number], semi;

		semi_find(search, number);
		semi = search->semi[number];
		search->bucket[number] = search->bucket[semi];
		search->bucket[semi] = number;
		search->linked = number - 1;
		bucket_empty(search, parent);
	}
	for (uint32_t number = 2; number <= search->count; number++)
		if (search->bucket[number] != search->semi[number])
			search->bucket[number] = search->bucket[search->bucket[number]];
}

static void search_store(const struct dominators_search *search, uint32_t *idom)
{
	for (uint32_t i = 0; i < search->flow->count; i++)
		idom[i] = search->number[i] ? search->node[search->bucket[search->number[i]]]
					    : DOMINATORS_NONE;
}

int dominators_find(const struct flow *flow, uint32_t *idom, uint32_t *order, uint32_t *reached)
{
	enum { ARRAYS = 5 };
	size_t each = (size_t)flow->count + 2;
	uint32_t *memory = array_new(each * ARRAYS, sizeof(uint32_t));
	struct dominators_search search = {.flow = flow, .number = idom, .node = order};
	uint32_t **const arrays[ARRAYS] = {&search.parent, &search.semi, &search.label,
					   &search.bucket, &search.stack};

	if (!memory)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAYS; i++)
		*arrays[i] = memory + i * each;
	memset(idom, 0, flow->count * sizeof(*idom));
	depth_first(&search);
	dominators_compute(&search);
	search_store(&search, idom);
	*reached = search.count - 1;
	memmove(order, order + 2, *reached * sizeof(*order));
	free(memory);
	return 0;
}
