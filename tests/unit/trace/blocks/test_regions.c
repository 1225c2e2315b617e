/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "trace/blocks/regions.h"

#define PAGES 64u /* of the small address space that the model covers */

static int set(struct regions *regions, uint64_t start, uint64_t end, uint32_t traceback,
	       uint32_t accessible)
{
	return regions_set(regions, &(struct region){.start = start,
						     .end = end,
						     .stack = traceback,
						     .accessible = accessible});
}

static void check(const struct regions *regions, const struct region *wanted, size_t count)
{
	assert_int_equal(regions->count, count);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(regions->items[i].start, wanted[i].start);
		assert_int_equal(regions->items[i].end, wanted[i].end);
		assert_int_equal(regions->items[i].stack, wanted[i].stack);
		assert_int_equal(regions->items[i].accessible, wanted[i].accessible);
	}
}

static void test_cuts(void **state)
{
	struct regions regions = {0};
	(void)state;

	assert_int_equal(set(&regions, 10, 20, 1, 1), 0);
	assert_int_equal(set(&regions, 20, 30, 2, 1), 0);
	/* Across the border of both. */
	assert_int_equal(set(&regions, 15, 25, 3, 1), 0);
	check(&regions, (struct region[]){{10, 15, 1, 1, 0}, {15, 25, 3, 1, 0}, {25, 30, 2, 1, 0}},
	      3);
	/* The middle of one. */
	assert_int_equal(regions_clear(&regions, 17, 18), 0);
	check(&regions,
	      (struct region[]){
		      {10, 15, 1, 1, 0}, {15, 17, 3, 1, 0}, {18, 25, 3, 1, 0}, {25, 30, 2, 1, 0}},
	      4);
	/* More than the set holds. */
	assert_int_equal(regions_clear(&regions, 0, 16), 0);
	check(&regions, (struct region[]){{16, 17, 3, 1, 0}, {18, 25, 3, 1, 0}, {25, 30, 2, 1, 0}},
	      3);
	assert_int_equal(regions_find(&regions, 24)->stack, 3);
	assert_null(regions_find(&regions, 17));
	assert_null(regions_find(&regions, 30));
	regions_free(&regions);
}

/* A thread's heap: reserved as a whole, made accessible as it grows, and released from its end. */
static void test_protect(void **state)
{
	struct regions regions = {0};
	(void)state;

	assert_int_equal(set(&regions, 100, 200, 1, 0), 0);
	assert_int_equal(regions_protect(&regions, &(struct region){100, 110, 2, 1, 0}), 0);
	assert_int_equal(regions_protect(&regions, &(struct region){105, 130, 3, 1, 0}), 0);
	check(&regions,
	      (struct region[]){{100, 110, 2, 1, 0}, {110, 130, 3, 1, 0}, {130, 200, 1, 0, 0}}, 3);
	assert_int_equal(regions_protect(&regions, &(struct region){120, 130, 4, 0, 0}), 0);
	/* An unknown range stays unknown. */
	assert_int_equal(regions_protect(&regions, &(struct region){190, 300, 5, 1, 0}), 0);
	check(&regions,
	      (struct region[]){{100, 110, 2, 1, 0},
				{110, 120, 3, 1, 0},
				{120, 130, 4, 0, 0},
				{130, 190, 1, 0, 0},
				{190, 200, 5, 1, 0}},
	      5);
	regions_free(&regions);
}

/* Compared with a table that has one entry per address. */
static void test_model(void **state)
{
	struct region model[PAGES] = {0};
	struct regions regions = {0};
	(void)state;

	srand(1);
	for (uint32_t step = 1; step <= 20000; step++) {
		uint64_t start = (uint64_t)rand() % PAGES,
			 end = start + 1 + (uint64_t)rand() % (PAGES - start);
		struct region region = {start, end, step, (uint32_t)rand() % 2, 0};
		int what = rand() % 3;

		if (what == 0)
			assert_int_equal(regions_set(&regions, &region), 0);
		else if (what == 1)
			assert_int_equal(regions_clear(&regions, start, end), 0);
		else
			assert_int_equal(regions_protect(&regions, &region), 0);
		for (uint64_t i = start; i < end; i++) {
			if (what == 0 || (what == 2 && model[i].stack &&
					  model[i].accessible != region.accessible))
				model[i] = region;
			else if (what == 1)
				model[i].stack = 0;
		}
		for (uint64_t i = 0; i < PAGES; i++) {
			const struct region *found = regions_find(&regions, i);

			assert_int_equal(found ? found->stack : 0, model[i].stack);
			assert_true(!found || found->accessible == model[i].accessible);
		}
	}
	regions_free(&regions);
}

static void test_limit(void **state)
{
	struct regions regions = {0};
	(void)state;

	for (uint64_t i = 0; i < REGIONS_MAX; i++)
		assert_int_equal(set(&regions, 4 * i, 4 * i + 3, 1, 1), 0);
	assert_int_equal(set(&regions, 4 * REGIONS_MAX, 4 * REGIONS_MAX + 1, 1, 1), -ENOSPC);
	assert_int_equal(regions_clear(&regions, 1, 2), -ENOSPC);
	assert_int_equal(regions.count, REGIONS_MAX);
	assert_int_equal(regions_clear(&regions, 0, 3), 0);
	assert_int_equal(regions_clear(&regions, 5, 6), 0);
	regions_free(&regions);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuts), cmocka_unit_test(test_protect),
		cmocka_unit_test(test_model), cmocka_unit_test(test_limit)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
