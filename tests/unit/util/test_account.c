/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded memory: accounts, and the containers that are charged to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "budget_traces.h"
#include "object/perfmap/perfmap_table.h"
#include "object/symbols/cache.h"
#include "ranges.h"
#include "records.h"
#include "snapshot/builder.h"
#include "trace/blocks/regions.h"
#include "util/account.h"
#include "util/address_set.h"
#include "util/array.h"
#include "util/id_map.h"

static void test_charge(void **state)
{
	struct account whole = {.limit = 100}, part = {.parent = &whole, .limit = 60},
		       other = {.parent = &whole};
	(void)state;

	assert_int_equal(account_charge(NULL, SIZE_MAX), 0);
	assert_int_equal(account_charge(&part, 61), -EDQUOT);
	assert_int_equal(account_charge(&part, SIZE_MAX), -EDQUOT);
	assert_int_equal(account_charge(&part, 60), 0);
	assert_int_equal(account_charge(&other, 41), -EDQUOT);
	assert_int_equal(other.used, 0);
	assert_int_equal(account_charge(&other, 40), 0);
	assert_int_equal(whole.used, 100);
	assert_int_equal(account_resize(&part, 60, 61), -EDQUOT);
	assert_int_equal(account_resize(&part, 60, 10), 0);
	assert_int_equal(whole.used, 50);
	account_clear(&other);
	assert_int_equal(whole.used, 10);
	account_uncharge(&part, 10);
	assert_int_equal(whole.used, 0);
}

/* The first user takes most of the limit, but never all of it. */
static void test_share(void **state)
{
	struct account whole = {.limit = 1000}, first = {.parent = &whole, .share = 4},
		       second = {.parent = &whole, .share = 4};
	(void)state;

	while (!account_charge(&first, 1))
		;
	assert_uint_in_range(first.used, 795, 805);
	while (!account_charge(&second, 1))
		;
	assert_uint_in_range(second.used, 150, 170);
	assert_true(whole.used < 1000);
	/* What one account gives back is available to the other. */
	account_clear(&first);
	while (!account_charge(&second, 1))
		;
	assert_uint_in_range(second.used, 795, 805);
}

/*
 * The reserve for small accounts is not given to others. Small accounts may use all that is left.
 */
static void test_reserve(void **state)
{
	struct account whole = {.limit = 1000, .reserve = 200},
		       large = {.parent = &whole, .share = 4, .floor = 10}, small = large;
	(void)state;

	while (!account_charge(&large, 1))
		;
	assert_uint_in_range(large.used, 635, 645); /* 4/5 of 800 */
	assert_int_equal(account_charge(&small, 11), 0);
	account_clear(&small);
	whole.reserve = 1000;
	assert_int_equal(account_charge(&small, 11), -EDQUOT);
	assert_int_equal(account_charge(&small, 10), 0);
	assert_int_equal(account_charge(&small, 1), -EDQUOT);
	assert_int_equal(account_left(&whole), 1000 - large.used - 10);
	whole.limit = 5;
	assert_int_equal(account_left(&whole), 0);
}

static int filled_array(struct account *account)
{
	uint64_t *items = NULL;
	size_t capacity = 0, count = 0;
	int err;

	while (!(err = array_reserve_in(account, &items, &capacity, count, 1, sizeof(*items))))
		count++;
	assert_true(capacity * sizeof(*items) <= LIMIT);
	array_release(account, &items, &capacity, sizeof(*items));
	return err;
}

static int filled_map(struct account *account)
{
	struct id_map map = {.account = account}, copy = {.account = account};
	int err = 0;

	for (uint64_t i = 0; i < MANY && !err; i++)
		err = id_map_put(&map, i, (uint32_t)i);
	for (uint64_t i = 0; i < MANY; i += 2)
		id_map_remove(&map, i);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(id_map_find(&map, i), i % 2 ? i : ID_MAP_NONE);
	if (!id_map_copy(&copy, &map))
		assert_int_equal(id_map_find(&copy, 1), 1);
	id_map_free(&copy);
	id_map_free(&map);
	return err;
}

static int filled_strings(struct account *account)
{
	struct strings *strings, *copy;
	char text[16];
	uint32_t id;
	int err = strings_new_in(&strings, account);

	assert_int_equal(err, 0);
	for (unsigned int i = 0; i < MANY && !err; i++)
		err = strings_intern(strings, text,
				     (size_t)snprintf(text, sizeof(text), "text %u", i), &id);
	assert_int_equal(strings_find(strings, "text 0", &id), 1);
	assert_int_equal(strings_copy(&copy, strings, NULL), 0);
	assert_string_equal(strings_get(copy, id), "text 0");
	strings_free(copy);
	if (!strings_copy(&copy, strings, account))
		strings_free(copy);
	strings_free(strings);
	return err;
}

static int filled_set(struct account *account)
{
	struct address_set set = {.account = account}, copy = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = address_set_add(&set, i << 20);
	assert_true(address_set_has(&set, 1 << 20));
	assert_int_not_equal(address_set_copy(&copy, &set), 0);
	address_set_free(&copy);
	address_set_free(&set);
	return err;
}

static int filled_regions(struct account *account)
{
	struct regions regions = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = regions_set(&regions,
				  &(struct region){.start = i << 13, .end = (i << 13) + 4096});
	assert_non_null(regions_find(&regions, 1 << 13));
	regions_free(&regions);
	return err;
}

static int filled_blocks(struct account *account)
{
	struct blocks *blocks, *copy;
	struct block old;
	int err = blocks_new(&blocks, account);

	for (uint64_t i = 1; i < MANY && err >= 0; i++)
		err = blocks_put(blocks, &(struct block){.address = 16 * i, .bytes = 1}, &old);
	assert_non_null(blocks_find(blocks, 16, 0));
	if (!blocks_copy(&copy, blocks, account))
		blocks_free(copy);
	blocks_free(blocks);
	return err;
}

static int filled_builder(struct account *account)
{
	struct builder builder;
	struct snapshot *snapshot;
	int err = builder_begin_in(&builder, account);

	for (uint32_t i = 0; i < MANY && !err; i++) {
		struct snapshot_trace trace = {.bytes = 1, .count = 1};

		err = builder_traceback(&builder, &(struct snapshot_frame){.line = i}, 1, 1,
					&trace.traceback);
		if (!err)
			err = builder_trace(&builder, &trace);
	}
	snapshot = builder_finish(&builder);
	assert_true(snapshot->trace_count > 1000);
	snapshot_free(snapshot);
	return err;
}

static int filled_perfmap(struct account *account)
{
	const struct perfmap_entry entry = {0};
	struct perfmap_table *table;
	char name[16];
	int err = perfmap_table_new_in(&table, account);

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = perfmap_table_add(
			table, i * 16, 16, name,
			(size_t)snprintf(name, sizeof(name), "f%u", (unsigned int)i), &entry);
	assert_non_null(perfmap_table_find(table, 16));
	perfmap_table_clear(table);
	assert_true(account->used < LIMIT / 8);
	perfmap_table_free(table);
	return err;
}

static int filled_memo(struct account *account)
{
	const struct symbols_frame frame = {.function = "f", .filename = "f.c"};
	struct cache cache = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = cache_add(&cache, 1, i, &frame, 1);
	cache_free(&cache);
	return err;
}

/* Each container stays within its limit, keeps its content, and gives its whole charge back. */
static void test_containers(void **state)
{
	static int (*const fill[])(struct account *) = {
		filled_array,  filled_map,     filled_strings, filled_set,  filled_regions,
		filled_blocks, filled_builder, filled_perfmap, filled_memo,
	};
	(void)state;

	for (size_t i = 0; i < sizeof(fill) / sizeof(fill[0]); i++) {
		struct account account = {.limit = LIMIT};

		assert_int_equal(fill[i](&account), -EDQUOT);
		assert_int_equal(account.used, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_charge),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_containers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
