/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_function_infos: {number, name, file, number of the file, line, column} of each frame, with
 * "(root)" as the first. trace_tree: {id, frame, objects, bytes, [its callees]} of each stack,
 * nested. Node 1 is the root of all; a stack's is stack_node().
 */
#include "inspect/dominators/heapsnapshot_stacks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tree_node {
	uint32_t first, next; /* callees, as a list: stacks; HEAPSNAPSHOT_NONE */
	uint32_t count;       /* objects, and their bytes */
	uint64_t bytes;
};

static int text_add(struct strings *strings, const char *text, size_t length, uint32_t *id)
{
	return strings_intern(strings, text, length, id);
}

/* A place without its line: "FILE:LINE". */
static int info_write(const struct heapsnapshot_frame *frame, size_t number,
		      struct strings *strings, FILE *out)
{
	const char *colon = strrchr(frame->place, ':');
	size_t length = colon ? (size_t)(colon - frame->place) : strlen(frame->place);
	uint32_t name, file;
	int err = text_add(strings, frame->function, strlen(frame->function), &name);

	if (!err)
		err = text_add(strings, frame->place, length, &file);
	if (!err)
		fprintf(out, ",\n%zu,%u,%u,%u,%lu,0", number, name, file, file,
			colon ? strtoul(colon + 1, NULL, 10) : 0);
	return err;
}

static int infos_write(const struct heapsnapshot_stacks *stacks, struct strings *strings, FILE *out)
{
	uint32_t root, none;
	int err = text_add(strings, "(root)", strlen("(root)"), &root);

	if (!err)
		err = text_add(strings, "", 0, &none);
	if (!err)
		fprintf(out, "\"trace_function_infos\":[0,%u,%u,0,0,0", root, none);
	for (size_t i = 0; i < stacks->frame_count && !err; i++)
		err = info_write(&stacks->frames[i], i + 1, strings, out);
	fputs("],\n", out);
	return err;
}

/* Callees have larger numbers than their callers. The last node is the root. */
static void tree_link(struct tree_node *nodes, const struct heapsnapshot_stacks *stacks,
		      const struct graph *graph)
{
	size_t root = stacks->stack_count;

	for (size_t i = 0; i <= root; i++)
		nodes[i].first = nodes[i].next = HEAPSNAPSHOT_NONE;
	for (size_t i = root; i--;) {
		uint32_t parent = stacks->stacks[i].parent;
		size_t above = parent == HEAPSNAPSHOT_NONE ? root : parent;

		nodes[i].next = nodes[above].first;
		nodes[above].first = (uint32_t)i;
	}
	for (size_t i = 0; i < graph->count; i++)
		if (stacks->of[i] != HEAPSNAPSHOT_NONE) {
			nodes[stacks->of[i]].count++;
			nodes[stacks->of[i]].bytes += graph_bytes(graph, (uint32_t)i);
		}
}

static void node_write(const struct tree_node *node, uint32_t id, uint32_t frame, FILE *out)
{
	fprintf(out, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",[", id, frame, node->count,
		node->bytes);
}

/* A walk without recursion: it goes to the first callee, else to the next of a caller that ends. */
static void tree_write(const struct tree_node *nodes, const struct heapsnapshot_stacks *stacks,
		       FILE *out)
{
	uint32_t at = nodes[stacks->stack_count].first;

	fputs("\"trace_tree\":[", out);
	node_write(&nodes[stacks->stack_count], 1, 0, out);
	while (at != HEAPSNAPSHOT_NONE) {
		node_write(&nodes[at], stack_node(at), stacks->stacks[at].frame + 1, out);
		if (nodes[at].first != HEAPSNAPSHOT_NONE) {
			at = nodes[at].first;
			continue;
		}
		while (at != HEAPSNAPSHOT_NONE && nodes[at].next == HEAPSNAPSHOT_NONE) {
			putc(']', out);
			at = stacks->stacks[at].parent;
		}
		if (at != HEAPSNAPSHOT_NONE) {
			fputs("],\n", out);
			at = nodes[at].next;
		}
	}
	fputs("]],\n", out);
}

int snapshot_stacks_write(const struct heapsnapshot_stacks *stacks, const struct graph *graph,
			  struct strings *strings, FILE *out)
{
	struct tree_node *nodes = calloc(stacks->stack_count + 1, sizeof(*nodes));
	int err = nodes ? infos_write(stacks, strings, out) : -ENOMEM;

	if (!err) {
		tree_link(nodes, stacks, graph);
		tree_write(nodes, stacks, out);
	}
	free(nodes);
	return err;
}
