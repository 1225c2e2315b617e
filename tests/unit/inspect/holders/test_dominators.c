/* SPDX-License-Identifier: Apache-2.0 */
/* Dominators of random graphs, against the definition: what a node's removal cuts off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/holders/dominators.h"

#define GRAPHS 12000
#define NODES  24
#define EDGES  64

struct random_graph {
	uint32_t count, edges;
	uint32_t from[EDGES], to[EDGES];
	uint8_t root[NODES];
	uint32_t out_start[NODES + 1], out[EDGES], in_start[NODES + 1], in[EDGES];
};

static uint64_t state = 88172645463325252ull;

static uint32_t below(uint32_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11) % limit;
}

static void starts_make(const struct random_graph *graph, const uint32_t *by, const uint32_t *other,
			uint32_t *start, uint32_t *list)
{
	uint32_t at = 0;

	for (uint32_t node = 0; node < graph->count; node++) {
		start[node] = at;
		for (uint32_t i = 0; i < graph->edges; i++)
			if (by[i] == node)
				list[at++] = other[i];
	}
	start[graph->count] = at;
}

static void graph_make(struct random_graph *graph)
{
	memset(graph, 0, sizeof(*graph));
	graph->count = 1 + below(NODES);
	graph->edges = below(EDGES);
	for (uint32_t i = 0; i < graph->edges; i++) {
		graph->from[i] = below(graph->count);
		graph->to[i] = below(graph->count);
	}
	for (uint32_t i = 1 + below(3); i > 0; i--)
		graph->root[below(graph->count)] = 1;
	starts_make(graph, graph->from, graph->to, graph->out_start, graph->out);
	starts_make(graph, graph->to, graph->from, graph->in_start, graph->in);
}

/* Marks what the roots reach without passing `removed`. */
static void reach(const struct random_graph *graph, uint32_t removed, uint8_t reached[NODES])
{
	int changed = 1;

	memset(reached, 0, NODES);
	for (uint32_t i = 0; i < graph->count; i++)
		reached[i] = graph->root[i] && i != removed;
	while (changed) {
		changed = 0;
		for (uint32_t i = 0; i < graph->edges; i++)
			if (reached[graph->from[i]] && !reached[graph->to[i]] &&
			    graph->to[i] != removed) {
				reached[graph->to[i]] = 1;
				changed = 1;
			}
	}
}

static void check(const struct random_graph *graph)
{
	struct flow flow = {graph->count,    graph->out_start, graph->out,
			    graph->in_start, graph->in,        graph->root};
	uint8_t all[NODES], without[NODES][NODES];
	uint32_t idom[NODES], order[NODES + 2], reached, seen = 0;

	assert_int_equal(dominators_find(&flow, idom, order, &reached), 0);
	reach(graph, NODES, all);
	for (uint32_t i = 0; i < graph->count; i++) {
		reach(graph, i, without[i]);
		seen += all[i];
		assert_int_equal(idom[i] != DOMINATORS_NONE, all[i]);
	}
	assert_int_equal(reached, seen);
	for (uint32_t node = 0; node < graph->count; node++) {
		uint8_t above[NODES] = {0};
		uint32_t steps = 0;

		if (!all[node])
			continue;
		for (uint32_t at = idom[node]; at != graph->count; at = idom[at]) {
			above[at] = 1;
			assert_true(++steps < graph->count);
		}
		for (uint32_t other = 0; other < graph->count; other++)
			if (other != node)
				assert_int_equal(above[other], all[other] && !without[other][node]);
	}
}

static void test_random(void **unused)
{
	struct random_graph graph;

	(void)unused;
	for (uint32_t i = 0; i < GRAPHS; i++) {
		graph_make(&graph);
		check(&graph);
	}
}

/* A chain of a million nodes, which a recursive search would not survive. */
static void test_deep(void **unused)
{
	enum { DEEP = 1000000 };
	uint32_t *start = calloc(DEEP + 1, 4), *out = calloc(DEEP, 4), *back = calloc(DEEP + 1, 4),
		 *in = calloc(DEEP, 4), *idom = calloc(DEEP, 4), *order = calloc(DEEP + 2, 4),
		 reached;
	uint8_t *root = calloc(DEEP, 1);
	struct flow flow = {DEEP, start, out, back, in, root};

	(void)unused;
	for (uint32_t i = 0; i < DEEP; i++) {
		start[i] = i;
		out[i] = i + 1;
		back[i + 1] = i;
		in[i] = i;
	}
	start[DEEP - 1] = start[DEEP] = DEEP - 1;
	back[DEEP] = DEEP - 1;
	root[0] = 1;
	assert_int_equal(dominators_find(&flow, idom, order, &reached), 0);
	assert_int_equal(reached, DEEP);
	assert_int_equal(idom[0], DEEP);
	for (uint32_t i = 1; i < DEEP; i++)
		assert_int_equal(idom[i], i - 1);
	free(start);
	free(out);
	free(back);
	free(in);
	free(idom);
	free(order);
	free(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
