/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/waste/cycles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

enum cycles_held { HELD_UNKNOWN, HELD_ELSE, HELD_GARBAGE, HELD_FROZEN, HELD_KEPT };

struct gathering {
	const struct paths *paths;
	const struct retained *retained;
	const struct graph *graph;
	struct cycles *out;
	uint32_t *part;    /* by object */
	uint32_t *entry;   /* by part; GRAPH_NONE: it is no cycle */
	uint32_t *members; /* objects by part; those of part i begin at start[i] */
	uint32_t *start, parts;
	uint32_t *out_start, *out_edges, next; /* edges by object; where the next is stored */
	uint8_t *is_self;                      /* by object: refers to itself */
	uint8_t *held;                         /* by object: enum cycles_held */
	uint32_t *types;                       /* of the current cycle */
	uint8_t *has_type;                     /* by type: whether it is among these */
	struct id_map found;                   /* by the types, in out->entries */
};

/* The references of one object. */
struct following {
	struct gathering *gathering;
	uint32_t source;
	int fills; /* 0: edges are counted, 1: they are stored */
};

/*
 * What a program defines holds itself: a function refers to its module's variables, and an object
 * to its type, whose methods do. These references would make one cycle of almost everything.
 */
static bool is_of_program(const struct graph *graph, uint32_t source, enum reference_kind kind,
			  uint64_t slot)
{
	return kind == REFERENCE_TYPE || (slot == graph->image->offsets.objects.function_globals &&
					  (kind == REFERENCE_WORD || kind == REFERENCE_FIELD) &&
					  !strcmp(graph_type(graph, source)->name, "function"));
}

static void edge_visit(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	const struct following *following = context;
	struct gathering *gathering = following->gathering;
	const struct graph *graph = gathering->graph;
	uint32_t object = graph_find(graph, target);

	if (!graph_counts(graph, following->source, target, kind) ||
	    is_of_program(graph, following->source, kind, slot))
		return;
	if (object == following->source)
		gathering->is_self[object] = 1;
	else if (!following->fills)
		gathering->out_start[following->source + 1]++;
	else if (gathering->next < gathering->out_start[following->source + 1])
		gathering->out_edges[gathering->next++] = object;
}

/* Both passes see the same, unless the work has run out: the rest are then edges to object 0. */
static void edges_pass(struct gathering *gathering, int fills)
{
	struct graph *graph = gathering->paths->graph;
	struct following following = {.gathering = gathering, .fills = fills};

	graph_work_begin(graph);
	for (size_t i = 0; i < graph->count; i++) {
		following.source = (uint32_t)i;
		gathering->next = gathering->out_start[i];
		graph_references(graph, (uint32_t)i, edge_visit, &following);
	}
}

static int edges_find(struct gathering *gathering)
{
	size_t count = gathering->graph->count;

	edges_pass(gathering, 0);
	for (size_t i = 0; i < count; i++)
		gathering->out_start[i + 1] += gathering->out_start[i];
	gathering->out_edges = calloc((size_t)gathering->out_start[count] + 1, sizeof(uint32_t));
	if (!gathering->out_edges)
		return -ENOMEM;
	edges_pass(gathering, 1);
	return 0;
}

static void members_sort(struct gathering *gathering)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < gathering->graph->count; i++)
		gathering->start[gathering->part[i] + 1]++;
	for (size_t i = 0; i <= gathering->parts; i++) {
		sum += gathering->start[i];
		gathering->start[i] = sum;
	}
	for (size_t i = gathering->graph->count; i-- > 0;)
		gathering->members[--gathering->start[gathering->part[i] + 1]] = (uint32_t)i;
	/* Each start has moved to the beginning of the part before. */
	for (size_t i = 0; i < gathering->parts; i++)
		gathering->start[i] = gathering->start[i + 1];
	gathering->start[gathering->parts] = (uint32_t)gathering->graph->count;
}

/* What the path to an object leads through; an object of gc.garbage has one from that list. */
static enum cycles_held held_by(struct gathering *gathering, uint32_t object)
{
	const struct paths *paths = gathering->paths;
	const struct graph *graph = gathering->graph;
	uint8_t *known = gathering->held;
	enum cycles_held found = HELD_UNKNOWN;
	uint32_t at = object;

	while (known[at] == HELD_UNKNOWN && found == HELD_UNKNOWN) {
		if (graph->root[at] == ROOT_GARBAGE)
			found = HELD_GARBAGE;
		else if (graph->root[at] == ROOT_FROZEN)
			found = HELD_FROZEN;
		else if (paths->parent[at] == GRAPH_NONE)
			found = HELD_ELSE;
		else if (graph->kept[at] == KEPT_LISTED &&
			 graph_is_kept_list(graph, paths->parent[at]))
			found = HELD_KEPT;
		else
			at = paths->parent[at];
	}
	found = known[at] == HELD_UNKNOWN ? found : known[at];
	for (; object != at; object = paths->parent[object])
		known[object] = (uint8_t)found;
	known[at] = (uint8_t)found;
	return found;
}

static int number_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return CMP(x, y);
}

static int entry_find(struct gathering *gathering, uint32_t type_count, struct cycle **entry)
{
	struct cycles *out = gathering->out;
	uint64_t key = type_count;

	for (uint32_t i = 0; i < type_count; i++)
		key = hash_u64(key ^ hash_u64(gathering->types[i] + 1ull));
	uint32_t at = id_map_find(&gathering->found, key);
	if (at == ID_MAP_NONE) {
		at = (uint32_t)out->count;
		int err = ARRAY_GROW(out->entries, out->capacity, out->count)
			  ?: array_reserve(&out->types, &out->types_capacity, out->types_used,
					   type_count, sizeof(*out->types))
			  ?: id_map_put(&gathering->found, key, at);
		if (err)
			return err;
		memcpy(out->types + out->types_used, gathering->types,
		       type_count * sizeof(*out->types));
		out->entries[out->count++] = (struct cycle){.first_type = (uint32_t)out->types_used,
							    .type_count = type_count};
		out->types_used += type_count;
	}
	*entry = &out->entries[at];
	return 0;
}

static void sums_add(struct cycle *to, const struct cycle *one)
{
	to->cycles += one->cycles;
	to->count += one->count;
	to->bytes += one->bytes;
	to->finalized += one->finalized;
	to->garbage += one->garbage;
	to->frozen += one->frozen;
	to->kept += one->kept;
	if (one->largest <= to->largest)
		return;
	to->largest = one->largest;
	to->example = one->example;
}

static int cycle_add(struct gathering *gathering, const uint32_t *members, uint32_t count)
{
	enum cycles_held held = held_by(gathering, members[0]);
	const struct graph *graph = gathering->graph;
	struct cycle one = {.cycles = 1,
			    .count = count,
			    .largest = count,
			    .example = members[0],
			    .garbage = held == HELD_GARBAGE,
			    .frozen = held == HELD_FROZEN,
			    .kept = held == HELD_KEPT};
	struct cycle *entry;
	uint32_t type_count = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t type = graph->type_of[members[i]];

		one.bytes += graph_bytes(graph, members[i]);
		one.finalized += graph_type(graph, members[i])->finalize != 0;
		if (!gathering->has_type[type])
			gathering->types[type_count++] = type;
		gathering->has_type[type] = 1;
	}
	for (uint32_t i = 0; i < type_count; i++)
		gathering->has_type[gathering->types[i]] = 0;
	qsort(gathering->types, type_count, sizeof(*gathering->types), number_compare);
	int err = entry_find(gathering, type_count, &entry);
	if (err)
		return err;
	gathering->entry[gathering->part[members[0]]] = (uint32_t)(entry - gathering->out->entries);
	sums_add(entry, &one);
	sums_add(&gathering->out->total, &one);
	return 0;
}

/* Whether a cycle of the same entry retains the object. */
static bool is_inside(const struct gathering *gathering, uint32_t object, uint32_t entry)
{
	uint32_t at = gathering->retained->idom[object];

	for (unsigned int i = 0; i < PATHS_MAX_STEPS && at < gathering->graph->count; i++) {
		if (gathering->entry[gathering->part[at]] == entry)
			return 1;
		at = gathering->retained->idom[at];
	}
	return 0;
}

/* What is freed with the cycles, and what all garbage is. */
static void retained_sum(struct gathering *gathering)
{
	struct cycles *out = gathering->out;

	for (uint32_t i = 0; i < gathering->graph->count; i++) {
		uint32_t number = gathering->entry[gathering->part[i]];
		enum cycles_held held = held_by(gathering, i);
		uint64_t bytes = graph_bytes(gathering->graph, i);

		out->garbage_bytes += held == HELD_GARBAGE ? bytes : 0;
		out->frozen_bytes += held == HELD_FROZEN ? bytes : 0;
		out->kept_bytes += held == HELD_KEPT ? bytes : 0;
		if (number == GRAPH_NONE || is_inside(gathering, i, number))
			continue;
		bytes = gathering->retained->bytes[i];
		out->entries[number].retained += bytes;
		if (held == HELD_GARBAGE || held == HELD_FROZEN)
			out->entries[number].garbage_retained += bytes;
	}
}

static int cycle_compare(const void *a, const void *b)
{
	const struct cycle *x = a, *y = b;

	return CMP(y->garbage_retained, x->garbage_retained)
		?: CMP(y->retained, x->retained)
		?: CMP(x->example, y->example);
}

static int gather(struct gathering *gathering)
{
	const struct graph *graph = gathering->graph;
	int err = edges_find(gathering);

	err = err
		      ?: components_find(gathering->out_start, gathering->out_edges,
					 (uint32_t)graph->count, gathering->part,
					 &gathering->parts);
	if (err)
		return err;
	members_sort(gathering);
	memset(gathering->entry, 0xff, gathering->parts * sizeof(uint32_t));
	for (uint32_t i = 0; i < gathering->parts && !err; i++) {
		const uint32_t *members = gathering->members + gathering->start[i];
		uint32_t count = gathering->start[i + 1] - gathering->start[i];

		if (count > 1 || gathering->is_self[members[0]])
			err = cycle_add(gathering, members, count);
	}
	if (!err)
		retained_sum(gathering);
	if (!err && gathering->out->count)
		qsort(gathering->out->entries, gathering->out->count,
		      sizeof(*gathering->out->entries), cycle_compare);
	return err;
}

int cycles_find(struct cycles *out, const struct paths *paths, const struct retained *retained)
{
	size_t count = paths->graph->count, types = paths->graph->types.count;
	struct gathering gathering = {.paths = paths,
				      .retained = retained,
				      .graph = paths->graph,
				      .out = out,
				      .part = malloc((count + 1) * sizeof(uint32_t)),
				      .members = malloc((count + 1) * sizeof(uint32_t)),
				      .entry = malloc((count + 1) * sizeof(uint32_t)),
				      .start = calloc(count + 2, sizeof(uint32_t)),
				      .out_start = calloc(count + 2, sizeof(uint32_t)),
				      .is_self = calloc(count + 1, 1),
				      .held = calloc(count + 1, 1),
				      .types = malloc((types + 1) * sizeof(uint32_t)),
				      .has_type = calloc(types + 1, 1)};
	int err = -ENOMEM;

	*out = (struct cycles){0};
	if (gathering.part && gathering.members && gathering.start && gathering.out_start &&
	    gathering.is_self && gathering.held && gathering.entry && gathering.types &&
	    gathering.has_type)
		err = gather(&gathering);
	free(gathering.part);
	free(gathering.members);
	free(gathering.start);
	free(gathering.out_start);
	free(gathering.out_edges);
	free(gathering.is_self);
	free(gathering.held);
	free(gathering.entry);
	free(gathering.types);
	free(gathering.has_type);
	id_map_free(&gathering.found);
	return err;
}

void cycles_free(struct cycles *cycles)
{
	free(cycles->entries);
	free(cycles->types);
	*cycles = (struct cycles){0};
}
