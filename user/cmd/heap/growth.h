/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What grows in a process's heap, by what holds it, from its graphs at several moments: exact, and
 * without a probe.
 *
 * An object that was not there at the first moment belongs to the nearest object on its path that
 * was: the list, dictionary or set that it was put into. If a name leads to it from there (an
 * attribute, a variable), that name is the holder: what replaces its value again and again stays
 * one row. What is gone belongs to the nearest object on its path that is still there. So a cache
 * that replaces its entries grows by 0. Holders whose paths have the same shape are one row. Pure.
 */
#pragma once

#include "cmd/heap/heap_choice.h"
#include "inspect/holders/bounds.h"
#include "inspect/holders/fillers.h"
#include "runtime/heap/heap_types.h"
#include "util/id_map.h"
#include "util/strings.h"

#define GROWTH_MOMENTS 32u
#define GROWTH_TYPES   3u
#define GROWTH_FILLERS 3u

struct growth_type {
	uint32_t name; /* in growth.names */
	uint64_t count, bytes;
};

/* Since the first moment. */
struct growth_sum {
	double bytes;
	double keys, values; /* entries: of a dictionary the keys count if its values are shared */
	double in_state;     /* bytes of objects that the interpreter's state itself refers to */
};

struct growth_row {
	uint64_t shape;
	uint32_t label, type; /* in growth.names: the holder's path, and its type */
	uint64_t merged;      /* what rows of other processes have, too: path_shape_hash() */
	struct growth_sum at[GROWTH_MOMENTS];
	struct growth_sum first; /* of types: what there was at the first moment */
	/* bytes that came by the second moment, and those of them that are there at the end */
	uint64_t came, stayed;
	uint64_t weak, all;         /* bytes that came: of weak references to what lives, of all */
	uint64_t holders, retained; /* at the last moment: their number, and all that they hold */
	struct growth_type types[GROWTH_TYPES]; /* what came, the most bytes first */
	/* the code that can fill it, of the rows that grew most; names: in growth.names */
	struct filler fillers[GROWTH_FILLERS];
	size_t filler_count; /* of all; those that are not here follow in likelihood */
	struct bound bound; /* of these rows, if they are one container; most is 0: none is known */
};

struct growth {
	struct heap_graph first; /* opened by the caller, with its paths; owned */
	struct strings *names;
	struct growth_row *rows;
	size_t count, capacity;
	struct id_map row_of; /* by shape */
	size_t moments;
	struct id_map second;         /* address of what came by the second moment: its row */
	double bytes[GROWTH_MOMENTS]; /* of all objects */
	int cut;                      /* 1: there were too many rows: the last one has the rest */
};

/* growth is zeroed but for its first graph, which stays where it is. 0, -ENOMEM. */
int growth_begin(struct growth *growth);
/*
 * Adds a later graph of the same process, with its paths, which is still the caller's. last: it is
 * the last one: what there is of each row is told. 0; -ENOSPC: GROWTH_MOMENTS; -ENOMEM.
 */
int growth_add(struct growth *growth, const struct heap_graph *heap, int last);
/*
 * The same of a heap that is not copied, of which growth has no first graph: its types at each
 * moment, the first one included; the rows are types. 0, -ENOSPC, -ENOMEM.
 */
int growth_add_types(struct growth *growth, const struct heap_types *types);
void growth_free(struct growth *growth);
