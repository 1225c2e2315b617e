/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables lie in the order of `order`, in the map of rows and in that of pages, with gaps where
 * others were dropped. A new one is put into the first gap that both its parts fit into.
 */
#include "attach/unwind/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/id_map.h"

/* A file may have half of the rules: all files of a distribution have a few thousand. */
#define FILE_RULES_SHARE 2

struct extent {
	struct abi_unwind_key key;
	uint32_t row, row_count;
	uint32_t page, page_count;
	int in_use;
};

struct unwind_store {
	struct unwind_areas areas;
	void (*dropped)(void *context, const struct abi_unwind_key *key);
	void *context;
	struct extent *extents; /* by table number */
	uint32_t *order;        /* numbers of the tables in use */
	uint32_t count;
	struct id_map rules; /* the bits of a rule to its index */
	uint32_t rule_count;
	uint64_t dropped_count;
};

int unwind_store_new(struct unwind_store **out, const struct unwind_areas *areas,
		     void (*dropped)(void *context, const struct abi_unwind_key *key),
		     void *context)
{
	struct unwind_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->areas = *areas;
	store->dropped = dropped;
	store->context = context;
	store->rule_count = 1;
	store->extents = calloc(areas->table_count, sizeof(*store->extents));
	store->order = calloc(areas->table_count, sizeof(*store->order));
	if (!store->extents || !store->order) {
		unwind_store_free(store);
		return -ENOMEM;
	}
	*out = store;
	return 0;
}

void unwind_store_free(struct unwind_store *store)
{
	if (!store)
		return;
	id_map_free(&store->rules);
	free(store->extents);
	free(store->order);
	free(store);
}

static uint32_t version_of(const struct abi_unwind_table *table)
{
	return __atomic_load_n(&table->version, __ATOMIC_RELAXED);
}

/* An odd version: what a walk reads from now on does not count. */
static void table_close(struct abi_unwind_table *table)
{
	__atomic_store_n(&table->version, version_of(table) | 1, __ATOMIC_SEQ_CST);
}

static void table_open(struct abi_unwind_table *table)
{
	__atomic_store_n(&table->version, version_of(table) + 1, __ATOMIC_SEQ_CST);
}

/* Drops the table at this position of the order. */
static void table_drop(struct unwind_store *store, uint32_t at)
{
	uint32_t number = store->order[at];

	store->dropped(store->context, &store->extents[number].key);
	table_close(&store->areas.tables[number]);
	store->extents[number].in_use = 0;
	store->count--;
	memmove(store->order + at, store->order + at + 1,
		(store->count - at) * sizeof(*store->order));
	store->dropped_count++;
}

static void oldest_drop(struct unwind_store *store)
{
	const struct abi_unwind_table *tables = store->areas.tables;
	uint32_t oldest = 0;

	for (uint32_t i = 1; i < store->count; i++)
		if (tables[store->order[i]].used < tables[store->order[oldest]].used)
			oldest = i;
	table_drop(store, oldest);
}

/* Finds a gap for the extent's rows and pages. *at: its position in the order. 1, 0. */
static int gap_find(const struct unwind_store *store, struct extent *extent, uint32_t *at)
{
	uint32_t row = 0, page = 0;

	for (uint32_t i = 0; i <= store->count; i++) {
		const struct extent *next =
			i < store->count ? &store->extents[store->order[i]] : NULL;
		uint32_t row_end = next ? next->row : store->areas.row_count;
		uint32_t page_end = next ? next->page : store->areas.page_count;

		if (row_end - row >= extent->row_count && page_end - page >= extent->page_count) {
			extent->row = row;
			extent->page = page;
			*at = i;
			return 1;
		}
		if (next) {
			row = next->row + next->row_count;
			page = next->page + next->page_count;
		}
	}
	return 0;
}

static uint32_t number_free(const struct unwind_store *store)
{
	uint32_t number = 0;

	while (store->extents[number].in_use)
		number++;
	return number;
}

/* The index of a rule in the map of rules. 0; -ENOSPC: the map is full; -ENOMEM. */
static int rule_intern(struct unwind_store *store, const struct abi_unwind_rule *rule,
		       uint16_t *index)
{
	uint64_t bits;

	memcpy(&bits, rule, sizeof(bits));
	uint32_t known = bits ? id_map_find(&store->rules, bits) : 0;
	if (known == ID_MAP_NONE) {
		known = store->rule_count;
		if (known >= store->areas.rule_count)
			return -ENOSPC;
		int err = id_map_put(&store->rules, bits, known);
		if (err)
			return err;
		store->areas.rules[known] = *rule;
		store->rule_count++;
	}
	*index = (uint16_t)known;
	return 0;
}

static int rules_intern(struct unwind_store *store, const struct unwind_table *table,
			uint16_t *indexes)
{
	int err = 0;

	for (uint32_t i = 0; i < table->rule_count && !err; i++)
		err = rule_intern(store, &table->rules[i], &indexes[i]);
	return err;
}

/* Drops every table, and the rules with them: no walk depends on a rule's index any more. */
static void store_empty(struct unwind_store *store)
{
	while (store->count)
		table_drop(store, store->count - 1);
	id_map_free(&store->rules);
	store->rules = (struct id_map){0};
	store->rule_count = 1;
}

static void table_write(struct unwind_store *store, uint32_t number,
			const struct unwind_table *table, const uint16_t *indexes)
{
	const struct extent *extent = &store->extents[number];
	struct abi_unwind_table *out = &store->areas.tables[number];
	struct abi_unwind_row *rows = store->areas.rows + extent->row;
	uint32_t *pages = store->areas.pages + extent->page;

	table_close(out);
	for (uint32_t i = 0; i < table->row_count; i++)
		rows[i] = (struct abi_unwind_row){table->rows[i].low, indexes[table->rows[i].rule]};
	for (uint32_t i = 0; i <= table->page_count; i++)
		pages[i] = extent->row + table->pages[i];
	out->first_page = table->first_page;
	out->npages = table->page_count;
	out->pages = extent->page;
	table_open(out);
}

int unwind_store_put(struct unwind_store *store, const struct abi_unwind_key *key,
		     const struct unwind_table *table, uint32_t *number)
{
	struct extent extent = {.key = *key,
				.row_count = table->row_count,
				.page_count = table->page_count + 1,
				.in_use = 1};
	uint16_t *indexes;
	uint32_t at = 0;

	if (extent.row_count > store->areas.row_count ||
	    extent.page_count > store->areas.page_count ||
	    table->rule_count > store->areas.rule_count / FILE_RULES_SHARE)
		return -E2BIG;
	indexes = malloc(sizeof(*indexes) * (table->rule_count + 1ul));
	if (!indexes)
		return -ENOMEM;
	int err = rules_intern(store, table, indexes);
	if (err == -ENOSPC) {
		store_empty(store);
		err = rules_intern(store, table, indexes);
	}
	while (!err && (store->count == store->areas.table_count || !gap_find(store, &extent, &at)))
		oldest_drop(store);
	if (!err) {
		*number = number_free(store);
		store->extents[*number] = extent;
		memmove(store->order + at + 1, store->order + at,
			(store->count - at) * sizeof(*store->order));
		store->order[at] = *number;
		store->count++;
		table_write(store, *number, table, indexes);
	}
	free(indexes);
	return err == -ENOSPC ? -E2BIG : err;
}

void unwind_store_use(const struct unwind_store *store, struct unwind_store_use *out)
{
	*out = (struct unwind_store_use){.tables = store->count,
					 .rules = store->rule_count,
					 .dropped = store->dropped_count};
	for (uint32_t i = 0; i < store->count; i++) {
		out->rows += store->extents[store->order[i]].row_count;
		out->pages += store->extents[store->order[i]].page_count;
	}
}
