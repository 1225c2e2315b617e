/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind tables that the kernel's walk reads: where each file's rows, pages and rules are in
 * the memory of BPF maps (abi/unwind.h). That memory is all there is: a table that does not fit
 * takes the place of those that were not looked up for the longest time. Equal rules of all files
 * are stored once.
 *
 * A walk may read while a table is replaced: the table's version tells it. Pure.
 */
#pragma once

#include <stdint.h>

#include "abi/unwind.h"
#include "object/unwind/unwind_table.h"

/* The maps' memory, all zero, and the number of entries in each. Borrowed by the store. */
struct unwind_areas {
	struct abi_unwind_row *rows;
	uint32_t *pages;
	struct abi_unwind_rule *rules;
	struct abi_unwind_table *tables;
	uint32_t row_count, page_count, rule_count, table_count;
};

struct unwind_store_use {
	uint32_t tables, rows, pages, rules; /* in use */
	uint64_t dropped;                    /* tables that had to give way */
};

struct unwind_store;

/* dropped: called before the memory of a file's table is used for another one. 0, -ENOMEM. */
int unwind_store_new(struct unwind_store **out, const struct unwind_areas *areas,
		     void (*dropped)(void *context, const struct abi_unwind_key *key),
		     void *context);
void unwind_store_free(struct unwind_store *store); /* NULL is legal */
/*
 * Copies a file's table into the maps. *number is its index in areas.tables. 0; -E2BIG: it does not
 * fit even alone; -ENOMEM.
 */
int unwind_store_put(struct unwind_store *store, const struct abi_unwind_key *key,
		     const struct unwind_table *table, uint32_t *number);
void unwind_store_use(const struct unwind_store *store, struct unwind_store_use *out);
