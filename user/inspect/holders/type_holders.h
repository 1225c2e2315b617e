/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What refers to the objects of a type: references by the type of the object that holds them and by
 * their name. Keys and indexes differ in each reference: they have no name.
 */
#pragma once

#include "inspect/graph/graph.h"

/* A hostile heap has no more of them than memory. */
#define TYPE_HOLDERS_MAX (1u << 20)

struct type_holder {
	uint32_t held, type; /* of what is held, and of what holds it: index in graph->types */
	uint32_t example;    /* the first object that holds one */
	enum reference_kind kind;
	uint64_t slot; /* 0: the kind has no name */
	uint64_t count;
};

/* Zero-initialise. */
struct type_holders {
	struct type_holder *items;
	size_t count, capacity;
	struct id_map found;
};

/*
 * Adds holder->count references, those of one kind together. 0; -ENOMEM; -E2BIG: there are
 * TYPE_HOLDERS_MAX.
 */
int type_holders_add(struct type_holders *holders, const struct type_holder *holder);
/* The slot of such a reference, if it names it; else 0. */
uint64_t type_holders_slot(enum reference_kind kind, uint64_t slot);
/*
 * Those of all types, in one pass over all references. 0; -E2BIG: there are more than
 * TYPE_HOLDERS_MAX, or than the graph's work; -ENOMEM. The caller frees, also after a failure.
 */
int type_holders_read(struct type_holders *out, struct graph *graph);
void type_holders_free(struct type_holders *holders);
