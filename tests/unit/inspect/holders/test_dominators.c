/* SPDX-License-Identifier: Apache-2.0 */
/* Dominators of random graphs, against the definition: what a node's removal cuts off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "inspect/holders/dominators.h"
#include "random_graph.h"

#define GRAPHS 12000
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
