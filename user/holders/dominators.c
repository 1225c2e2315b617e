/* SPDX-License-Identifier: Apache-2.0 */
/*
 * T. Lengauer, R. E. Tarjan: A Fast Algorithm for Finding Dominators in a Flowgraph (1979), the
 * simple version. Nodes are numbered from 1 in the order of a depth-first search; number 1 is the
 * root of all roots, 0 is none. Arrays are by number.
 */
#include "holders/dominators.h"

#include <errno.h>
#include <stdlib.h>

struct search {
	const struct flow *flow;
	uint32_t *number; /* by node */
	uint32_t *node;   /* count for the root of all roots */
	uint32_t *parent, *semi, *label, *ancestor, *bucket, *next, *dominator;
	uint32_t *stack, *edge; /* edge: by node, the next to follow */
	uint32_t count;
};

static void visit(struct search *search, uint32_t node, uint32_t parent, uint32_t *depth)
{
	uint32_t number = ++search->count;

	search->number[node] = number;
	search->node[number] = node;
	search->parent[number] = parent;
	search->semi[number] = search->label[number] = number;
	search->edge[node] = search->flow->out_start[node];
	search->stack[(*depth)++] = node;
}

static void depth_first(struct search *search)
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
			uint32_t edge = search->edge[from];

			if (edge == flow->out_start[from + 1]) {
				depth--;
				continue;
			}
			search->edge[from]++;
			if (!search->number[flow->out[edge]])
				visit(search, flow->out[edge], search->number[from], &depth);
		}
	}
}

/* Shortens the path from a node to the root of its tree; labels keep the least semidominator. */
static void compress(struct search *search, uint32_t from)
{
	uint32_t depth = 0;

	for (uint32_t at = from; search->ancestor[search->ancestor[at]]; at = search->ancestor[at])
		search->stack[depth++] = at;
	while (depth) {
		uint32_t at = search->stack[--depth], above = search->ancestor[at];

		if (search->semi[search->label[above]] < search->semi[search->label[at]])
			search->label[at] = search->label[above];
		search->ancestor[at] = search->ancestor[above];
	}
}

static uint32_t evaluate(struct search *search, uint32_t number)
{
	if (search->ancestor[number])
		compress(search, number);
	return search->label[number];
}

static void semi_find(struct search *search, uint32_t number)
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

static void dominators_compute(struct search *search)
{
	for (uint32_t number = search->count; number > 1; number--) {
		uint32_t parent = search->parent[number], semi;

		semi_find(search, number);
		semi = search->semi[number];
		search->next[number] = search->bucket[semi];
		search->bucket[semi] = number;
		search->ancestor[number] = parent;
		for (uint32_t at = search->bucket[parent]; at; at = search->next[at]) {
			uint32_t least = evaluate(search, at);

			search->dominator[at] =
				search->semi[least] < search->semi[at] ? least : parent;
		}
		search->bucket[parent] = 0;
	}
	for (uint32_t number = 2; number <= search->count; number++)
		if (search->dominator[number] != search->semi[number])
			search->dominator[number] = search->dominator[search->dominator[number]];
}

static void search_store(const struct search *search, uint32_t *idom, uint32_t *order)
{
	for (uint32_t i = 0; i < search->flow->count; i++)
		idom[i] = search->number[i] ? search->node[search->dominator[search->number[i]]]
					    : DOMINATORS_NONE;
	for (uint32_t number = 2; number <= search->count; number++)
		order[number - 2] = search->node[number];
}

int dominators_find(const struct flow *flow, uint32_t *idom, uint32_t *order, uint32_t *reached)
{
	enum { ARRAYS = 11 };
	size_t each = (size_t)flow->count + 2;
	uint32_t *memory = calloc(each * ARRAYS, sizeof(uint32_t));
	struct search search = {.flow = flow};
	uint32_t **const arrays[ARRAYS] = {&search.number, &search.node,  &search.parent,
					   &search.semi,   &search.label, &search.ancestor,
					   &search.bucket, &search.next,  &search.dominator,
					   &search.stack,  &search.edge};

	if (!memory)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAYS; i++)
		*arrays[i] = memory + i * each;
	depth_first(&search);
	dominators_compute(&search);
	search_store(&search, idom, order);
	*reached = search.count - 1;
	free(memory);
	return 0;
}
