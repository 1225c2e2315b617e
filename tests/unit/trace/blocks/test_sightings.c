/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "trace/blocks/sampled_blocks.h"
#include "util/account.h"

#define MANY 100000u

static uint64_t address_of(uint64_t i)
{
	return 0x7f0000000000ull + i * 64;
}

static void fill(struct sampled_blocks *sampled_blocks, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		const struct sampled_block sampled_block = {.address = address_of(i),
							    .kind = (uint32_t)i};

		assert_int_equal(sampled_blocks_put(sampled_blocks, &sampled_block), 0);
	}
	assert_int_equal(sampled_blocks->count, count);
}

static void test_empty(void **state)
{
	struct sampled_blocks sampled_blocks = {0};
	const struct sampled_block none = {0};
	size_t cursor = 0;

	(void)state;
	assert_null(sampled_blocks_find(&sampled_blocks, 16));
	assert_int_equal(sampled_blocks_remove(&sampled_blocks, 16), 0);
	assert_null(sampled_blocks_next(&sampled_blocks, &cursor));
	assert_int_equal(sampled_blocks_put(&sampled_blocks, &none), -EINVAL);
	sampled_blocks_free(&sampled_blocks);
}

/* Whatever is removed, the others are found: closing a gap loses none of them. */
static void test_remove(void **state)
{
	struct sampled_blocks sampled_blocks = {0};

	(void)state;
	fill(&sampled_blocks, MANY);
	for (uint64_t i = 0; i < MANY; i += 3)
		assert_int_equal(sampled_blocks_remove(&sampled_blocks, address_of(i)), 1);
	for (uint64_t i = 0; i < MANY; i++) {
		const struct sampled_block *found =
			sampled_blocks_find(&sampled_blocks, address_of(i));

		if (i % 3 == 0)
			assert_null(found);
		else
			assert_int_equal(found->kind, i);
	}
	sampled_blocks_free(&sampled_blocks);
}

static void test_replace(void **state)
{
	struct sampled_blocks sampled_blocks = {0};
	const struct sampled_block again = {.address = address_of(1), .kind = 77};

	(void)state;
	fill(&sampled_blocks, 3);
	assert_int_equal(sampled_blocks_put(&sampled_blocks, &again), 0);
	assert_int_equal(sampled_blocks.count, 3);
	assert_int_equal(sampled_blocks_find(&sampled_blocks, address_of(1))->kind, 77);
	sampled_blocks_free(&sampled_blocks);
}

static void test_copy(void **state)
{
	struct sampled_blocks sampled_blocks = {0}, copy = {0};
	const struct sampled_block *next;
	size_t cursor = 0, count = 0;

	(void)state;
	fill(&sampled_blocks, 1000);
	assert_int_equal(sampled_blocks_copy(&copy, &sampled_blocks), 0);
	sampled_blocks_free(&sampled_blocks);
	while ((next = sampled_blocks_next(&copy, &cursor)))
		count += next->address == address_of(next->kind);
	assert_int_equal(count, 1000);
	sampled_blocks_free(&copy);
}

/* Memory is charged, and given back; beyond the limit nothing is added or lost. */
static void test_account(void **state)
{
	struct account account = {.limit = 1 << 20};
	struct sampled_blocks sampled_blocks = {.account = &account};
	uint64_t count = 0;
	int err = 0;

	(void)state;
	for (; !err; count += !err) {
		const struct sampled_block sampled_block = {.address = address_of(count),
							    .kind = 1};

		err = sampled_blocks_put(&sampled_blocks, &sampled_block);
	}
	assert_int_equal(err, -EDQUOT);
	assert_true(account.used && account.used <= account.limit);
	assert_int_equal(sampled_blocks.count, count);
	for (uint64_t i = 0; i < count; i++)
		assert_non_null(sampled_blocks_find(&sampled_blocks, address_of(i)));
	sampled_blocks_free(&sampled_blocks);
	assert_int_equal(account.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),   cmocka_unit_test(test_remove),
		cmocka_unit_test(test_replace), cmocka_unit_test(test_copy),
		cmocka_unit_test(test_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
