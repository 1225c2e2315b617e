/* SPDX-License-Identifier: Apache-2.0 */
/* How roots are named. */
#include <inttypes.h>
#include <string.h>

#include "inspect/holders/paths.h"
#include "inspect/holders/values.h"

/* "log of serve", "of serve" */
static int frame_name(const struct graph *graph, uint64_t code, const uint64_t *slot,
		      struct buffer *name)
{
	size_t before = name->size;
	int got = slot ? values_identifier(graph, variable_name(graph, code, *slot), name) : 0;

	if (got >= 0)
		got = buffer_append(name, got ? " of " : "of ", got ? 4 : 3) ?: 1;
	if (got > 0)
		got = values_qualname(
			graph,
			image_u64(graph->image, code + graph->image->offsets.abi.code_qualname),
			name);
	if (!got)
		name->size = before;
	return got < 0 ? got : 0;
}

static int frame_root_name(const struct graph *graph, uint32_t object,
			   const struct graph_root_word *word, int detailed, struct buffer *name)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;

	if (graph_type(graph, object)->layout == LAYOUT_FRAME)
		return frame_name(graph, frame_code(graph, object), NULL, name);
	if (abi->frame_owner == ABI_NONE || !word)
		return 0;
	uint64_t code = image_u64(graph->image, word->address + abi->frame_code);
	return frame_name(graph, abi->frame_code_tagged ? code & ~7ull : code,
			  detailed && word->kind == REFERENCE_LOCAL ? &word->slot : NULL, name);
}

static int file_name(const struct graph *graph, uint64_t address, struct buffer *name)
{
	const struct image_segment *segment = image_segment(graph->image, address);
	const char *last = segment ? strrchr(segment->file, '/') : NULL;

	if (!segment)
		return 0;
	last = last ? last + 1 : segment->file;
	return buffer_append(name, last, strlen(last));
}

int root_name(const struct graph *graph, uint32_t object, int detailed, struct buffer *name)
{
	size_t count;
	const struct graph_root_word *word = graph_words(graph, object, &count);
	uint64_t missing;

	while (count > 1 && word->root != graph->root[object]) {
		word++;
		count--;
	}
	switch (graph->root[object]) {
	case ROOT_MODULES:
		return buffer_append(name, "sys.modules", 11);
	case ROOT_SUBMODULES:
		return buffer_printf(name, "%" PRId64, graph_interpreter(graph, object)->id);
	case ROOT_FRAME:
		return frame_root_name(graph, object, word, detailed, name);
	case ROOT_STATIC:
		return file_name(graph, graph->addresses[object], name);
	case ROOT_VARIABLE:
		return word ? file_name(graph, word->address, name) : 0;
	case ROOT_NATIVE:
	case ROOT_LOST:
		if (!detailed)
			return 0;
		missing = graph_refcount(graph, graph->addresses[object]) - graph->held[object];
		return buffer_printf(name, "%" PRIu64 " reference%s", missing,
				     missing == 1 ? "" : "s");
	case ROOT_INTERPRETER:
		return graph_is_kept_list(graph, object) ? buffer_append(name, "gc.garbage", 10)
							 : 0;
	case ROOT_FROZEN:
		return buffer_printf(name, "(no collection frees it)");
	case ROOT_GARBAGE:
		if (!graph->collectors.count ||
		    collectors_off(&graph->collectors) < graph->collectors.count)
			return 0;
		return buffer_printf(name, "(the collector is off)");
	default:
		return 0;
	}
}
