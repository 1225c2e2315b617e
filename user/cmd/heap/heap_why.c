/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap why and holders. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_chosen.h"
#include "cmd/heap/heap_view.h"
#include "util/array.h"
#include "util/json.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/text.h"

/* The function of a frame or generator on a path, after `before`. */
static void function_print(const struct graph *graph, uint32_t object, const char *before, int json)
{
	struct buffer name = {0};

	if (frame_function(graph, object, &name) > 0 && !buffer_append(&name, "", 1)) {
		fputs(before, stdout);
		if (json)
			json_string(stdout, (const char *)name.data);
		else
			text_print(stdout, (const char *)name.data);
	}
	buffer_free(&name);
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
		if (step->least != step->most)
			printf(" {%" PRIu32 ",%" PRIu32 "}", step->least, step->most);
		else if (step->most > 1)
			printf(" {%" PRIu32 "}", step->most);
		fputs(" -> ", stdout);
		type_text(graph, graph_type(graph, step->object));
		printf(" at 0x%" PRIx64, graph->addresses[step->object]);
		function_print(graph, step->object, " of ", 0);
		puts(step->guess ? " (a guess)" : "");
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
		fputs(", ", stdout);
		type_json(graph, graph_type(graph, step->object));
		printf(", \"address\": %" PRIu64, graph->addresses[step->object]);
		function_print(graph, step->object, ", \"function\": ", 1);
		if (step->most > 1)
			printf(", \"repeated\": %" PRIu32 ", \"repeated_most\": %" PRIu32,
			       step->least, step->most);
		fputs(step->guess ? ", \"guess\": true}" : "}", stdout);
	}
	printf("], \"cut\": %s", path->cut ? "true" : "false");
	if (path->is_python) {
		fputs(", \"expression\": ", stdout);
		json_string(stdout, (const char *)path->text.data);
	}
}

/* The path in Python, if that is possible: on a line of its own. */
static int expression_text(const struct path *path)
{
	struct buffer text = {0};
	int err = path->is_python ? path_write(path, &text) ?: buffer_append(&text, "", 1) : 0;

	if (!err && path->is_python) {
		fputs("    ", stdout);
		text_print(stdout, (const char *)text.data);
		putchar('\n');
	}
	buffer_free(&text);
	return err;
}

static int group_print(const struct heap_graph *heap, const struct path_group *group, int json,
		       int first)
{
	char size[32], retained[32];
	struct path path;
	int err = path_read(heap->paths, group->example, &path);

	if (json)
		printf("%s{\"count\": %" PRIu64 ", \"size\": %" PRIu64
		       ", \"retained_size\": %" PRIu64 ", ",
		       first ? "" : ", ", group->count, group->bytes, group->retained);
	else
		printf("  %" PRIu64 " object%s, size=%s, retained=%s, for example\n", group->count,
		       group->count == 1 ? "" : "s", size_text(size, group->bytes),
		       size_text(retained, group->retained));
	if (!err && !json)
		err = expression_text(&path);
	err = err ?: path_fold(heap->paths, group->example, group->longest, &path);
	if (!err)
		(json ? steps_json : steps_text)(heap, &path);
	if (json)
		putchar('}');
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
	int err = chosen_find(heap, what, &chosen);

	if (!err)
		err = paths_group(heap->paths, heap->retained, is_chosen, &chosen, &groups, &count);
	chosen_free(&chosen);
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
	else
		heap_graph_foot(&choice->output.opts, heap);
	if (!json && choice->output.opts.brief && shown && choice->pid)
		printf("next: tracer heap show 0x%" PRIx64 " -p %d\n",
		       heap->graph->addresses[groups[0].example], (int)choice->pid);
	free(groups);
	return err ?: stream_flush(stdout);
}

/* References to the chosen objects by the type that holds them and the name of the reference. */
struct heap_why_holder {
	uint32_t type, example;
	enum reference_kind kind;
	uint64_t slot, count;
};

struct heap_why_holding {
	struct graph *graph;
	struct chosen chosen;
	struct heap_why_holder *holders;
	size_t count, capacity;
	struct id_map found;
	uint32_t source;
	int err;
};

/* Keys and indexes differ in each reference: they are one line. */
static uint64_t holder_slot(enum reference_kind kind, uint64_t slot)
{
	return kind == REFERENCE_WORD || kind == REFERENCE_FIELD || kind == REFERENCE_FRAME ||
			       kind == REFERENCE_ATTRIBUTE
		       ? slot
		       : 0;
}

static void holder_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct heap_why_holding *holding = context;
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
					     1, sizeof(struct heap_why_holder))
				       ?: id_map_put(&holding->found, key, at);
		if (holding->err)
			return;
		holding->holders[holding->count++] =
			(struct heap_why_holder){type, holding->source, kind, slot, 0};
	}
	holding->holders[at].count++;
}

static int holder_compare(const void *a, const void *b)
{
	const struct heap_why_holder *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->example < y->example ? -1 : x->example > y->example;
}

static int has_key(const struct heap_why_holder *holder)
{
	return holder->kind == REFERENCE_WORD || holder->kind == REFERENCE_FIELD ||
	       holder->kind == REFERENCE_FRAME || holder->kind == REFERENCE_ATTRIBUTE ||
	       holder->kind == REFERENCE_DICT || holder->kind == REFERENCE_TYPE;
}

static int holder_print(const struct graph *graph, const struct heap_why_holder *holder, int json,
			int first)
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
		fputs(first ? "{" : ", {", stdout);
		type_json(graph, &graph->types.entries[holder->type]);
		printf(", \"kind\": \"%s\", \"name\": ", kind);
		json_string(stdout, text);
		printf(", \"count\": %" PRIu64 ", \"address\": %" PRIu64 "}", holder->count,
		       graph->addresses[holder->example]);
	} else {
		printf("  %" PRIu64 " by ", holder->count);
		type_text(graph, &graph->types.entries[holder->type]);
		printf(", %s%s", kind, text[0] ? " " : "");
		text_print(stdout, text);
		printf(", for example at 0x%" PRIx64 "\n", graph->addresses[holder->example]);
	}
	buffer_free(&name);
	return 0;
}

static int holders_write(const struct heap_choice *choice, const struct heap_graph *heap,
			 const struct heap_why_holding *holding, const char *what)
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
	else
		heap_graph_foot(&choice->output.opts, heap);
	return err ?: stream_flush(stdout);
}

int heap_holders_print(const struct heap_choice *choice, const struct heap_graph *heap,
		       const char *what)
{
	struct heap_why_holding holding = {.graph = heap->graph};
	int err = chosen_find(heap, what, &holding.chosen);

	if (err) {
		chosen_free(&holding.chosen);
		return err;
	}
	graph_work_begin(heap->graph);
	for (size_t i = 0; i < heap->graph->count && !holding.err; i++) {
		holding.source = (uint32_t)i;
		graph_references(heap->graph, (uint32_t)i, holder_visit, &holding);
	}
	if (holding.count)
		qsort(holding.holders, holding.count, sizeof(struct heap_why_holder),
		      holder_compare);
	err = holding.err ?: holders_write(choice, heap, &holding, what);
	chosen_free(&holding.chosen);
	free(holding.holders);
	id_map_free(&holding.found);
	return err;
}
