/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of tracer heap's groups, and how what they are about is named. */
#pragma once

#include "cmd/heap/heap_choice.h"

struct chosen;

struct row {
	uint64_t key; /* a type's number; an object; a size; by line: see view_by_line() */
	uint64_t bytes, count, retained_bytes, retained_count, exact;
	/* by line: what most of its bytes are reached through, and how many; GRAPH_NONE: nothing */
	uint32_t holder;
	uint64_t held_bytes;
	/* with view.ages: in ms, of objects whose block was seen; 0: none was. And the others. */
	uint32_t oldest, median;
	uint64_t before;
};

/* The ages of a heap's objects, where some are wanted. */
struct heap_ages {
	struct ages wanted;
	uint32_t *ages; /* by object (snapshot/ages.h); NULL: all are wanted */
	uint64_t before, before_bytes, unknown, unknown_bytes; /* of all objects */
};

struct view {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	struct row *rows;
	size_t count, shown, capacity;
	uint32_t *row_of; /* by line, with ages: the row's key of each object; NULL */
	struct heap_ages ages;
	struct chosen *only; /* the objects that rows are made of; NULL: all */
};

/* What of choice->ages is wanted, and the age of each object. 0, -ENOMEM, -EINVAL (error_set). */
int heap_ages_read(struct heap_ages *out, const struct heap_choice *choice,
		   const struct heap_graph *heap);
void heap_ages_free(struct heap_ages *ages);
bool heap_ages_want(const struct heap_ages *ages, const struct heap_graph *heap, uint32_t object);
/* The ages of the rows, by view->row_of. 0, -ENOMEM. */
int heap_ages_rows(struct view *view);
/* ", oldest=…", or cells of a table; what the ages are of. */
void heap_ages_row(const struct row *row, int tables);
void heap_ages_row_json(struct json *json, const struct row *row);
void heap_ages_print(const struct view *view);
void heap_ages_json(struct json *json, const struct view *view);

/*
 * Where an object's path begins: its module, or its root without one. start: by object, GRAPH_NONE:
 * not known yet.
 */
uint32_t path_start(const struct paths *paths, uint32_t *start, uint32_t object);
/* A number for each object, GRAPH_NONE in each; the caller frees. NULL: no memory. */
uint32_t *numbers_new(size_t count);
/*
 * The module's variable, the module or the root that an object's path leads through; of roots of
 * one kind and name the first one. holders: by object, GRAPH_NONE: not known yet.
 */
uint32_t path_holder(const struct paths *paths, uint32_t *holders, uint32_t object);
/* The same of what path_holder() returns: of a root its kind and name. */
int holder_label(const struct heap_graph *heap, uint32_t holder, struct buffer *out);
/* They print these: the member key, or for people if json is NULL. */
void path_name(const struct heap_graph *heap, uint32_t object, struct json *json, const char *key);
void holder_name(const struct heap_graph *heap, uint32_t holder, struct json *json,
		 const char *key);

/* A type with its module. JSON: "type": "User", "type_name": "shop.Session.User" */
void type_text(const struct graph *graph, const struct type *type);
void type_json(struct json *json, const struct graph *graph, const struct type *type);
