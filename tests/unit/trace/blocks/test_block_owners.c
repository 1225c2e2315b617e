/* SPDX-License-Identifier: Apache-2.0 */
/* Owners: found again, dropped when no block is theirs, bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "ranges.h"
#include "trace/blocks/block_owners.h"

static void are_found_again(void **state)
{
	struct block_owners owners = {0}, copy = {0};
	uint32_t one = block_owners_find(&owners, 7, 0), two = block_owners_find(&owners, 7, 1);
	uint32_t other = block_owners_find(&owners, 8, 1);

	(void)state;
	assert_true(one && two && other && one != two && two != other && one != other);
	assert_int_equal(block_owners_find(&owners, 7, 1), two);
	assert_int_equal(block_owners_get(&owners, other)->tid, 8);
	assert_int_equal(block_owners_get(&owners, other)->task, 1);
	assert_int_equal(block_owners_get(&owners, OWNER_NONE)->tid, 0);
	assert_int_equal(block_owners_get(&owners, 1000)->tid, 0);
	assert_int_equal(block_owners_copy(&copy, &owners), 0);
	block_owners_free(&owners);
	assert_int_equal(block_owners_find(&copy, 7, 1), two);
	assert_int_equal(block_owners_get(&copy, two)->task, 1);
	block_owners_free(&copy);
}

/* A server that starts a task for each request holds as many as have blocks, and twice that. */
static void unused_ones_are_dropped(void **state)
{
	struct block_owners owners = {0};
	uint32_t kept = block_owners_find(&owners, 1, 5), passes = 0;

	(void)state;
	for (uint32_t task = 100; task < 100 + 20 * OWNERS_FEW; task++) {
		if (block_owners_are_many(&owners)) {
			uint64_t *used = calloc(owners.count / 64 + 1, sizeof(*used));

			used[kept / 64] |= 1ull << kept % 64;
			block_owners_keep(&owners, used);
			free(used);
			passes++;
		}
		uint32_t index = block_owners_find(&owners, 1, task);

		assert_int_not_equal(index, OWNER_NONE);
		assert_int_not_equal(index, kept);
		assert_int_equal(block_owners_get(&owners, index)->task, task);
	}
	assert_uint_in_range(passes, 10, 20);
	assert_true(owners.count <= OWNERS_FEW + 2);
	assert_int_equal(block_owners_find(&owners, 1, 5), kept);
	block_owners_free(&owners);
}

/* Beyond the limit there is none, and those that are there stay. */
static void are_bounded(void **state)
{
	struct block_owners owners = {0};
	uint32_t last = 0, task = 1;

	(void)state;
	while (task < 2 * OWNERS_MAX && (last = block_owners_find(&owners, 1, task)))
		task++;
	assert_int_equal(last, OWNER_NONE);
	assert_uint_in_range(task, OWNERS_MAX, OWNERS_MAX + 2);
	assert_int_not_equal(block_owners_find(&owners, 1, 1), OWNER_NONE);
	assert_true(block_owners_are_many(&owners));
	block_owners_free(&owners);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(are_found_again),
		cmocka_unit_test(unused_ones_are_dropped),
		cmocka_unit_test(are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
