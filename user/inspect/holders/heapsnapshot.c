/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file (v8/src/profiler/heap-snapshot-generator.cc): arrays of numbers for nodes and edges,
 * with the fields that `meta` names, and an array of strings. A node's edges follow those of the
 * node before it; an edge refers to a node by its position in the array. With stacks a node has the
 * field trace_node_id. Node 0 is the root of all roots.
 */
#include "inspect/holders/heapsnapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/json.h"
#include "util/strings.h"

/*
 * The stacks in a heap snapshot.
 *
 * trace_function_infos: {number, name, file, number of the file, line, column} of each frame, with
 * "(root)" as the first. trace_tree: {id, frame, objects, bytes, [its callees]} of each stack,
 * nested. Node 1 is the root of all; a stack's is stack_node().
 */

/* The number of a stack's node in the tree; 0: of none. */
static inline uint32_t stack_node(uint32_t stack)
{
	return stack == HEAPSNAPSHOT_NONE ? 0 : stack + 2;
}

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

	err = err ?: text_add(strings, frame->place, length, &file);
	if (!err)
		fprintf(out, ",\n%zu,%u,%u,%u,%lu,0", number, name, file, file,
			colon ? strtoul(colon + 1, NULL, 10) : 0);
	return err;
}

static int infos_write(const struct heapsnapshot_stacks *stacks, struct strings *strings, FILE *out)
{
	uint32_t root, none;
	int err = text_add(strings, "(root)", strlen("(root)"), &root);

	err = err ?: text_add(strings, "", 0, &none);
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

/*
 * Writes "trace_function_infos" and "trace_tree", each with the comma behind it. Strings are added
 * to those of the file. 0, -ENOMEM.
 */
static int snapshot_stacks_write(const struct heapsnapshot_stacks *stacks,
				 const struct graph *graph, struct strings *strings, FILE *out)
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

enum node_type {
	NODE_STRING = 2,
	NODE_OBJECT = 3,
	NODE_CODE = 4,
	NODE_CLOSURE = 5,
	NODE_NUMBER = 7,
	NODE_SYNTHETIC = 9
};
enum edge_type {
	EDGE_CONTEXT,
	EDGE_ELEMENT,
	EDGE_PROPERTY,
	EDGE_INTERNAL,
	EDGE_HIDDEN,
	EDGE_SHORTCUT,
	EDGE_WEAK
};

static const char meta_fields[] =
	"{\"snapshot\":{\"meta\":{\"node_fields\":[\"type\",\"name\",\"id\",\"self_size\","
	"\"edge_count\"";
static const char meta[] =
	",\"detachedness\"],\"node_types\":[[\"hidden\",\"array\",\"string\","
	"\"object\",\"code\",\"closure\",\"regexp\",\"number\",\"native\",\"synthetic\","
	"\"concatenated string\",\"sliced string\",\"symbol\",\"bigint\",\"object shape\"],"
	"\"string\",\"number\",\"number\",\"number\",\"number\"],\"edge_fields\":[\"type\","
	"\"name_or_index\",\"to_node\"],\"edge_types\":[[\"context\",\"element\",\"property\","
	"\"internal\",\"hidden\",\"shortcut\",\"weak\"],\"string_or_number\",\"node\"],"
	"\"trace_function_info_fields\":[\"function_id\",\"name\",\"script_name\","
	"\"script_id\",\"line\",\"column\"],\"trace_node_fields\":[\"id\","
	"\"function_info_index\",\"count\",\"size\",\"children\"],\"sample_fields\":["
	"\"timestamp_us\",\"last_assigned_id\"],\"location_fields\":[\"object_index\","
	"\"script_id\",\"line\",\"column\"]}";

struct heapsnapshot_writer {
	const struct paths *paths;
	const struct heapsnapshot_stacks *stacks; /* NULL: none */
	struct graph *graph;
	FILE *out;
	struct strings *strings;
	uint32_t *edges; /* by object: how many it has */
	uint64_t edge_count;
	uint32_t source;
	int writes, err; /* writes 0: edges are counted */
};

static unsigned int node_fields(const struct heapsnapshot_writer *writer)
{
	return writer->stacks ? 7 : 6;
}

static uint32_t string_of(struct heapsnapshot_writer *writer, const char *text)
{
	uint32_t id = 0;

	if (!writer->err)
		writer->err = strings_intern(writer->strings, text, strlen(text), &id);
	return id;
}

/* No node is an array: DevTools charges those to the object that holds them. */
static enum node_type node_type(const struct type *type)
{
	if (type->flags & TYPE_STR)
		return NODE_STRING;
	if (type->flags & TYPE_INT)
		return NODE_NUMBER;
	if (type->layout == LAYOUT_CODE)
		return NODE_CODE;
	return strcmp(type->name, "function") ? NODE_OBJECT : NODE_CLOSURE;
}

/* Whether the name of a reference is one of the program's, not a value that it holds. */
static bool has_name(const struct heapsnapshot_writer *writer, enum reference_kind kind)
{
	switch (kind) {
	case REFERENCE_KEY:
	case REFERENCE_VALUE:
		return paths_is_namespace(writer->paths, writer->source);
	case REFERENCE_TYPE:
	case REFERENCE_WORD:
	case REFERENCE_FIELD:
	case REFERENCE_FRAME:
	case REFERENCE_ATTRIBUTE:
	case REFERENCE_DICT:
	case REFERENCE_LOCAL:
		return 1;
	default:
		return 0;
	}
}

/* The text of a key that is a str, without its quotes; borrowed from the buffer. */
static const char *name_unquote(struct buffer *text)
{
	char *name = (char *)text->data;
	size_t length = strlen(name);

	if (length < 2 || name[0] != '\'' || name[length - 1] != '\'')
		return name;
	name[length - 1] = 0;
	return name + 1;
}

static void edge_write(struct heapsnapshot_writer *writer, uint32_t object,
		       enum reference_kind kind, uint64_t slot)
{
	enum edge_type type = kind == REFERENCE_WEAK ? EDGE_WEAK : EDGE_ELEMENT;
	uint64_t name = slot;
	struct buffer text = {0};
	const char *kind_name;

	if (kind == REFERENCE_BUFFER)
		type = EDGE_HIDDEN;
	if (type == EDGE_WEAK || has_name(writer, kind)) {
		if (type != EDGE_WEAK)
			type = kind == REFERENCE_TYPE ? EDGE_INTERNAL : EDGE_PROPERTY;
		writer->err =
			reference_name(writer->graph, writer->source, kind, slot, &kind_name, &text)
				?: buffer_append(&text, "", 1);
		name = writer->err ? 0 : string_of(writer, name_unquote(&text));
		buffer_free(&text);
	}
	fprintf(writer->out, "%s%d,%" PRIu64 ",%" PRIu64, writer->edge_count ? ",\n" : "", type,
		name & UINT32_MAX, ((uint64_t)object + 1) * node_fields(writer));
}

static void edge_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct heapsnapshot_writer *writer = context;
	uint32_t object = graph_find(writer->graph, target);

	if (writer->err ||
	    (kind != REFERENCE_WEAK && !graph_counts(writer->graph, writer->source, target, kind)))
		return;
	if (writer->writes)
		edge_write(writer, object, kind, slot);
	else
		writer->edges[writer->source]++;
	writer->edge_count++;
}

/* The root's edges come first, then those of each object. */
static void edges_visit(struct heapsnapshot_writer *writer)
{
	struct graph *graph = writer->graph;

	writer->edge_count = 0;
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->root[i] == ROOT_NONE)
			continue;
		if (writer->writes)
			fprintf(writer->out, "%s%d,%u,%" PRIu64, writer->edge_count ? ",\n" : "",
				EDGE_PROPERTY, string_of(writer, graph_root_name(graph->root[i])),
				((uint64_t)i + 1) * node_fields(writer));
		writer->edge_count++;
	}
	if (!writer->writes)
		writer->edges[graph->count] = (uint32_t)writer->edge_count;
	graph_work_begin(graph);
	for (size_t i = 0; i < graph->count && !writer->err; i++) {
		writer->source = (uint32_t)i;
		graph_references(graph, (uint32_t)i, edge_visit, writer);
	}
}

static void nodes_write(struct heapsnapshot_writer *writer)
{
	const struct heapsnapshot_stacks *stacks = writer->stacks;
	const struct graph *graph = writer->graph;

	fprintf(writer->out,
		"%s%s%s,\"node_count\":%zu,\"edge_count\":%" PRIu64
		",\"trace_function_count\":%zu},\n\"nodes\":[%d,%u,1,0,%u,0%s",
		meta_fields, stacks ? ",\"trace_node_id\"" : "", meta, graph->count + 1,
		writer->edge_count, stacks ? stacks->frame_count + 1 : 0, NODE_SYNTHETIC,
		string_of(writer, "(roots)"), writer->edges[graph->count], stacks ? ",0" : "");
	for (size_t i = 0; i < graph->count && !writer->err; i++) {
		const struct type *type = graph_type(graph, (uint32_t)i);

		fprintf(writer->out, ",\n%d,%u,%zu,%" PRIu64 ",%u", node_type(type),
			string_of(writer, type->name), 2 * i + 3, graph_bytes(graph, (uint32_t)i),
			writer->edges[i]);
		if (stacks)
			fprintf(writer->out, ",%" PRIu32, stack_node(stacks->of[i]));
		fputs(",0", writer->out);
	}
	fputs("],\n\"edges\":[", writer->out);
}

static void strings_write(struct heapsnapshot_writer *writer)
{
	fputs("],\n", writer->out);
	if (writer->stacks && !writer->err)
		writer->err = snapshot_stacks_write(writer->stacks, writer->graph, writer->strings,
						    writer->out);
	else
		fputs("\"trace_function_infos\":[],\"trace_tree\":[],", writer->out);
	fputs("\"samples\":[],\"locations\":[],\n\"strings\":[", writer->out);
	for (uint32_t i = 0; i < strings_count(writer->strings); i++) {
		fputs(i ? ",\n" : "", writer->out);
		json_quote(writer->out, strings_get(writer->strings, i));
	}
	fputs("]}\n", writer->out);
}

int heapsnapshot_write(const struct paths *paths, const struct heapsnapshot_stacks *stacks,
		       FILE *out)
{
	struct heapsnapshot_writer writer = {
		.paths = paths, .stacks = stacks, .graph = paths->graph, .out = out};

	writer.err = strings_new(&writer.strings);
	writer.edges = calloc(paths->graph->count + 1, sizeof(uint32_t));
	if (!writer.edges)
		writer.err = -ENOMEM;
	if (!writer.err) {
		edges_visit(&writer);
		nodes_write(&writer);
		writer.writes = 1;
		edges_visit(&writer);
		strings_write(&writer);
	}
	strings_free(writer.strings);
	free(writer.edges);
	return writer.err;
}
