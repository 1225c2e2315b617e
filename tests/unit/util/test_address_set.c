/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "util/address_set.h"
#include "util/hash.h"

#define MIB 0x100000ull

static void test_empty(void **state)
{
	struct address_set set = {0};

	(void)state;
	assert_false(address_set_has(&set, 16));
	address_set_remove(&set, 16);
	assert_int_equal(address_set_memory(&set), 0);
	address_set_free(&set);
}

static void test_members(void **state)
{
	static const uint64_t addresses[] = {
		0, 16, MIB - 16, MIB, 64 * MIB + 1024, 0x7f0012345670, UINT64_MAX - 63};
	struct address_set set = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		assert_false(address_set_has(&set, addresses[i]));
		assert_int_equal(address_set_add(&set, addresses[i]), 0);
		assert_int_equal(address_set_add(&set, addresses[i]), 0);
		assert_true(address_set_has(&set, addresses[i]));
		/* Neither a neighbour nor the same offset in another page is in the set. */
		assert_false(address_set_has(&set, addresses[i] + 32));
		assert_false(address_set_has(&set, addresses[i] ^ 512 * MIB));
	}
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		assert_true(address_set_has(&set, addresses[i]));
		address_set_remove(&set, addresses[i]);
		assert_false(address_set_has(&set, addresses[i]));
	}
	address_set_free(&set);
	assert_false(address_set_has(&set, 16));
	assert_int_equal(address_set_add(&set, 16), 0); /* a freed set is an empty set */
	address_set_free(&set);
}

/* Compared with an array of one byte per address, while the table of pages grows. */
static void test_churn(void **state)
{
	enum { PAGES = 300, PER_PAGE = 40, STEPS = 200000 };
	uint8_t *expected = calloc(PAGES, PER_PAGE);
	struct address_set set = {0};
	uint64_t random = 7;

	(void)state;
	assert_non_null(expected);
	for (uint64_t i = 0; i < STEPS; i++) {
		random = hash_u64(random + i);
		uint64_t page = random % PAGES, slot = random / PAGES % PER_PAGE;
		uint64_t address = page * MIB * 3 + slot * 26192;

		assert_int_equal(address_set_has(&set, address), expected[page * PER_PAGE + slot]);
		if (random >> 63)
			assert_int_equal(address_set_add(&set, address), 0);
		else
			address_set_remove(&set, address);
		expected[page * PER_PAGE + slot] = random >> 63;
	}
	for (uint64_t i = 0; i < (uint64_t)PAGES * PER_PAGE; i++)
		assert_int_equal(
			address_set_has(&set, i / PER_PAGE * MIB * 3 + i % PER_PAGE * 26192),
			expected[i]);
	address_set_free(&set);
	free(expected);
}

static void test_memory(void **state)
{
	struct address_set set = {0};
	uint64_t heap = 256 * MIB;

	(void)state;
	for (uint64_t address = 0; address < heap; address += 48 * 16)
		assert_int_equal(address_set_add(&set, 0x7f0000000000 + address), 0);
	assert_true(address_set_memory(&set) >= heap / 128);
	assert_true(address_set_memory(&set) < heap / 100);
	address_set_free(&set);
	assert_int_equal(address_set_memory(&set), 0);
}

/* One page per address: the addresses that the target chooses cannot use memory without limit. */
static void test_limit(void **state)
{
	struct address_set set = {0};
	uint64_t pages = 0;
	int err = 0;

	(void)state;
	while (!err && pages <= 1u << 17) {
		err = address_set_add(&set, pages * MIB);
		pages += !err;
	}
	assert_int_equal(err, -E2BIG);
	assert_int_equal(pages, 1u << 17);
	assert_int_equal(address_set_add(&set, 16), 0); /* existing pages still take addresses */
	assert_true(address_set_has(&set, (pages - 1) * MIB));
	assert_false(address_set_has(&set, pages * MIB));
	address_set_free(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty), cmocka_unit_test(test_members),
		cmocka_unit_test(test_churn), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
