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

static void fill(struct sightings *sightings, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		const struct sighting sighting = {.address = address_of(i), .kind = (uint32_t)i};

		assert_int_equal(sightings_put(sightings, &sighting), 0);
	}
	assert_int_equal(sightings->count, count);
}

static void test_empty(void **state)
{
	struct sightings sightings = {0};
	const struct sighting none = {0};
	size_t cursor = 0;

	(void)state;
	assert_null(sightings_find(&sightings, 16));
	assert_int_equal(sightings_remove(&sightings, 16), 0);
	assert_null(sightings_next(&sightings, &cursor));
	assert_int_equal(sightings_put(&sightings, &none), -EINVAL);
	sightings_free(&sightings);
}

/* Whatever is removed, the others are found: closing a gap loses none of them. */
static void test_remove(void **state)
{
	struct sightings sightings = {0};

	(void)state;
	fill(&sightings, MANY);
	for (uint64_t i = 0; i < MANY; i += 3)
		assert_int_equal(sightings_remove(&sightings, address_of(i)), 1);
	for (uint64_t i = 0; i < MANY; i++) {
		const struct sighting *found = sightings_find(&sightings, address_of(i));

		if (i % 3 == 0)
			assert_null(found);
		else
			assert_int_equal(found->kind, i);
	}
	sightings_free(&sightings);
}

static void test_replace(void **state)
{
	struct sightings sightings = {0};
	const struct sighting again = {.address = address_of(1), .kind = 77};

	(void)state;
	fill(&sightings, 3);
	assert_int_equal(sightings_put(&sightings, &again), 0);
	assert_int_equal(sightings.count, 3);
	assert_int_equal(sightings_find(&sightings, address_of(1))->kind, 77);
	sightings_free(&sightings);
}

static void test_copy(void **state)
{
	struct sightings sightings = {0}, copy = {0};
	const struct sighting *next;
	size_t cursor = 0, count = 0;

	(void)state;
	fill(&sightings, 1000);
	assert_int_equal(sightings_copy(&copy, &sightings), 0);
	sightings_free(&sightings);
	while ((next = sightings_next(&copy, &cursor)))
		count += next->address == address_of(next->kind);
	assert_int_equal(count, 1000);
	sightings_free(&copy);
}

/* Memory is charged, and given back; beyond the limit nothing is added or lost. */
static void test_account(void **state)
{
	struct account account = {.limit = 1 << 20};
	struct sightings sightings = {.account = &account};
	uint64_t count = 0;
	int err = 0;

	(void)state;
	for (; !err; count += !err) {
		const struct sighting sighting = {.address = address_of(count), .kind = 1};

		err = sightings_put(&sightings, &sighting);
	}
	assert_int_equal(err, -EDQUOT);
	assert_true(account.used && account.used <= account.limit);
	assert_int_equal(sightings.count, count);
	for (uint64_t i = 0; i < count; i++)
		assert_non_null(sightings_find(&sightings, address_of(i)));
	sightings_free(&sightings);
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
