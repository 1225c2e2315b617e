/* SPDX-License-Identifier: Apache-2.0 */
/* Small random graphs with roots, and what the roots reach. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "random_below.h"

#define NODES 24
#define EDGES 64

struct random_graph {
	uint32_t count, edges;
	uint32_t from[EDGES], to[EDGES];
	uint8_t root[NODES];
	uint32_t out_start[NODES + 1], out[EDGES], in_start[NODES + 1], in[EDGES];
};

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
