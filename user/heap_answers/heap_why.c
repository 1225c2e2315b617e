/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap why, holders and show. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "heap_answers/heap_choice.h"
#include "holders/values.h"
#include "text/json.h"
#include "text/size.h"
#include "text/text.h"

/* The objects that an argument means: all of a type, or one. */
struct chosen {
	const struct graph *graph;
	const char *type; /* NULL: the object */
	uint32_t object;
};

static int is_chosen(void *context, uint32_t object)
{
	const struct chosen *chosen = context;

	if (!chosen->type)
		return object == chosen->object;
	return !strcmp(graph_type(chosen->graph, object)->name, chosen->type);
}

/* 0; -ENOENT after a message: there is no such object. */
static int choose(const struct heap_graph *heap, const char *what, struct chosen *out)
{
	const struct graph *graph = heap->graph;
	char *end;
	uint64_t address = strtoull(what, &end, 0);

	*out = (struct chosen){.graph = graph, .object = GRAPH_NONE};
	if (what[0] >= '0' && what[0] <= '9' && !*end) {
		out->object = graph_find(graph, address);
		if (out->object != GRAPH_NONE)
			return 0;
		return error_print(error_set(-ENOENT, "no object begins at this address"), NULL,
				   "%s", what);
	}
	out->type = what;
	for (size_t i = 0; i < graph->count; i++)
		if (is_chosen(out, (uint32_t)i))
			return 0;
	return error_print(error_set(-ENOENT, "no object has a type of this name"),
			   "tracer heap -p PID --top 0 lists the types", "%s", what);
}

static void steps_text(const struct heap_graph *heap, const struct path *path)
{
	const struct graph *graph = heap->graph;

	for (size_t i = 0; i < path->count; i++) {
		const struct step *step = &path->steps[i];
		const char *name = (const char *)path->names.data + step->name;

		printf("    %s", step->kind);
		if (name[0]) {
			putchar(' ');
			text_print(stdout, name);
		}
		fputs(" -> ", stdout);
		text_print(stdout, graph_type(graph, step->object)->name);
		printf(" at 0x%" PRIx64 "\n", graph->addresses[step->object]);
	}
	if (path->cut)
		puts("    (the path is longer: its beginning is left out)");
}

static void steps_json(const struct heap_graph *heap, const struct path *path)
{
	const struct graph *graph = heap->graph;

	fputs("\"steps\": [", stdout);
	for (size_t i = 0; i < path->count; i++) {
		const struct step *step = &path->steps[i];

		printf("%s{\"kind\": \"%s\", \"name\": ", i ? ", " : "", step->kind);
		json_string(stdout, (const char *)path->names.data + step->name);
		fputs(", \"type\": ", stdout);
		json_string(stdout, graph_type(graph, step->object)->name);
		printf(", \"address\": %" PRIu64 "}", graph->addresses[step->object]);
	}
	printf("], \"cut\": %s", path->cut ? "true" : "false");
	if (path->expression.data[0]) {
		fputs(", \"expression\": ", stdout);
		json_string(stdout, (const char *)path->expression.data);
	}
}

static int group_print(const struct heap_graph *heap, const struct path_group *group, int json,
		       int first)
{
	char size[32], retained[32];
	struct path path;
	int err = path_read(heap->paths, group->example, &path);

	if (!err && json) {
		printf("%s{\"count\": %" PRIu64 ", \"size\": %" PRIu64
		       ", \"retained_size\": %" PRIu64 ", ",
		       first ? "" : ", ", group->count, group->bytes, group->retained);
		steps_json(heap, &path);
		putchar('}');
	} else if (!err) {
		printf("  %" PRIu64 " object%s, size=%s, retained=%s, for example\n", group->count,
		       group->count == 1 ? "" : "s", size_text(size, group->bytes),
		       size_text(retained, group->retained));
		if (path.expression.data[0]) {
			fputs("    ", stdout);
			text_print(stdout, (const char *)path.expression.data);
			putchar('\n');
		}
		steps_text(heap, &path);
	}
	path_free(&path);
	return err;
}

int heap_why_print(const struct heap_choice *choice, const struct heap_graph *heap,
		   const char *what)
{
	int json = choice->output.format == FORMAT_JSON;
	size_t top = choice->output.opts.top, count = 0, shown;
	struct path_group *groups = NULL;
	struct chosen chosen;
	int err = choose(heap, what, &chosen);

	if (!err)
		err = paths_group(heap->paths, heap->retained, is_chosen, &chosen, &groups, &count);
	if (err)
		return err;
	shown = top && top < count ? top : count;
	if (json) {
		heap_graph_json(heap);
		printf(", \"paths_total\": %zu, \"paths\": [", count);
	} else {
		heap_graph_head(heap);
		fputs("Paths to ", stdout);
		text_print(stdout, what);
		printf(", the shortest from a root to each object, by kind: %zu of %zu\n", shown,
		       count);
	}
	for (size_t i = 0; i < shown && !err; i++)
		err = group_print(heap, &groups[i], json, !i);
	if (json)
		puts("]}");
	free(groups);
	return err ?: fflush(stdout) || ferror(stdout) ? -EIO : 0;
}

/* References to the chosen objects by the type that holds them and the name of the reference. */
struct holder {
	uint32_t type, example;
	enum reference_kind kind;
	uint64_t slot, count;
};

struct holding {
	struct graph *graph;
	struct chosen chosen;
	struct holder *holders;
	size_t count, capacity;
	struct id_map found;
	uint32_t source;
	int err;
};

/* Keys and indexes differ in each reference: they are one line. */
static uint64_t holder_slot(enum reference_kind kind, uint64_t slot)
{
	return kind == REFERENCE_WORD || kind == REFERENCE_FIELD || kind == REFERENCE_ATTRIBUTE
		       ? slot
		       : 0;
}

static void holder_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct holding *holding = context;
	struct graph *graph = holding->graph;
	uint32_t type = graph->type_of[holding->source], at;
	uint64_t key;

	if (holding->err || !is_chosen(&holding->chosen, graph_find(graph, target)))
		return;
	slot = holder_slot(kind, slot);
	key = hash_u64(((uint64_t)type << 8 | kind) + 1) ^ hash_u64(slot + 1);
	at = id_map_find(&holding->found, key);
	if (at == ID_MAP_NONE) {
		at = (uint32_t)holding->count;
		holding->err = array_reserve(&holding->holders, &holding->capacity, holding->count,
					     1, sizeof(struct holder))
				       ?: id_map_put(&holding->found, key, at);
		if (holding->err)
			return;
		holding->holders[holding->count++] =
			(struct holder){type, holding->source, kind, slot, 0};
	}
	holding->holders[at].count++;
}

static int holder_compare(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->example < y->example ? -1 : x->example > y->example;
}

static int has_key(const struct holder *holder)
{
	return holder->kind == REFERENCE_WORD || holder->kind == REFERENCE_FIELD ||
	       holder->kind == REFERENCE_ATTRIBUTE || holder->kind == REFERENCE_DICT ||
	       holder->kind == REFERENCE_TYPE;
}

static int holder_print(const struct graph *graph, const struct holder *holder, int json, int first)
{
	struct buffer name = {0};
	const char *kind, *text;
	int err = reference_name(graph, holder->example, holder->kind, holder->slot, &kind, &name)
			  ?: buffer_append(&name, "", 1);

	if (err) {
		buffer_free(&name);
		return err;
	}
	text = has_key(holder) ? (const char *)name.data : "";
	if (json) {
		printf("%s{\"type\": ", first ? "" : ", ");
		json_string(stdout, graph->types.entries[holder->type].name);
		printf(", \"kind\": \"%s\", \"name\": ", kind);
		json_string(stdout, text);
		printf(", \"count\": %" PRIu64 ", \"address\": %" PRIu64 "}", holder->count,
		       graph->addresses[holder->example]);
	} else {
		printf("  %" PRIu64 " by ", holder->count);
		text_print(stdout, graph->types.entries[holder->type].name);
		printf(", %s%s", kind, text[0] ? " " : "");
		text_print(stdout, text);
		printf(", for example at 0x%" PRIx64 "\n", graph->addresses[holder->example]);
	}
	buffer_free(&name);
	return 0;
}

static int holders_write(const struct heap_choice *choice, const struct heap_graph *heap,
			 const struct holding *holding, const char *what)
{
	int json = choice->output.format == FORMAT_JSON, err = 0;
	size_t top = choice->output.opts.top;
	size_t shown = top && top < holding->count ? top : holding->count;

	if (json) {
		heap_graph_json(heap);
		printf(", \"holders_total\": %zu, \"holders\": [", holding->count);
	} else {
		heap_graph_head(heap);
		fputs("References to ", stdout);
		text_print(stdout, what);
		printf(", by kind: %zu of %zu\n", shown, holding->count);
	}
	for (size_t i = 0; i < shown && !err; i++)
		err = holder_print(heap->graph, &holding->holders[i], json, !i);
	if (json)
		puts("]}");
	return err ?: fflush(stdout) || ferror(stdout) ? -EIO : 0;
}

int heap_holders_print(const struct heap_choice *choice, const struct heap_graph *heap,
		       const char *what)
{
	struct holding holding = {.graph = heap->graph};
	int err = choose(heap, what, &holding.chosen);

	if (err)
		return err;
	graph_work_begin(heap->graph);
	for (size_t i = 0; i < heap->graph->count && !holding.err; i++) {
		holding.source = (uint32_t)i;
		graph_references(heap->graph, (uint32_t)i, holder_visit, &holding);
	}
	if (holding.count)
		qsort(holding.holders, holding.count, sizeof(struct holder), holder_compare);
	err = holding.err ?: holders_write(choice, heap, &holding, what);
	free(holding.holders);
	id_map_free(&holding.found);
	return err;
}

struct showing {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	uint32_t object, source;
	uint64_t shown, total;
	int inwards, json, err;
};

static void reference_show(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct showing *showing = context;
	const struct graph *graph = showing->heap->graph;
	uint64_t top = showing->choice->output.opts.top;
	uint32_t other = showing->inwards ? showing->source : graph_find(graph, target);
	struct buffer name = {0};
	const char *kind_name;

	if (showing->err || (showing->inwards && target != graph->addresses[showing->object]))
		return;
	showing->total++;
	if (top && showing->shown == top)
		return;
	showing->err = reference_name(graph, showing->source, kind, slot, &kind_name, &name)
			       ?: buffer_append(&name, "", 1);
	if (!showing->err && showing->json) {
		printf("%s{\"kind\": \"%s\", \"name\": ", showing->shown ? ", " : "", kind_name);
		json_string(stdout, (const char *)name.data);
		fputs(", \"type\": ", stdout);
		json_string(stdout, graph_type(graph, other)->name);
		printf(", \"address\": %" PRIu64 "}", graph->addresses[other]);
	} else if (!showing->err) {
		printf("    %s ", kind_name);
		text_print(stdout, (const char *)name.data);
		printf("%s", showing->inwards ? " of " : " -> ");
		text_print(stdout, graph_type(graph, other)->name);
		printf(" at 0x%" PRIx64 "\n", graph->addresses[other]);
	}
	showing->shown++;
	buffer_free(&name);
}

static void direction_show(struct showing *showing, int inwards)
{
	struct graph *graph = showing->heap->graph;

	showing->inwards = inwards;
	showing->shown = showing->total = 0;
	graph_work_begin(graph);
	if (showing->json)
		printf(", \"%s\": [", inwards ? "references_in" : "references_out");
	else
		puts(inwards ? "  is held by" : "  holds");
	if (!inwards) {
		showing->source = showing->object;
		graph_references(graph, showing->object, reference_show, showing);
	}
	for (uint32_t i = graph->in_start[showing->object];
	     inwards && i < graph->in_start[showing->object + 1]; i++) {
		/* An object with several references is several times in the list. */
		if (i > graph->in_start[showing->object] && graph->in[i] == graph->in[i - 1])
			continue;
		showing->source = graph->in[i];
		graph_references(graph, showing->source, reference_show, showing);
	}
	if (showing->json)
		printf("], \"%s\": %" PRIu64,
		       inwards ? "references_in_total" : "references_out_total", showing->total);
	else if (showing->shown < showing->total)
		printf("    %" PRIu64 " others\n", showing->total - showing->shown);
}

static void object_text(const struct heap_graph *heap, uint32_t object, const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);
	char size[32], retained[32];

	text_print(stdout, graph_type(graph, object)->name);
	printf(" at 0x%" PRIx64 "%s", graph->addresses[object], value[0] ? ": " : "");
	text_print(stdout, value);
	printf("\n  size=%s, retained=%s, ", size_text(size, graph_bytes(graph, object)),
	       size_text(retained, heap->retained->bytes[object]));
	if (count == UINT64_MAX)
		puts("immortal");
	else
		printf("reference count=%" PRIu64 ", found=%u\n", count, graph->held[object]);
}

static void object_json(const struct heap_graph *heap, uint32_t object, const char *value)
{
	const struct graph *graph = heap->graph;
	uint64_t count = graph_refcount(graph, graph->addresses[object]);

	heap_graph_json(heap);
	fputs(", \"type\": ", stdout);
	json_string(stdout, graph_type(graph, object)->name);
	printf(", \"address\": %" PRIu64 ", \"size\": %" PRIu64 ", \"retained_size\": %" PRIu64
	       ", \"refcount\": ",
	       graph->addresses[object], graph_bytes(graph, object), heap->retained->bytes[object]);
	if (count == UINT64_MAX)
		fputs("null", stdout);
	else
		printf("%" PRIu64, count);
	printf(", \"found\": %u, \"value\": ", graph->held[object]);
	if (value[0])
		json_string(stdout, value);
	else
		fputs("null", stdout);
}

int heap_show_print(const struct heap_choice *choice, const struct heap_graph *heap,
		    const char *what)
{
	struct showing showing = {
		.choice = choice, .heap = heap, .json = choice->output.format == FORMAT_JSON};
	struct buffer value = {0};
	struct chosen chosen;
	int err = choose(heap, what, &chosen);

	if (err)
		return err;
	if (chosen.type)
		return error_print(error_set(-ENOENT, "show takes an address"),
				   "tracer heap holders TYPE shows some", "%s", what);
	showing.object = chosen.object;
	heap->graph->texts_hidden = !choice->values;
	err = values_repr(heap->graph, heap->graph->addresses[chosen.object], &value);
	err = err < 0 ? err : buffer_append(&value, "", 1);
	if (err) {
		buffer_free(&value);
		return err;
	}
	if (showing.json) {
		object_json(heap, chosen.object, (const char *)value.data);
	} else {
		heap_graph_head(heap);
		object_text(heap, chosen.object, (const char *)value.data);
	}
	buffer_free(&value);
	direction_show(&showing, 0);
	direction_show(&showing, 1);
	if (showing.json)
		puts("}");
	return showing.err ?: fflush(stdout) || ferror(stdout) ? -EIO : 0;
}
