/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/heap/growth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_view.h"
#include "util/array.h"
#include "util/sorted.h"

#define ROWS_MAX 65536u
/* Rows that grew by less than that are not asked for the code that fills them. */
#define FILLED_BYTES 4096.0
#define LABEL_MAX    480u /* bytes; a longer path lacks its middle: a hostile heap has long ones */

/* A graph, and what of its objects another graph has, too. */
struct half {
	const struct heap_graph *heap, *other;
	uint8_t *is_known; /* by object */
	uint32_t *holder;  /* by object that is not known; GRAPH_NONE: not looked for yet */
	uint32_t *row;     /* by holder; GRAPH_NONE: not looked for yet */
};

static void half_free(struct half *half)
{
	free(half->is_known);
	free(half->holder);
	free(half->row);
}

/*
 * The same object in the other graph: of the same type, at the same address, held in the same way.
 * A block that was freed may be taken for another object of the type, which something else holds.
 */
static uint32_t same_object(const struct heap_graph *heap, uint32_t object,
			    const struct heap_graph *other)
{
	uint32_t found = graph_find(other->graph, heap->graph->addresses[object]);

	if (found == GRAPH_NONE ||
	    graph_type(other->graph, found)->address != graph_type(heap->graph, object)->address ||
	    other->paths->shape[found] != heap->paths->shape[object])
		return GRAPH_NONE;
	return found;
}

static int half_make(struct half *half, const struct heap_graph *heap,
		     const struct heap_graph *other)
{
	const struct graph *graph = heap->graph;

	*half = (struct half){.heap = heap,
			      .other = other,
			      .is_known = calloc(graph->count + 1, 1),
			      .holder = numbers_new(graph->count),
			      .row = numbers_new(graph->count)};
	if (!half->is_known || !half->holder || !half->row)
		return -ENOMEM;
	for (size_t i = 0; i < graph->count; i++)
		half->is_known[i] = same_object(heap, (uint32_t)i, other) != GRAPH_NONE;
	return 0;
}

static uint32_t holder_find(struct half *half, uint32_t object)
{
	const struct paths *paths = half->heap->paths;
	uint32_t at = object, next, found;

	/* Up to the last one that is not known, or whose holder is. */
	while (half->holder[at] == GRAPH_NONE && paths->parent[at] != GRAPH_NONE &&
	       !half->is_known[paths->parent[at]])
		at = paths->parent[at];
	if (half->holder[at] != GRAPH_NONE)
		found = half->holder[at];
	else if (paths->parent[at] == GRAPH_NONE || paths_is_named(paths, at))
		found = at;
	else
		found = paths->parent[at];
	for (; object != at; object = next) {
		next = paths->parent[object];
		half->holder[object] = found;
	}
	half->holder[at] = found;
	return found;
}

/* The byte at which the character that contains text[at] begins. */
static size_t character_start(const char *text, size_t at)
{
	while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	return at;
}

static int label_intern(struct growth *growth, const char *label, uint32_t *id)
{
	size_t bytes = strlen(label);
	char cut[LABEL_MAX + 8];

	if (bytes <= LABEL_MAX)
		return strings_intern(growth->names, label, bytes, id);
	size_t first = character_start(label, LABEL_MAX / 3);
	size_t rest = character_start(label, bytes - LABEL_MAX * 2 / 3 + 3);
	bytes = (size_t)snprintf(cut, sizeof(cut), "%.*s…%s", (int)first, label, label + rest);
	return strings_intern(growth->names, cut, bytes, id);
}

static int row_label(struct growth *growth, const struct heap_graph *heap, uint32_t holder,
		     struct growth_row *row)
{
	const struct graph *graph = heap->graph;
	char type[TYPES_FULL_NAME];
	struct buffer label = {0};
	int err = holder_label(heap, holder, &label);

	types_full_name(&graph->types, graph_type(graph, holder), type);
	err = err ?: label_intern(growth, (const char *)label.data, &row->label);
	buffer_free(&label);
	return err ?: path_shape_hash(heap->paths, holder, &row->merged)
		      ?: strings_intern(growth->names, type, strlen(type), &row->type);
}

/* The row of a holder. 0, -ENOMEM. */
static int row_find(struct growth *growth, struct half *half, uint32_t holder, uint32_t *out)
{
	uint64_t shape = half->heap->paths->shape[holder];
	int err;

	*out = half->row[holder];
	if (*out != GRAPH_NONE)
		return 0;
	*out = id_map_find(&growth->row_of, shape);
	if (*out == ID_MAP_NONE && growth->count == ROWS_MAX) {
		growth->cut = 1;
		*out = ROWS_MAX - 1;
	}
	if (*out == ID_MAP_NONE) {
		err = ARRAY_GROW(growth->rows, growth->capacity, growth->count);
		if (err)
			return err;
		*out = (uint32_t)growth->count;
		growth->rows[*out] = (struct growth_row){.shape = shape};
		err = id_map_put(&growth->row_of, shape, *out)
			      ?: row_label(growth, half->heap, holder, &growth->rows[*out]);
		if (err)
			return err;
		growth->count++;
	}
	half->row[holder] = *out;
	return 0;
}

/* The row of an object that is not known. 0, -ENOMEM. */
static int object_row(struct growth *growth, struct half *half, uint32_t object, uint32_t *out)
{
	return row_find(growth, half, holder_find(half, object), out);
}

static bool is_key(const struct paths *paths, uint32_t object)
{
	return paths->kind[object] == REFERENCE_KEY;
}

/* Adds what is only in this half; sign: 1: it came; -1: it is gone. 0, -ENOMEM. */
static int half_add(struct growth *growth, struct half *half, double sign)
{
	const struct graph *graph = half->heap->graph;
	const struct paths *paths = half->heap->paths;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t object = (uint32_t)i, row;

		if (half->is_known[i])
			continue;
		uint32_t holder = holder_find(half, object);
		err = row_find(growth, half, holder, &row);
		if (err)
			break;
		struct growth_sum *sum = &growth->rows[row].at[growth->moments];
		sum->bytes += sign * (double)graph_bytes(graph, object);
		if (paths->parent[i] == GRAPH_NONE && graph->root[i] == ROOT_INTERPRETER)
			sum->in_state += sign * (double)graph_bytes(graph, object);
		if (paths->parent[i] == holder && !paths_is_named(paths, object))
			*(is_key(paths, object) ? &sum->keys : &sum->values) += sign;
	}
	return err;
}

/* What was there before and has another size now: lists and dictionaries. */
static int sizes_add(struct growth *growth, struct half *half)
{
	const struct graph *graph = half->heap->graph;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t object = (uint32_t)i, row;

		if (!half->is_known[i])
			continue;
		uint32_t before = graph_find(half->other->graph, graph->addresses[i]);
		double more = (double)graph_bytes(graph, object) -
			      (double)graph_bytes(half->other->graph, before);
		if (more == 0)
			continue;
		err = row_find(growth, half, object, &row);
		if (!err)
			growth->rows[row].at[growth->moments].bytes += more;
	}
	return err;
}

/* What came by the second moment is remembered, and looked for at the last one. */
static int stay_note(struct growth *growth, struct half *half)
{
	const struct graph *graph = half->heap->graph;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t row;

		if (half->is_known[i])
			continue;
		err = object_row(growth, half, (uint32_t)i, &row)
			      ?: id_map_put(&growth->second, graph->addresses[i], row);
		if (!err)
			growth->rows[row].came += graph_bytes(graph, (uint32_t)i);
	}
	return err;
}

static int stay_count(struct growth *growth, struct half *half)
{
	const struct graph *graph = half->heap->graph;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t row, then = half->is_known[i]
					     ? ID_MAP_NONE
					     : id_map_find(&growth->second, graph->addresses[i]);

		if (then == ID_MAP_NONE)
			continue;
		err = object_row(growth, half, (uint32_t)i, &row);
		if (!err && row == then)
			growth->rows[row].stayed += graph_bytes(graph, (uint32_t)i);
	}
	return err;
}

/* --- the last moment ----------------------------------------------------------------------- */

/* Bytes of a type in a row. */
struct growth_part {
	uint32_t row, type;
	uint64_t count, bytes;
};

static int part_compare(const void *a, const void *b)
{
	const struct growth_part *x = a, *y = b;

	return CMP(x->row, y->row) ?: CMP(y->bytes, x->bytes);
}

static int type_name(struct growth *growth, const struct graph *graph, uint32_t type, uint32_t *id)
{
	char name[TYPES_FULL_NAME];

	types_full_name(&graph->types, &graph->types.entries[type], name);
	return strings_intern(growth->names, name, strlen(name), id);
}

static int parts_take(struct growth *growth, const struct graph *graph, struct growth_part *parts,
		      size_t count)
{
	size_t taken = 0;
	int err = 0;

	if (count)
		qsort(parts, count, sizeof(*parts), part_compare);
	for (size_t i = 0; i < count && !err; i++) {
		taken = i && parts[i].row == parts[i - 1].row ? taken + 1 : 0;
		if (taken >= GROWTH_TYPES)
			continue;
		struct growth_type *type = &growth->rows[parts[i].row].types[taken];
		type->count = parts[i].count;
		type->bytes = parts[i].bytes;
		err = type_name(growth, graph, parts[i].type, &type->name);
	}
	return err;
}

/* A weak reference to something that lives: it goes with that. */
static bool is_weak(const struct graph *graph, uint32_t object)
{
	if (graph_type(graph, object)->layout != LAYOUT_WEAKREF)
		return 0;
	uint64_t address =
		image_u64(graph->image,
			  graph->addresses[object] + graph->image->offsets.objects.weakref_object);
	uint32_t target = address ? graph_find(graph, address) : GRAPH_NONE;
	return target != GRAPH_NONE && strcmp(graph_type(graph, target)->name, "NoneType") != 0;
}

static int types_tell(struct growth *growth, struct half *half)
{
	const struct graph *graph = half->heap->graph;
	struct id_map found = {0};
	struct growth_part *parts = NULL;
	size_t count = 0, capacity = 0;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint32_t row;

		if (half->is_known[i])
			continue;
		err = object_row(growth, half, (uint32_t)i, &row);
		uint64_t key = (uint64_t)row << 32 | graph->type_of[i];
		uint32_t at = id_map_find(&found, key);
		if (!err && at == ID_MAP_NONE) {
			at = (uint32_t)count;
			err = id_map_append(&found, key, &parts, &capacity, count, sizeof(*parts));
			if (!err)
				parts[count++] =
					(struct growth_part){.row = row, .type = graph->type_of[i]};
		}
		if (err)
			break;
		parts[at].count++;
		parts[at].bytes += graph_bytes(graph, (uint32_t)i);
		growth->rows[row].all += graph_bytes(graph, (uint32_t)i);
		if (is_weak(graph, (uint32_t)i))
			growth->rows[row].weak += graph_bytes(graph, (uint32_t)i);
	}
	err = err ?: parts_take(growth, graph, parts, count);
	id_map_free(&found);
	free(parts);
	return err;
}

/* All that the paths of objects lead through the holders of each row. */
static int retained_tell(struct growth *growth, struct half *half)
{
	const struct graph *graph = half->heap->graph;
	const struct paths *paths = half->heap->paths;
	uint64_t *below = calloc(graph->count + 1, sizeof(*below));
	uint32_t *order = malloc((graph->count + 1) * sizeof(*order)), *start, deepest = 0;

	for (size_t i = 0; i < graph->count; i++)
		if (paths->depth[i] > deepest)
			deepest = paths->depth[i];
	start = calloc((size_t)deepest + 2, sizeof(*start));
	if (!below || !order || !start) {
		free(below);
		free(order);
		free(start);
		return -ENOMEM;
	}
	for (size_t i = 0; i < graph->count; i++)
		start[paths->depth[i] + 1]++;
	for (uint32_t i = 0; i <= deepest; i++)
		start[i + 1] += start[i];
	for (size_t i = 0; i < graph->count; i++)
		order[start[paths->depth[i]]++] = (uint32_t)i;
	for (size_t i = graph->count; i-- > 0;) {
		uint32_t object = order[i];

		below[object] += graph_bytes(graph, object);
		if (paths->parent[object] != GRAPH_NONE)
			below[paths->parent[object]] += below[object];
	}
	for (size_t i = 0; i < graph->count; i++) {
		uint32_t row = id_map_find(&growth->row_of, paths->shape[i]);

		/* Of a linked list, whose nodes all have one shape, the first one counts. */
		if (row == ID_MAP_NONE || paths->folded[i] != i)
			continue;
		growth->rows[row].holders++;
		growth->rows[row].retained += below[i];
	}
	free(below);
	free(order);
	free(start);
	return 0;
}

/* The rows that grew most by now. How many; *order has their numbers. */
static size_t rows_choose(const struct growth *growth, uint32_t order[FILLERS_ROWS])
{
	size_t count = 0;

	for (size_t i = 0; i < growth->count; i++) {
		double bytes = growth->rows[i].at[growth->moments].bytes;
		size_t at = count;

		if (bytes < FILLED_BYTES)
			continue;
		while (at && growth->rows[order[at - 1]].at[growth->moments].bytes < bytes)
			at--;
		if (at == FILLERS_ROWS)
			continue;
		count += count < FILLERS_ROWS;
		memmove(order + at + 1, order + at, (count - 1 - at) * sizeof(*order));
		order[at] = (uint32_t)i;
	}
	return count;
}

/* Finds an object of each row, with the shortest path. Rows without one any more are left out. */
static size_t examples_find(const struct growth *growth, const struct paths *paths,
			    uint32_t order[FILLERS_ROWS], size_t count, struct filler_row *rows)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		rows[i] = (struct filler_row){growth->rows[order[i]].shape, GRAPH_NONE};
	for (size_t i = 0; i < paths->graph->count; i++) {
		uint32_t row = id_map_find(&growth->row_of, paths->shape[i]);

		for (size_t k = 0; row != ID_MAP_NONE && k < count; k++)
			if (order[k] == row && (rows[k].example == GRAPH_NONE ||
						paths->depth[i] < paths->depth[rows[k].example]))
				rows[k].example = (uint32_t)i;
	}
	for (size_t i = 0; i < count; i++) {
		if (rows[i].example == GRAPH_NONE)
			continue;
		order[kept] = order[i];
		rows[kept++] = rows[i];
	}
	return kept;
}

/* Many containers with a bound each may still be more and more. */
static int bounds_tell(struct growth *growth, const struct paths *paths, const uint32_t *order,
		       const struct filler_row *rows, size_t count)
{
	int got = 0;

	for (size_t i = 0; i < count && got >= 0; i++) {
		struct growth_row *row = &growth->rows[order[i]];

		if (row->holders != 1)
			continue;
		got = bound_find(paths, rows[i].example, &row->bound);
		if (got <= 0)
			row->bound = (struct bound){0};
	}
	return got < 0 ? got : 0;
}

static int fillers_tell(struct growth *growth, const struct half *half)
{
	const struct paths *paths = half->heap->paths;
	struct filler_row rows[FILLERS_ROWS];
	uint32_t order[FILLERS_ROWS];
	size_t count = rows_choose(growth, order), found_count;
	struct filler *found;

	count = examples_find(growth, paths, order, count, rows);
	int err = bounds_tell(growth, paths, order, rows, count)
			  ?: fillers_find(paths, rows, count, growth->names, &found, &found_count);
	if (err)
		return err;
	for (size_t i = 0; i < found_count; i++) {
		struct growth_row *row = &growth->rows[order[found[i].row]];

		if (row->filler_count < GROWTH_FILLERS)
			row->fillers[row->filler_count] = found[i];
		row->filler_count++;
	}
	free(found);
	return 0;
}

/* --- the interface -------------------------------------------------------------------------- */

static double graph_size(const struct graph *graph)
{
	double bytes = 0;

	for (size_t i = 0; i < graph->count; i++)
		bytes += (double)graph_bytes(graph, (uint32_t)i);
	return bytes;
}

int growth_begin(struct growth *growth)
{
	growth->moments = 1;
	growth->bytes[0] = graph_size(growth->first.graph);
	return strings_new(&growth->names);
}

int growth_add(struct growth *growth, const struct heap_graph *heap, int last)
{
	struct half now, before = {0};
	int err = growth->moments == GROWTH_MOMENTS ? -ENOSPC : 0;

	if (err)
		return err;
	err = half_make(&now, heap, &growth->first)
		      ?: half_make(&before, &growth->first, heap)
		      ?: half_add(growth, &now, 1)
		      ?: half_add(growth, &before, -1)
		      ?: sizes_add(growth, &now);
	if (!err && growth->moments == 1)
		err = stay_note(growth, &now);
	if (!err && last) {
		err = stay_count(growth, &now) ?: types_tell(growth, &now)
						       ?: retained_tell(growth, &now)
						       ?: fillers_tell(growth, &now);
	}
	half_free(&now);
	half_free(&before);
	if (err)
		return err;
	growth->bytes[growth->moments++] = graph_size(heap->graph);
	return 0;
}

void growth_free(struct growth *growth)
{
	heap_graph_close(&growth->first);
	strings_free(growth->names);
	id_map_free(&growth->row_of);
	id_map_free(&growth->second);
	free(growth->rows);
	memset(growth, 0, sizeof(*growth));
}

/* --- growth types ----------------------------------------------------------------------------- */

/* What grows in a heap that is too large to be copied: its types alone. */

#define TYPE_ROWS_MAX 16384u
#define NO_OBJECT     1u /* stands for a type's address */

/* The row of a type; a new one grew from nothing. 0, -ENOMEM; -ENOSPC: there are too many. */
static int row_of_type(struct growth *growth, uint64_t address, const char *name,
		       struct growth_row **out)
{
	uint32_t at = id_map_find(&growth->row_of, address);
	char label[TYPES_FULL_NAME + 16];

	if (at != ID_MAP_NONE) {
		*out = &growth->rows[at];
		return 0;
	}
	if (growth->count == TYPE_ROWS_MAX) {
		growth->cut = 1;
		return -ENOSPC;
	}
	int err = id_map_append(&growth->row_of, address, &growth->rows, &growth->capacity,
				growth->count, sizeof(*growth->rows));
	if (err)
		return err;
	*out = &growth->rows[growth->count++];
	**out = (struct growth_row){.shape = address};
	snprintf(label, sizeof(label), "%s%s", address == NO_OBJECT ? "" : "objects of ", name);
	err = strings_intern(growth->names, label, strlen(label), &(*out)->label);
	for (const char *at = label; *at; at++)
		(*out)->merged = hash_u64((*out)->merged ^ (uint8_t)*at);
	return err ?: strings_intern(growth->names, name, strlen(name), &(*out)->type);
}

static int sum_add(struct growth *growth, uint64_t address, const char *name,
		   const struct heap_sum *sum)
{
	struct growth_row *row;
	int err = row_of_type(growth, address, name, &row);

	if (err)
		return err == -ENOSPC ? 0 : err;
	if (!growth->moments)
		row->first = (struct growth_sum){.bytes = (double)sum->bytes,
						 .keys = (double)sum->blocks};
	row->at[growth->moments] =
		(struct growth_sum){.bytes = (double)sum->bytes - row->first.bytes,
				    .keys = (double)sum->blocks - row->first.keys};
	row->holders = sum->blocks;
	row->retained = sum->bytes;
	return 0;
}

int growth_add_types(struct growth *growth, const struct heap_types *types)
{
	if (growth->moments == GROWTH_MOMENTS)
		return -ENOSPC;
	int err = growth->names ? 0 : strings_new(&growth->names);
	for (size_t i = 0; i < growth->count; i++) { /* those that are gone */
		struct growth_row *row = &growth->rows[i];

		row->at[growth->moments] =
			(struct growth_sum){.bytes = -row->first.bytes, .keys = -row->first.keys};
		row->holders = row->retained = 0;
	}
	for (size_t i = 0; i < types->count && !err; i++)
		err = sum_add(growth, types->types[i].address, heap_type_name(&types->types[i]),
			      &types->types[i].sum);
	if (!err)
		err = sum_add(growth, NO_OBJECT, "keys of dicts, items of lists, buffers",
			      &types->others);
	if (!err)
		growth->bytes[growth->moments++] = (double)types->walk.bytes;
	return err;
}
