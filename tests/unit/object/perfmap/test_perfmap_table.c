/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/perfmap_table.h"
#include "util/hash.h"

#define SPACE 2000 /* addresses of the property test */

static struct perfmap_table *table_make(void)
{
	struct perfmap_table *table;

	assert_int_equal(perfmap_table_new(&table), 0);
	return table;
}

static int add(struct perfmap_table *table, uint64_t start, uint64_t size, const char *name)
{
	struct perfmap_entry entry = {.time_ns = 1};

	return perfmap_table_add(table, start, size, name, strlen(name), &entry);
}

static const char *name_at(struct perfmap_table *table, uint64_t address)
{
	const struct perfmap_entry *entry = perfmap_table_find(table, address);

	return entry ? perfmap_table_name(table, entry) : NULL;
}

static void test_newest_wins(void **state)
{
	struct perfmap_table *table = table_make();
	(void)state;

	assert_null(perfmap_table_find(table, 0));
	assert_int_equal(add(table, 100, 50, "old"), 0);
	assert_int_equal(add(table, 110, 10, "middle"), 0); /* splits old in two */
	assert_int_equal(perfmap_table_count(table), 3);
	assert_string_equal(name_at(table, 109), "old");
	assert_string_equal(name_at(table, 110), "middle");
	assert_string_equal(name_at(table, 119), "middle");
	assert_string_equal(name_at(table, 120), "old");
	assert_null(name_at(table, 150));
	assert_null(name_at(table, 99));
	assert_int_equal(add(table, 90, 1000, "all"), 0);
	assert_int_equal(perfmap_table_count(table), 1);
	assert_string_equal(name_at(table, 149), "all");
	perfmap_table_free(table);
	perfmap_table_free(NULL);
}

static void test_refused(void **state)
{
	struct perfmap_table *table = table_make();
	(void)state;

	assert_int_equal(add(table, 100, 0, "nothing"), -EINVAL);
	assert_int_equal(add(table, UINT64_MAX - 1, 3, "wraps"), -EINVAL);
	assert_int_equal(perfmap_table_count(table), 0);
	assert_int_equal(add(table, UINT64_MAX - 3, 3, "last"), 0);
	assert_int_equal(add(table, 0, 1, "first"), 0);
	assert_string_equal(name_at(table, UINT64_MAX - 1), "last");
	assert_string_equal(name_at(table, 0), "first");
	perfmap_table_free(table);
}

static void test_version(void **state)
{
	struct perfmap_table *table = table_make();
	uint64_t version;
	(void)state;

	add(table, 100, 50, "f");
	version = perfmap_table_version(table);
	assert_int_equal(add(table, 100, 50, "f"), 0);
	assert_int_equal(perfmap_table_version(table), version); /* added again */
	assert_int_equal(add(table, 100, 50, "g"), 0);
	assert_int_not_equal(perfmap_table_version(table), version);
	version = perfmap_table_version(table);
	perfmap_table_clear(table);
	assert_int_not_equal(perfmap_table_version(table), version);
	assert_null(name_at(table, 100));
	perfmap_table_free(table);
}

static void test_expire(void **state)
{
	struct perfmap_range both[] = {{100, 200}, {300, 400}}, *second = both + 1;
	struct perfmap_entry entry = {.time_ns = 10, .mapped = 1},
			     late = {.time_ns = 30, .mapped = 1};
	struct perfmap_table *table = table_make();
	(void)state;

	add(table, 100, 10, "a");
	add(table, 195, 10, "edge"); /* half of it is mapped */
	add(table, 300, 10, "b");
	add(table, 500, 10, "nowhere");
	assert_int_equal(perfmap_table_expire(table, both, 2, 20, 0), 0);
	assert_int_equal(perfmap_table_add(table, 120, 10, "late", 4, &late), 0);
	assert_int_equal(perfmap_table_add(table, 140, 10, "seen mapped", 11, &entry), 0);
	assert_int_equal(perfmap_table_expire(table, second, 1, 25, 0), 3);
	assert_null(name_at(table, 100));
	assert_null(name_at(table, 195));
	assert_null(name_at(table, 140));
	assert_string_equal(name_at(table, 120), "late");
	assert_string_equal(name_at(table, 300), "b");
	assert_string_equal(name_at(table, 500), "nowhere"); /* no memory was seen there */
	/* Later: with what is mapped there by then, unless it was added again. */
	add(table, 310, 10, "c");
	assert_int_equal(perfmap_table_expire(table, second, 1, 40, 1), 0);
	assert_int_equal(perfmap_table_expire(table, both, 1, 40, 1), 1); /* "late" is mapped */
	assert_string_equal(name_at(table, 300), "b");
	add(table, 310, 10, "c");
	assert_int_equal(perfmap_table_expire(table, both, 2, 50, 1), 1);
	assert_null(name_at(table, 300));
	assert_string_equal(name_at(table, 310), "c");
	perfmap_table_free(table);
}

static void test_origin(void **state)
{
	struct perfmap_entry image = {.time_ns = 7, .origin = 3};
	struct perfmap_table *table = table_make(), *child = table_make();
	(void)state;

	add(table, 100, 10, "map");
	assert_int_equal(perfmap_table_add(table, 200, 10, "jit", 3, &image), 0);
	assert_int_equal(add(table, 205, 1, "inside"), 0);
	assert_int_equal(perfmap_table_copy(child, table), 0);
	assert_int_equal(perfmap_table_count(child), 4);
	assert_int_equal(perfmap_table_find(child, 200)->time_ns, 7);
	assert_int_equal(perfmap_table_remove(child, 3), 2);
	assert_string_equal(name_at(child, 205), "inside");
	assert_null(name_at(child, 204));
	assert_string_equal(name_at(table, 204), "jit"); /* the parent's table is unchanged */
	perfmap_table_free(child);
	perfmap_table_free(table);
}

static void table_check(struct perfmap_table *table, const uint32_t *names, const uint64_t *times)
{
	const struct perfmap_entry *entry;
	uint64_t end = 0;
	size_t cursor = 0, count = 0;
	char expected[16];

	while ((entry = perfmap_table_next(table, &cursor))) {
		assert_true(entry->start >= end && entry->end > entry->start);
		end = entry->end;
		count++;
	}
	assert_int_equal(count, perfmap_table_count(table));
	for (uint64_t address = 0; address < SPACE; address++) {
		entry = perfmap_table_find(table, address);
		assert_int_equal(entry != NULL, names[address] != 0);
		if (!entry)
			continue;
		snprintf(expected, sizeof(expected), "f%u", names[address]);
		assert_string_equal(perfmap_table_name(table, entry), expected);
		assert_int_equal(entry->time_ns, times[address]);
	}
}

/* Compared with an array that holds the last entry added at each address. */
static void test_property(void **state)
{
	static uint32_t names[SPACE];
	static uint64_t times[SPACE];
	struct perfmap_table *table = table_make();
	uint64_t random = 7;
	(void)state;

	for (uint32_t step = 1; step <= 60000; step++) {
		char name[16];
		uint64_t start, size;
		struct perfmap_entry entry = {.time_ns = step};

		random = hash_u64(random + step);
		start = random % SPACE;
		size = 1 + (random >> 32) % (step % 1000 == 0 ? SPACE : 6);
		if (start + size > SPACE)
			size = SPACE - start;
		snprintf(name, sizeof(name), "f%u", step);
		assert_int_equal(perfmap_table_add(table, start, size, name, strlen(name), &entry),
				 0);
		for (uint64_t i = start; i < start + size; i++) {
			names[i] = step;
			times[i] = step;
		}
		if (step % 500 == 0)
			table_check(table, names, times);
	}
	perfmap_table_free(table);
}

/* Names of removed entries do not accumulate. */
static void test_names_collected(void **state)
{
	struct perfmap_table *table = table_make();
	char name[64];
	(void)state;

	for (int i = 0; i < 1000000; i++) {
		snprintf(name, sizeof(name), "a name that is not short, number %d", i);
		assert_int_equal(add(table, 4096 + i % 100 * 16, 16, name), 0);
	}
	assert_int_equal(perfmap_table_count(table), 100);
	assert_true(perfmap_table_memory(table) < 10u << 20);
	assert_string_equal(name_at(table, 4096 + 99 * 16), name);
	perfmap_table_free(table);
}

static void memory_check(int ascending)
{
	enum { COUNT = 1000000 };
	struct perfmap_table *table = table_make();
	size_t text = 0;
	char name[64];

	for (uint64_t i = 0; i < COUNT; i++) {
		uint64_t slot = ascending ? i : i * 15485863 % COUNT; /* a permutation */

		text += snprintf(name, sizeof(name), "py::function_%llu:/srv/app.py",
				 (unsigned long long)i) +
			1;
		assert_int_equal(add(table, 0x7f0000000000 + slot * 64, 48, name), 0);
	}
	assert_int_equal(perfmap_table_count(table), COUNT);
	assert_true(perfmap_table_memory(table) - text <= 100ull * COUNT);
	assert_non_null(name_at(table, 0x7f0000000000 + 47));
	assert_null(name_at(table, 0x7f0000000000 + 48));
	perfmap_table_free(table);
}

static void test_memory(void **state)
{
	(void)state;
	memory_check(1);
	memory_check(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newest_wins),     cmocka_unit_test(test_refused),
		cmocka_unit_test(test_version),         cmocka_unit_test(test_expire),
		cmocka_unit_test(test_origin),          cmocka_unit_test(test_property),
		cmocka_unit_test(test_names_collected), cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
