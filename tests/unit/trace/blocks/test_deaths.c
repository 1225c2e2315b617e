/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of blocks that were seen in windows and have died. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/blocks/deaths.h"
#include "util/account.h"

static void test_ring(void **state)
{
	struct deaths deaths = {0};
	(void)state;

	for (uint32_t i = 0; i < DEATHS_MAX; i++)
		assert_int_equal(deaths_add(&deaths, &(struct death){.stack = i}), i);
	/* The oldest one makes room. */
	assert_int_equal(deaths_add(&deaths, &(struct death){.stack = DEATHS_MAX}), 0);
	assert_int_equal(deaths_add(&deaths, &(struct death){.stack = DEATHS_MAX + 1}), 1);
	assert_int_equal(deaths.count, DEATHS_MAX);
	assert_int_equal(deaths.items[0].stack, DEATHS_MAX);
	assert_int_equal(deaths.items[1].stack, DEATHS_MAX + 1);
	assert_int_equal(deaths.items[2].stack, 2);
	deaths_free(&deaths);
	assert_int_equal(deaths.count, 0);
}

static void test_no_memory(void **state)
{
	struct account account = {.limit = 1};
	struct deaths deaths = {.account = &account};
	(void)state;

	assert_int_equal(deaths_add(&deaths, &(struct death){.stack = 1}), DEATHS_NONE);
	assert_int_equal(deaths.count, 0);
	deaths_free(&deaths);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
