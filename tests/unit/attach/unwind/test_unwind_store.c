/* SPDX-License-Identifier: Apache-2.0 */
/* The store of unwind tables, read back as the kernel's walk reads it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attach/unwind/store.h"

#define ROWS   64
#define PAGES  16
#define RULES  16
#define TABLES 4

struct place {
	struct abi_unwind_row rows[ROWS];
	uint32_t pages[PAGES];
	struct abi_unwind_rule rules[RULES];
	struct abi_unwind_table tables[TABLES];
	struct unwind_store *store;
	struct abi_unwind_key dropped[16];
	int dropped_count;
};

static void note_dropped(void *context, const struct abi_unwind_key *key)
{
	struct place *place = context;

	assert_true(place->dropped_count < 16);
	place->dropped[place->dropped_count++] = *key;
}

static int setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));
	struct unwind_areas areas = {place->rows, place->pages, place->rules, place->tables,
				     ROWS,        PAGES,        RULES,        TABLES};

	*state = place;
	return unwind_store_new(&place->store, &areas, note_dropped, place);
}

static int teardown(void **state)
{
	struct place *place = *state;

	unwind_store_free(place->store);
	free(place);
	return 0;
}

/*
 * A table of one page with this many rows, 16 bytes apart; row i has rule 1 + i % rule_count, whose
 * cfa is 8 * (salt + i % rule_count).
 */
static int put(struct place *place, uint64_t inode, uint32_t row_count, uint32_t rule_count,
	       int salt, uint32_t *number)
{
	struct abi_unwind_row rows[ROWS];
	struct abi_unwind_rule rules[RULES + 8] = {{0}};
	const uint32_t pages[] = {0, row_count};
	const struct unwind_table table = {.first_page = 3,
					   .page_count = 1,
					   .row_count = row_count,
					   .rule_count = rule_count + 1,
					   .pages = pages,
					   .rows = rows,
					   .rules = rules};
	const struct abi_unwind_key key = {.inode = inode};

	for (uint32_t i = 0; i < rule_count; i++)
		rules[1 + i] = (struct abi_unwind_rule){.kind = ABI_UNWIND_RSP,
							.cfa = 8 * (salt + (int)i)};
	for (uint32_t i = 0; i < row_count && i < ROWS; i++)
		rows[i] =
			(struct abi_unwind_row){(uint16_t)(16 * i), (uint16_t)(1 + i % rule_count)};
	return unwind_store_put(place->store, &key, &table, number);
}

/* Is the table as put() made it, and open? */
static void expect_table(const struct place *place, uint32_t number, uint32_t row_count,
			 uint32_t rule_count, int salt)
{
	const struct abi_unwind_table *table = &place->tables[number];
	uint32_t first = place->pages[table->pages];

	assert_int_equal(table->version & 1, 0);
	assert_int_equal(table->first_page, 3);
	assert_int_equal(table->npages, 1);
	assert_int_equal(place->pages[table->pages + 1] - first, row_count);
	for (uint32_t i = 0; i < row_count; i++) {
		assert_int_equal(place->rows[first + i].low, 16 * i);
		assert_int_equal(place->rules[place->rows[first + i].rule].cfa,
				 8 * (salt + (int)(i % rule_count)));
	}
}

static void test_tables(void **state)
{
	struct place *place = *state;
	struct unwind_store_use use;
	uint32_t a, b;

	assert_int_equal(put(place, 1, 20, 4, 1, &a), 0);
	assert_int_equal(put(place, 2, 30, 4, 3, &b), 0);
	assert_int_not_equal(a, b);
	expect_table(place, a, 20, 4, 1);
	expect_table(place, b, 30, 4, 3);
	unwind_store_use(place->store, &use);
	assert_int_equal(use.tables, 2);
	assert_int_equal(use.rows, 50);
	assert_int_equal(use.pages, 4);
	/* {0}, and 8, 16, … 48: two are common. */
	assert_int_equal(use.rules, 7);
	assert_int_equal(use.dropped, 0);
}

/* The table that was used least recently gives way, and a walk that reads it notices. */
static void test_oldest_gives_way(void **state)
{
	struct place *place = *state;
	uint32_t a, b, c, version;

	assert_int_equal(put(place, 1, 30, 4, 1, &a), 0);
	assert_int_equal(put(place, 2, 30, 4, 1, &b), 0);
	place->tables[a].used = 20;
	place->tables[b].used = 10;
	version = place->tables[b].version;
	assert_int_equal(put(place, 3, 30, 4, 1, &c), 0);
	assert_int_equal(place->dropped_count, 1);
	assert_int_equal(place->dropped[0].inode, 2);
	assert_int_equal(c, b);
	assert_int_not_equal(place->tables[c].version, version);
	expect_table(place, a, 30, 4, 1);
	expect_table(place, c, 30, 4, 1);
}

/* Gaps are used again; one that is too small is not. */
static void test_gaps(void **state)
{
	struct place *place = *state;
	uint32_t numbers[4];

	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(put(place, i, 20, 4, (int)i, &numbers[i]), 0);
		place->tables[numbers[i]].used = i;
	}
	/* 4 rows are left at the end; the oldest table makes room for 20 more. */
	assert_int_equal(put(place, 10, 18, 4, 7, &numbers[3]), 0);
	assert_int_equal(place->dropped_count, 1);
	expect_table(place, numbers[1], 20, 4, 1);
	expect_table(place, numbers[2], 20, 4, 2);
	expect_table(place, numbers[3], 18, 4, 7);
	assert_int_equal(put(place, 11, ROWS, 4, 9, &numbers[0]), 0);
	assert_int_equal(place->dropped_count, 4);
	expect_table(place, numbers[0], ROWS, 4, 9);
}

static void test_table_numbers(void **state)
{
	struct place *place = *state;
	uint32_t number;

	for (uint32_t i = 0; i < 3 * TABLES; i++) {
		assert_int_equal(put(place, i, 2, 2, 1, &number), 0);
		assert_true(number < TABLES);
		expect_table(place, number, 2, 2, 1);
	}
	assert_int_equal(place->dropped_count, 2 * TABLES);
}

static void test_too_large(void **state)
{
	struct place *place = *state;
	uint32_t number;

	assert_int_equal(put(place, 1, 10, 4, 1, &number), 0);
	assert_int_equal(put(place, 2, ROWS + 1, 4, 1, &number), -E2BIG);
	assert_int_equal(put(place, 3, 10, RULES / 2, 1, &number), -E2BIG);
	assert_int_equal(place->dropped_count, 0);
}

/* When the rules are used up, every table is dropped with them. */
static void test_rules_are_full(void **state)
{
	struct place *place = *state;
	uint32_t number;

	for (int i = 0; i < 3; i++)
		assert_int_equal(put(place, (uint64_t)i, 10, 7, 100 * i + 1, &number), 0);
	assert_int_equal(place->dropped_count, 2);
	expect_table(place, number, 10, 7, 201);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tables, setup, teardown),
		cmocka_unit_test_setup_teardown(test_oldest_gives_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gaps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rules_are_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
