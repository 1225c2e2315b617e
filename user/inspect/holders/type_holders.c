/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/type_holders.h"

#include <errno.h>
#include <stdlib.h>

#include "util/error.h"

uint64_t type_holders_slot(enum reference_kind kind, uint64_t slot)
{
	return kind == REFERENCE_WORD || kind == REFERENCE_FIELD || kind == REFERENCE_FRAME ||
			       kind == REFERENCE_ATTRIBUTE
		       ? slot
		       : 0;
}

static bool is_same(const struct type_holder *a, const struct type_holder *b)
{
	return a->held == b->held && a->type == b->type && a->kind == b->kind && a->slot == b->slot;
}

int type_holders_add(struct type_holders *holders, const struct type_holder *holder)
{
	uint64_t key = hash_u64(((uint64_t)holder->held << 32 | holder->type) + 1) ^
		       hash_u64((holder->slot << 8 | holder->kind) + 1);
	uint32_t at = id_map_find(&holders->found, key);

	/* Another one has the same key. */
	while (at != ID_MAP_NONE && !is_same(&holders->items[at], holder))
		at = id_map_find(&holders->found, ++key);
	if (at != ID_MAP_NONE) {
		struct type_holder *item = &holders->items[at];

		item->count += holder->count;
		item->example = holder->example < item->example ? holder->example : item->example;
		return 0;
	}
	if (holders->count == TYPE_HOLDERS_MAX)
		return error_set(-E2BIG, "more than %u kinds of references", TYPE_HOLDERS_MAX);
	int err = id_map_append(&holders->found, key, &holders->items, &holders->capacity,
				holders->count, sizeof(*holders->items));
	if (!err)
		holders->items[holders->count++] = *holder;
	return err;
}

struct holders_reading {
	struct graph *graph;
	struct type_holders *holders;
	uint32_t source;
	int err;
};

static void reference_take(void *context, uint64_t target, enum reference_kind kind, uint64_t slot)
{
	struct holders_reading *reading = context;
	const struct graph *graph = reading->graph;
	uint32_t object = graph_find(graph, target);

	if (object == GRAPH_NONE || reading->err)
		return;
	const struct type_holder holder = {.held = graph->type_of[object],
					   .type = graph->type_of[reading->source],
					   .example = reading->source,
					   .kind = kind,
					   .slot = type_holders_slot(kind, slot),
					   .count = 1};

	reading->err = type_holders_add(reading->holders, &holder);
}

int type_holders_read(struct type_holders *out, struct graph *graph)
{
	struct holders_reading reading = {.graph = graph, .holders = out};
	int was_cut = graph->cut;

	*out = (struct type_holders){0};
	graph_work_begin(graph);
	for (uint32_t i = 0; i < graph->count && !reading.err; i++) {
		reading.source = i;
		graph_references(graph, i, reference_take, &reading);
	}
	if (!reading.err && graph->cut > was_cut)
		reading.err = -E2BIG;
	graph->cut = was_cut; /* of the graph nothing is missing */
	return reading.err;
}

void type_holders_free(struct type_holders *holders)
{
	free(holders->items);
	id_map_free(&holders->found);
	*holders = (struct type_holders){0};
}
