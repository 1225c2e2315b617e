/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer heap --format heapsnapshot: with --by line the stacks that allocated the objects, from the
 * session's blocks. A file of blocks without stacks gives each object the line alone.
 */
#include <errno.h>
#include <stdlib.h>

#include "cmd/heap/heap_choice.h"
#include "inspect/holders/heapsnapshot.h"

struct joined {
	struct heapsnapshot_frame *frames;
	struct heapsnapshot_stack *stacks;
	uint32_t *of;
};

static void frames_fill(struct joined *joined, const struct block_lines *lines)
{
	if (lines->format == 1)
		for (size_t i = 0; i < lines->name_count; i++) {
			joined->frames[i] = (struct heapsnapshot_frame){"", lines->names[i]};
			joined->stacks[i] =
				(struct heapsnapshot_stack){HEAPSNAPSHOT_NONE, (uint32_t)i};
		}
	for (size_t i = 0; i < lines->frame_count; i++)
		joined->frames[i] = (struct heapsnapshot_frame){
			lines->frames[i].function, lines->names[lines->frames[i].line]};
	for (size_t i = 0; i < lines->stack_count; i++)
		joined->stacks[i] = (struct heapsnapshot_stack){
			lines->stacks[i].parent == BLOCK_LINES_NONE ? HEAPSNAPSHOT_NONE
								    : lines->stacks[i].parent,
			lines->stacks[i].frame};
}

static void objects_fill(struct joined *joined, const struct block_lines *lines,
			 const struct graph *graph)
{
	for (size_t i = 0; i < graph->count; i++) {
		const struct block_line *block = block_lines_at(lines, graph->addresses[i]);

		joined->of[i] = !block               ? HEAPSNAPSHOT_NONE
				: lines->format == 1 ? block->line
						     : block->stack;
	}
}

int heap_snapshot_write(const struct heap_choice *choice, const struct heap_graph *heap)
{
	const struct block_lines *lines = &heap->lines;
	const struct graph *graph = heap->graph;
	size_t lone = lines->format == 1 ? lines->name_count : 0; /* frames that are lines */
	struct joined joined = {
		.frames = calloc(lines->frame_count + lone + 1, sizeof(*joined.frames)),
		.stacks = calloc(lines->stack_count + lone + 1, sizeof(*joined.stacks)),
		.of = calloc(graph->count + 1, sizeof(*joined.of))};
	struct heapsnapshot_stacks stacks = {.frames = joined.frames,
					     .frame_count = lines->frame_count + lone,
					     .stacks = joined.stacks,
					     .stack_count = lines->stack_count + lone,
					     .of = joined.of};
	int err = joined.frames && joined.stacks && joined.of ? 0 : -ENOMEM;

	if (!err && choice->by == BY_LINE) {
		frames_fill(&joined, lines);
		objects_fill(&joined, lines, graph);
	}
	if (!err)
		err = heapsnapshot_write(heap->paths, choice->by == BY_LINE ? &stacks : NULL,
					 stdout);
	free(joined.frames);
	free(joined.stacks);
	free(joined.of);
	return err;
}
