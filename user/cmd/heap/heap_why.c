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
#include "util/cleanup.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/text.h"

/* The function of a frame or generator on a path. */
static void function_print(const struct graph *graph, uint32_t object, struct json *json)
{
	struct buffer name = {0};

	if (frame_function(graph, object, &name) > 0 && !buffer_append(&name, "", 1)) {
		if (json) {
			json_text(json, "function", (const char *)name.data);
		} else {
			fputs(" of ", stdout);
			text_print(stdout, (const char *)name.data);
		}
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
		function_print(graph, step->object, NULL);
		puts(step->guess ? " (a guess)" : "");
	}
	if (path->cut)
		puts("    (the path is longer: its beginning is left out)");
}

static void steps_json(struct json *json, const struct heap_graph *heap, const struct path *path)
{
	const struct graph *graph = heap->graph;

	json_open(json, "steps", '[');
	for (size_t i = 0; i < path->count; i++) {
		const struct step *step = &path->steps[i];

		json_open(json, NULL, '{');
		json_text(json, "kind", step->kind);
		json_text(json, "name", (const char *)path->names.data + step->name);
		type_json(json, graph, graph_type(graph, step->object));
		json_unsigned(json, "address", graph->addresses[step->object]);
		function_print(graph, step->object, json);
		if (step->most > 1)
			json_numbers(json, {"repeated", step->least},
				     {"repeated_most", step->most});
		if (step->guess)
			json_bool(json, "guess", 1);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_bool(json, "cut", path->cut);
	if (path->is_python)
		json_text(json, "expression", (const char *)path->text.data);
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

static int group_print(const struct heap_graph *heap, const struct path_group *group,
		       struct json *json)
{
	struct path path;
	int err = path_read(heap->paths, group->example, &path);

	if (json) {
		json_open(json, NULL, '{');
		json_numbers(json, {"count", group->count}, {"size", group->bytes},
			     {"retained_size", group->retained});
	} else {
		printf("  %" PRIu64 " object%s, size=%s, retained=%s, for example\n", group->count,
		       group->count == 1 ? "" : "s", SIZE_TEXT(group->bytes),
		       SIZE_TEXT(group->retained));
	}
	if (!err && !json)
		err = expression_text(&path);
	err = err ?: path_fold(heap->paths, group->example, group->longest, &path);
	if (!err && json)
		steps_json(json, heap, &path);
	else if (!err)
		steps_text(heap, &path);
	if (json)
		json_close(json, '}');
	path_free(&path);
	return err;
}

/* As paths_group(). One object is a group of its own: the others need not be looked at. */
static int groups_find(const struct heap_graph *heap, struct chosen *chosen,
		       struct path_group **groups, size_t *count)
{
	uint32_t object = chosen->object;

	if (chosen->types)
		return paths_group(heap->paths, heap->retained, is_chosen, chosen, groups, count);
	*groups = malloc(sizeof(**groups));
	if (!*groups)
		return -ENOMEM;
	**groups = (struct path_group){.shape = heap->paths->shape[object],
				       .example = object,
				       .longest = object,
				       .count = 1,
				       .bytes = graph_bytes(heap->graph, object),
				       .retained = heap->retained->bytes[object]};
	*count = 1;
	return 0;
}

int heap_why_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct json *json = choice->json;
	size_t count = 0;
	struct path_group *groups = NULL;
	struct chosen chosen;
	int err = chosen_find(heap, choice->what, &chosen)
			  ?: groups_find(heap, &chosen, &groups, &count);

	chosen_free(&chosen);
	if (err)
		return err;
	size_t shown = report_rows(&choice->output.opts, count);
	heap_answer_begin(choice, heap);
	if (json) {
		json_unsigned(json, "paths_total", count);
		json_open(json, "paths", '[');
	} else {
		fputs("Paths to ", stdout);
		text_print(stdout, choice->what);
		printf(", the shortest from a root to each object, by kind: %zu of %zu\n", shown,
		       count);
	}
	for (size_t i = 0; i < shown && !err; i++)
		err = group_print(heap, &groups[i], json);
	if (json)
		json_close(json, ']');
	int failed = heap_answer_end(choice, heap);
	if (!json && choice->output.opts.brief && shown && choice->pid)
		printf("next: tracer heap show 0x%" PRIx64 " -p %d\n",
		       heap->graph->addresses[groups[0].example], (int)choice->pid);
	free(groups);
	return err ?: failed ?: stream_flush(stdout);
}

struct why_holding {
	struct graph *graph;
	struct chosen chosen;
	struct type_holders holders;
	uint32_t source;
	int err;
};

static void holder_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct why_holding *holding = context;
	struct graph *graph = holding->graph;
	const struct type_holder holder = {.type = graph->type_of[holding->source],
					   .example = holding->source,
					   .kind = kind,
					   .slot = type_holders_slot(kind, slot),
					   .count = 1};

	if (!holding->err && is_chosen(&holding->chosen, graph_find(graph, target)))
		holding->err = type_holders_add(&holding->holders, &holder);
}

static int holder_compare(const void *a, const void *b)
{
	const struct type_holder *x = a, *y = b;

	return CMP(y->count, x->count)
	       ?: CMP(x->example, y->example) ?: CMP(x->kind, y->kind) ?: CMP(x->slot, y->slot);
}

static bool has_key(const struct type_holder *holder)
{
	return holder->kind == REFERENCE_WORD || holder->kind == REFERENCE_FIELD ||
	       holder->kind == REFERENCE_FRAME || holder->kind == REFERENCE_ATTRIBUTE ||
	       holder->kind == REFERENCE_DICT || holder->kind == REFERENCE_TYPE;
}

static int holder_print(const struct graph *graph, const struct type_holder *holder,
			struct json *json)
{
	const struct type *type = &graph->types.entries[holder->type];
	struct buffer name = {0};
	const char *kind;
	int err = reference_name(graph, holder->example, holder->kind, holder->slot, &kind, &name)
			  ?: buffer_append(&name, "", 1);

	if (err) {
		buffer_free(&name);
		return err;
	}
	const char *text = has_key(holder) ? (const char *)name.data : "";
	if (json) {
		json_open(json, NULL, '{');
		type_json(json, graph, type);
		json_text(json, "kind", kind);
		json_text(json, "name", text);
		json_numbers(json, {"count", holder->count},
			     {"address", graph->addresses[holder->example]});
		json_close(json, '}');
	} else {
		printf("  %" PRIu64 " by ", holder->count);
		type_text(graph, type);
		printf(", %s%s", kind, text[0] ? " " : "");
		text_print(stdout, text);
		printf(", for example at 0x%" PRIx64 "\n", graph->addresses[holder->example]);
	}
	buffer_free(&name);
	return 0;
}

static int holders_write(const struct heap_choice *choice, const struct heap_graph *heap,
			 const struct why_holding *holding)
{
	struct json *json = choice->json;
	size_t shown = report_rows(&choice->output.opts, holding->holders.count);
	int err = 0;

	heap_answer_begin(choice, heap);
	if (json) {
		json_unsigned(json, "holders_total", holding->holders.count);
		json_open(json, "holders", '[');
	} else {
		fputs("References to ", stdout);
		text_print(stdout, choice->what);
		printf(", by kind: %zu of %zu\n", shown, holding->holders.count);
	}
	for (size_t i = 0; i < shown && !err; i++)
		err = holder_print(heap->graph, &holding->holders.items[i], json);
	if (json)
		json_close(json, ']');
	return heap_answer_end(choice, heap) ?: err;
}

/* By object, 1: it may refer to a chosen one. The caller frees. NULL: no memory. */
static uint8_t *sources_new(const struct why_holding *holding)
{
	const struct graph *graph = holding->graph;
	uint8_t *sources = array_new(graph->count + 1, 1);

	/* Where edges are missing, all objects are looked at. */
	if (sources && graph->cut)
		memset(sources, 1, graph->count);
	for (size_t i = 0; sources && i < graph->beside_count; i++)
		sources[graph->beside[i]] = 1;
	for (uint32_t i = 0; sources && i < graph->count; i++)
		if (is_chosen((void *)&holding->chosen, i))
			for (uint32_t at = graph->in_start[i]; at < graph->in_start[i + 1]; at++)
				sources[graph->in[at]] = 1;
	return sources;
}

/* Looks at all that may refer to a chosen object. */
static void holders_find(struct why_holding *holding)
{
	struct graph *graph = holding->graph;
	_cleanup_free_ uint8_t *sources = sources_new(holding);

	if (!sources)
		holding->err = -ENOMEM;
	graph_work_begin(graph);
	for (uint32_t i = 0; i < graph->count && !holding->err; i++) {
		if (!sources[i])
			continue;
		holding->source = i;
		graph_references(graph, i, holder_visit, holding);
	}
}

/* Of what is known of all types, that of those that are meant. */
static void holders_choose(struct why_holding *holding, const struct type_holders *all)
{
	for (size_t i = 0; i < all->count && !holding->err; i++) {
		struct type_holder holder = all->items[i];

		if (!holding->chosen.types[holder.held])
			continue;
		holder.held = 0;
		holding->err = type_holders_add(&holding->holders, &holder);
	}
}

int heap_holders_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct why_holding holding = {.graph = heap->graph};

	holding.err = chosen_find(heap, choice->what, &holding.chosen);
	if (!holding.err && heap->holders.count && holding.chosen.types)
		holders_choose(&holding, &heap->holders);
	else if (!holding.err)
		holders_find(&holding);
	if (!holding.err && holding.holders.count)
		qsort(holding.holders.items, holding.holders.count, sizeof(struct type_holder),
		      holder_compare);
	if (!holding.err)
		holding.err = holders_write(choice, heap, &holding);
	chosen_free(&holding.chosen);
	type_holders_free(&holding.holders);
	return holding.err;
}
