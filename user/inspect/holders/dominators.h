/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dominators of a directed graph with several roots, by Lengauer and Tarjan's algorithm with path
 * compression: O(m log n) for any graph. Pure.
 */
#pragma once

#include <stdint.h>

/* Nodes are 0 … count - 1; edges of node i are at [start[i], start[i + 1]). Borrowed. */
struct flow {
	uint32_t count;
	const uint32_t *out_start, *out; /* successors */
	const uint32_t *in_start, *in;   /* predecessors */
	const uint8_t *is_root;          /* non-zero: a root */
};

#define DOMINATORS_NONE UINT32_MAX /* no root reaches it */

/*
 * idom: count entries for the immediate dominators; count stands for the root of all roots, which
 * dominates what no single node does. order: room for count + 2 entries; the reachable nodes, each
 * after its dominator. Returns their number in *reached. 0, -ENOMEM. Memory: 20 bytes a node.
 */
int dominators_find(const struct flow *flow, uint32_t *idom, uint32_t *order, uint32_t *reached);
