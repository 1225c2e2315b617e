/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of tracer heap's groups: what heap_view.c and heap_lines.c have in common. */
#ifndef TRACER_CMD_HEAP_HEAP_VIEW_H
#define TRACER_CMD_HEAP_HEAP_VIEW_H

#include "cmd/heap/heap_choice.h"

struct row {
	uint64_t key; /* a type's number; an object; a size; by line: heap_lines.c */
	uint64_t bytes, count, retained_bytes, retained_count, exact;
	/* by line: what most of its bytes are reached through, and how many; GRAPH_NONE: nothing */
	uint32_t holder;
	uint64_t held_bytes;
};

struct view {
	const struct heap_choice *choice;
	const struct heap_graph *heap;
	struct row *rows;
	size_t count, shown, capacity;
	uint32_t *row_of; /* by line: the row's key of each object; NULL */
};

/* Zeroes count rows. 0, -ENOMEM. */
int view_reserve(struct view *view, size_t count);
void row_add(struct row *row, const struct graph *graph, uint32_t object);
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
/* The path to an object: path_write(), NUL-terminated. 0, -ENOMEM. */
int path_label(const struct heap_graph *heap, uint32_t object, struct buffer *out);
/* The same of what path_holder() returns: of a root its kind and name. */
int holder_label(const struct heap_graph *heap, uint32_t holder, struct buffer *out);
/* They print these: the member key, or for people if json is NULL. */
void path_name(const struct heap_graph *heap, uint32_t object, struct json *json, const char *key);
void holder_name(const struct heap_graph *heap, uint32_t holder, struct json *json,
		 const char *key);

/* A type with its module. JSON: "type": "User", "type_name": "shop.Session.User" */
void type_text(const struct graph *graph, const struct type *type);
void type_json(struct json *json, const struct graph *graph, const struct type *type);

/* Rows by the line that allocated the objects, and of older objects by module. 0, -ENOMEM. */
int view_by_line(struct view *view);
/* What the objects of the rows that are shown are reached through. 0, -ENOMEM. */
int view_holders(struct view *view);
void line_text(const struct view *view, const struct row *row);
/* "line": …, "module": …, "holder": …, "holder_size": … */
void line_json(struct json *json, const struct view *view, const struct row *row);

#endif
