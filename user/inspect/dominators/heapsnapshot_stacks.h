/* SPDX-License-Identifier: Apache-2.0 */
/* Private to heapsnapshot*.c: the stacks in a heap snapshot. */
#pragma once

#include "inspect/dominators/heapsnapshot.h"
#include "util/strings.h"

/* The number of a stack's node in the tree; 0: of none. */
static inline uint32_t stack_node(uint32_t stack)
{
	return stack == HEAPSNAPSHOT_NONE ? 0 : stack + 2;
}

/*
 * Writes "trace_function_infos" and "trace_tree", each with the comma behind it. Strings are added
 * to those of the file. 0, -ENOMEM.
 */
int snapshot_stacks_write(const struct heapsnapshot_stacks *stacks, const struct graph *graph,
			  struct strings *strings, FILE *out);
