/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a heap that its program could do without: texts that exist several times, and tables of
 * containers that are larger than their entries need. Pure.
 */
#pragma once

#include "inspect/holders/paths.h"

enum waste_kind {
	WASTE_DUPLICATE, /* of a str or bytes with the same contents */
	WASTE_EMPTY,     /* a table of a dict, list or set that has no entries */
	WASTE_SPARE,     /* a table with room for more entries than it has */
	WASTE_KINDS
};

/* Texts of the same contents; or containers whose paths have the same shape. */
struct waste {
	enum waste_kind kind;
	uint32_t type;    /* number of the type; all objects have it */
	uint32_t example; /* the object that wastes most; of duplicates, the largest */
	uint64_t count;   /* objects */
	/*
	 * bytes: those that one text would save in place of all, without the largest; of a table,
	 * those that the smallest one with these entries would not have.
	 */
	uint64_t bytes, worst; /* worst: the example's */
};

struct waste_list {
	struct waste *entries; /* most bytes first */
	size_t count, capacity;
};

/* 0, -ENOMEM. The caller frees with waste_free(), also after a failure. */
int waste_find(struct waste_list *out, const struct paths *paths);
void waste_free(struct waste_list *list);
/* "duplicate", "empty" or "spare" */
const char *waste_kind_name(enum waste_kind kind);

/*
 * The bytes of the object's table, 0 without one, that its entries do not need; *entries of them.
 */
uint64_t waste_spare(const struct graph *graph, uint32_t object, uint64_t *entries);
