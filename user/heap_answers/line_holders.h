/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps the blocks of each line of a trace alive: the module's variable, the module or the
 * root that the shortest path to the object leads through whose block it is. Pure.
 */
#ifndef TRACER_HEAP_ANSWERS_LINE_HOLDERS_H
#define TRACER_HEAP_ANSWERS_LINE_HOLDERS_H

#include "heap_answers/heap_choice.h"

struct line_holder {
	uint32_t line;   /* number of the line in the graph's block_lines */
	uint32_t holder; /* an object; GRAPH_NONE: no object owns these blocks */
	uint64_t bytes, count;
	uint64_t only_bytes; /* of the blocks that would be freed with the holder */
};

struct line_holders {
	struct line_holder *entries; /* by line, then most bytes first */
	size_t count, capacity;
};

/* heap: with lines, retained and paths. 0, -ENOMEM. The caller frees with line_holders_free(). */
int line_holders_read(struct line_holders *out, const struct heap_graph *heap);
void line_holders_free(struct line_holders *holders);
/* The first of a line's entries; *count of them. */
const struct line_holder *line_holders_of(const struct line_holders *holders, uint32_t line,
					  size_t *count);

#endif
