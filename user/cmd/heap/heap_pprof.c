/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer heap --format pprof: the dominator tree as stacks of types. An object's stack has the
 * types of what retains it, the outermost first; those of one type that retain each other are one
 * frame.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/heap/heap_choice.h"
#include "report/pprof/pprof.h"
#include "snapshot/builder.h"
#include "util/array.h"
#include "util/id_map.h"

#define MAX_DEPTH 100u /* what is deeper counts for the last type */
#define FILE_NAME "heap"

/* Objects of one type below those of another node. */
struct heap_pprof_node {
	uint32_t parent; /* node; GRAPH_NONE: none */
	uint32_t type;   /* of its objects; of the outermost: enum graph_root */
	uint32_t depth;
	uint32_t traceback;
};

struct heap_pprof_stacks {
	const struct heap_graph *heap;
	struct builder builder;
	struct heap_pprof_node *nodes;
	size_t count, capacity;
	struct id_map node_of; /* by parent and type */
	uint32_t *of_object;   /* node of each object */
};

static const char *node_name(const struct heap_pprof_stacks *stacks,
			     const struct heap_pprof_node *node)
{
	if (node->parent != GRAPH_NONE)
		return stacks->heap->graph->types.entries[node->type].name;
	return node->type == ROOT_NONE ? "several holders"
				       : graph_root_name((enum graph_root)node->type);
}

static int traceback_make(struct heap_pprof_stacks *stacks, struct heap_pprof_node *node)
{
	struct snapshot_frame frames[MAX_DEPTH + 1] = {0};
	struct strings *strings = stacks->builder.snapshot->strings;
	const struct heap_pprof_node *at = node;
	uint32_t count = 0;
	int err = 0;

	while (!err && count <= MAX_DEPTH) {
		const char *name = node_name(stacks, at);

		err = strings_intern(strings, name, strlen(name), &frames[count].function)
			      ?: strings_intern(strings, FILE_NAME, strlen(FILE_NAME),
						&frames[count].filename);
		count++;
		if (at->parent == GRAPH_NONE)
			break;
		at = &stacks->nodes[at->parent];
	}
	return err ?: builder_traceback(&stacks->builder, frames, count, count, &node->traceback);
}

static int node_find(struct heap_pprof_stacks *stacks, uint32_t parent, uint32_t type,
		     uint32_t *out)
{
	uint64_t key = (uint64_t)parent << 32 | type;
	struct heap_pprof_node *node;

	*out = id_map_find(&stacks->node_of, key);
	if (*out != ID_MAP_NONE)
		return 0;
	int err = ARRAY_GROW(stacks->nodes, stacks->capacity, stacks->count);
	if (err)
		return err;
	node = &stacks->nodes[stacks->count];
	*node = (struct heap_pprof_node){
		.parent = parent,
		.type = type,
		.depth = parent == GRAPH_NONE ? 0 : stacks->nodes[parent].depth + 1,
	};
	*out = (uint32_t)stacks->count;
	err = traceback_make(stacks, node) ?: id_map_put(&stacks->node_of, key, *out);
	stacks->count += !err;
	return err;
}

static int object_add(struct heap_pprof_stacks *stacks, uint32_t object)
{
	const struct graph *graph = stacks->heap->graph;
	uint32_t holder = stacks->heap->retained->idom[object], type = graph->type_of[object], node;
	struct snapshot_trace trace = {.bytes = graph_bytes(graph, object), .count = 1};
	int err = 0;

	if (holder == graph->count)
		err = node_find(stacks, GRAPH_NONE, graph->root[object], &node);
	else
		node = stacks->of_object[holder];
	if (!err &&
	    (stacks->nodes[node].parent == GRAPH_NONE || stacks->nodes[node].type != type) &&
	    stacks->nodes[node].depth < MAX_DEPTH)
		err = node_find(stacks, node, type, &node);
	if (err)
		return err;
	stacks->of_object[object] = node;
	trace.traceback = stacks->nodes[node].traceback;
	return builder_trace(&stacks->builder, &trace);
}

/* From the outermost objects inwards. */
static int objects_add(struct heap_pprof_stacks *stacks)
{
	const struct retained *retained = stacks->heap->retained;
	const struct graph *graph = stacks->heap->graph;
	uint32_t *queue = malloc((graph->count + 1) * sizeof(*queue));
	size_t at = 0, end = 0;
	int err = queue ? 0 : -ENOMEM;

	if (queue)
		queue[end++] = (uint32_t)graph->count;
	while (!err && at < end) {
		uint32_t object = queue[at++];

		for (uint32_t i = retained->child_start[object];
		     !err && i < retained->child_start[object + 1] && end <= graph->count; i++) {
			queue[end++] = retained->children[i];
			err = object_add(stacks, retained->children[i]);
		}
	}
	free(queue);
	return err;
}

static void meta_fill(struct snapshot_meta *meta, const struct image *image)
{
	meta->pid = image->pid;
	meta->python_version = image->version_hex;
	meta->traceback_limit = MAX_DEPTH + 1;
	memcpy(meta->name, image->name, sizeof(image->name));
	strcpy(meta->mode, "exact");
	strcpy(meta->moment, "running");
	meta->taken_realtime_ns = image->time_ns;
	meta->from_start = 1;
}

static int profile_write(const struct snapshot *snapshot)
{
	struct outfile *file;
	int err = outfile_on(&file, STDOUT_FILENO, "stdout");

	return err ?: pprof_save(snapshot, file);
}

int heap_pprof_write(const struct heap_graph *heap)
{
	struct heap_pprof_stacks stacks = {.heap = heap};
	struct snapshot *snapshot;
	int err = builder_begin(&stacks.builder);

	if (err)
		return err;
	stacks.of_object = malloc((heap->graph->count + 1) * sizeof(uint32_t));
	err = stacks.of_object ? objects_add(&stacks) : -ENOMEM;
	if (err) {
		builder_abort(&stacks.builder);
	} else {
		meta_fill(&stacks.builder.snapshot->meta, &heap->capture.image);
		snapshot = builder_finish(&stacks.builder);
		err = profile_write(snapshot);
		snapshot_free(snapshot);
	}
	id_map_free(&stacks.node_of);
	free(stacks.nodes);
	free(stacks.of_object);
	return err;
}
