/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "abi/events.h"
#include "trace/blocks/chunk_table.h"

#define HEAP 0x55550000010ull

static uint64_t at(unsigned int i)
{
	return HEAP + i * 0x100ull;
}

/* Shows chunks [from, to), each of 16 units. */
static void show(struct chunk_table *table, unsigned int from, unsigned int to, uint32_t cohort)
{
	struct chunk *chunk;

	for (unsigned int i = from; i < to; i++) {
		assert_int_equal(chunk_table_show(table, at(i), 16, &chunk), 0);
		if (!chunk->cohort)
			chunk->cohort = cohort;
	}
}

static void walk(struct chunk_table *table, unsigned int from, unsigned int to, uint32_t cohort)
{
	chunk_table_begin(table, 0);
	show(table, from, to, cohort);
	chunk_table_end(table);
}

/* A block keeps its cohort while walks show it with the same size. */
static void test_cohorts(void **state)
{
	struct chunk_table table = {0};
	struct chunk *chunk;
	(void)state;

	assert_false(table.known);
	walk(&table, 0, 10, 1);
	assert_true(table.known);
	walk(&table, 5, 15, 2);
	assert_int_equal(table.count, 10);
	assert_null(chunk_table_find(&table, at(4)));
	assert_int_equal(chunk_table_cohort(&table, at(5)), 1);
	assert_int_equal(chunk_table_cohort(&table, at(14)), 2);
	assert_int_equal(chunk_table_cohort(&table, at(14) + 16), 0);
	chunk_table_another(&table, at(7));
	chunk_table_another(&table, at(100));
	chunk_table_begin(&table, 0);
	assert_int_equal(chunk_table_show(&table, at(5), 18, &chunk), 0);
	assert_int_equal(chunk->cohort, 0);
	assert_int_equal(chunk_table_show(&table, at(7), 16, &chunk), 0);
	assert_int_equal(chunk->cohort, 0);
	assert_int_equal(chunk_table_show(&table, at(8), 16, &chunk), 0);
	assert_int_equal(chunk->cohort, 1);
	chunk_table_end(&table);
	assert_int_equal(table.count, 3);
	chunk_table_free(&table);
	assert_false(table.known);
}

/* What could not be read stays; a walk that is given up changes nothing. */
static void test_unread(void **state)
{
	struct chunk_table table = {0};
	struct chunk *chunk;
	(void)state;

	walk(&table, 0, 10, 1);
	chunk_table_begin(&table, 0);
	show(&table, 0, 3, 2);
	assert_int_equal(chunk_table_unread(&table, at(3), 3 * 16), 0);
	show(&table, 8, 9, 2);
	chunk_table_end(&table);
	assert_int_equal(table.count, 7);
	assert_int_equal(chunk_table_cohort(&table, at(5)), 1);
	assert_null(chunk_table_find(&table, at(6)));
	assert_true(chunk_table_is_unread(&table, at(4)));
	assert_true(chunk_table_is_unread(&table, at(6) - 16));
	assert_false(chunk_table_is_unread(&table, at(6)));
	assert_false(chunk_table_is_unread(&table, at(2)));
	chunk_table_begin(&table, 0);
	show(&table, 0, 1, 3);
	chunk_table_abandon(&table);
	assert_int_equal(table.count, 7);
	assert_int_equal(chunk_table_show(&table, at(9), 16, &chunk), -EBADMSG);
	chunk_table_free(&table);
}

/* Out of order, beyond the address space. */
static void test_hostile(void **state)
{
	struct chunk_table table = {0};
	struct chunk *chunk;
	(void)state;

	chunk_table_begin(&table, 0);
	assert_int_equal(chunk_table_show(&table, at(2), 16, &chunk), 0);
	assert_int_equal(chunk_table_show(&table, at(2), 16, &chunk), -EBADMSG);
	assert_int_equal(chunk_table_show(&table, at(1), 16, &chunk), -EBADMSG);
	assert_int_equal(chunk_table_show(&table, 0, 16, &chunk), -EBADMSG);
	assert_int_equal(chunk_table_unread(&table, UINT64_MAX - 15, UINT32_MAX), -EBADMSG);
	chunk_table_free(&table);
}

static void test_copy(void **state)
{
	struct chunk_table table = {0}, copy = {0}, none = {0};
	struct kind_counts counts = {0};
	static const uint8_t map[256] = {[1] = 4};
	(void)state;

	assert_int_equal(chunk_table_copy(&copy, &none), 0);
	walk(&table, 0, 100, 1);
	assert_int_equal(chunk_table_copy(&copy, &table), 0);
	chunk_table_renumber(&copy, map);
	assert_int_equal(chunk_table_cohort(&copy, at(99)), 4);
	assert_int_equal(chunk_table_count(&copy, &counts), 0);
	assert_int_equal(counts.count, 1);
	assert_int_equal(counts.items[0].live, 100);
	assert_int_equal(counts.items[0].cohort, 4);
	assert_int_equal(counts.items[0].kind, chunk_kind(16));
	assert_int_equal(chunk_kind_bytes(counts.items[0].kind, 0), 16 * 16 - 8);
	kind_counts_free(&counts);
	chunk_table_free(&table);
	chunk_table_free(&copy);
}

/* The chunk that glibc takes for a request; kinds to a quarter. */
static void test_sizes(void **state)
{
	(void)state;

	assert_int_equal(chunk_units(0), 2);
	assert_int_equal(chunk_units(24), 2);
	assert_int_equal(chunk_units(25), 3);
	assert_int_equal(chunk_units(40), 3);
	assert_int_equal(chunk_units(UINT64_MAX), UINT32_MAX);
	assert_int_not_equal(chunk_kind(14), chunk_kind(15));
	assert_int_equal(chunk_kind(1024), chunk_kind(1024 + 255));
	assert_int_not_equal(chunk_kind(1024), chunk_kind(1024 + 256));
	assert_int_equal(chunk_class(1024), chunk_class(2047));
	assert_int_not_equal(chunk_class(1024), chunk_class(2048));
	assert_true(chunk_class(UINT32_MAX) < 1u << 24);
	assert_true(chunk_kind(UINT32_MAX) > EVENT_KIND_FIRST);
}

/* A request belongs to the least class that walks have shown and that it fits into. */
static void test_classes(void **state)
{
	static const uint32_t sizes[] = {81, 2, 65, 3, 81};
	struct chunk_table table = {0}, copy = {0};
	struct chunk *chunk;
	(void)state;

	assert_int_equal(chunk_table_units(&table, 1100), chunk_units(1100));
	chunk_table_begin(&table, 1);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(chunk_table_show(&table, at(i), sizes[i], &chunk), 0);
	chunk_table_end(&table);
	assert_int_equal(table.class_count, 4);
	assert_int_equal(chunk_table_copy(&copy, &table), 0);
	assert_int_equal(chunk_table_units(&copy, 1100), 81);
	assert_int_equal(chunk_table_units(&copy, 1024), 65);
	assert_int_equal(chunk_table_units(&copy, 1), 2);
	assert_int_equal(chunk_table_units(&copy, 1289), 82); /* no class has been shown */
	/* Classes may be twice as large; a chunk is not. */
	assert_true(chunk_fits(2 * chunk_units(1 << 20), 1 << 20, 1));
	assert_false(chunk_fits(2 * chunk_units(1 << 20), 1 << 20, 0));
	assert_false(chunk_fits(chunk_units(100) - 1, 100, 1));
	assert_false(chunk_fits(1 << 30, 100, 1));
	assert_int_equal(chunk_kind_bytes(chunk_kind(3), 1), 32);
	chunk_table_begin(&table, 0);
	chunk_table_free(&table);
	chunk_table_free(&copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cohorts), cmocka_unit_test(test_unread),
		cmocka_unit_test(test_classes), cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_copy),    cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
