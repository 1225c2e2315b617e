/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/blocks/fingerprints.h"
#include "util/account.h"

#define POOL  0x7f0000000000ull
#define BYTES 64u
#define COUNT 10u
#define KIND  77u

static struct fingerprint_pool *show(struct fingerprints *fingerprints, uint64_t pool,
				     uint32_t bytes, int *fresh)
{
	const struct fingerprint_pool shown = {
		.pool = pool, .address = pool + 48, .block_bytes = bytes, .count = COUNT};

	return fingerprints_pool(fingerprints, &shown, fresh);
}

/* A block keeps its cohort while it shows the same. */
static void test_found(void **state)
{
	struct fingerprints fingerprints = {0};
	struct fingerprint_pool *pool;
	int fresh;
	(void)state;

	fingerprints_walk(&fingerprints);
	pool = show(&fingerprints, POOL, BYTES, &fresh);
	assert_true(pool && fresh);
	assert_int_equal(fingerprint_found(&pool->blocks[3], KIND, 1, 5), 5);
	assert_int_equal(fingerprint_found(&pool->blocks[3], KIND, 1, 6), 5);
	assert_true(fingerprint_is(pool->blocks[3], KIND, 1));
	assert_false(fingerprint_is(pool->blocks[3], KIND, 2));
	assert_false(fingerprint_is(pool->blocks[4], KIND, 1));
	assert_int_equal(fingerprint_found(&pool->blocks[3], KIND, 2, 6), 6);
	assert_int_equal(fingerprint_found(&pool->blocks[3], KIND + 1, 2, 7), 7);
	assert_ptr_equal(fingerprints_find(&fingerprints, POOL, POOL + 48 + 3 * BYTES),
			 &pool->blocks[3]);
	assert_null(fingerprints_find(&fingerprints, POOL, POOL + 48 + 3 * BYTES + 16));
	assert_null(fingerprints_find(&fingerprints, POOL, POOL + 48 + COUNT * BYTES));
	assert_null(fingerprints_find(&fingerprints, POOL, POOL));
	assert_null(fingerprints_find(&fingerprints, POOL + 16384, POOL + 16384 + 48));
	fingerprints_free(&fingerprints);
}

/* A pool that a walk does not show, or whose blocks have another size, begins anew. */
static void test_pools(void **state)
{
	struct fingerprints fingerprints = {0};
	int fresh;
	(void)state;

	fingerprints_walk(&fingerprints);
	for (uint64_t i = 0; i < 100; i++)
		fingerprint_found(&show(&fingerprints, POOL + i * 16384, BYTES, &fresh)->blocks[1],
				  KIND, 1, 5);
	fingerprints_walk(&fingerprints);
	for (uint64_t i = 0; i < 100; i += 2)
		assert_non_null(show(&fingerprints, POOL + i * 16384, BYTES, &fresh));
	fingerprints_sweep(&fingerprints);
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t pool = POOL + i * 16384;
		const uint32_t *block = fingerprints_find(&fingerprints, pool, pool + 48 + BYTES);

		assert_int_equal(block ? fingerprint_cohort(*block) : 0, i % 2 ? 0 : 5);
	}
	assert_int_equal(show(&fingerprints, POOL, BYTES / 2, &fresh)->blocks[1], 0);
	assert_false(fresh);
	fingerprints_free(&fingerprints);
}

static void test_renumber(void **state)
{
	struct fingerprints fingerprints = {0};
	uint8_t map[FINGERPRINT_COHORTS] = {[5] = 3};
	struct fingerprint_pool *pool;
	int fresh;
	(void)state;

	pool = show(&fingerprints, POOL, BYTES, &fresh);
	assert_non_null(pool);
	fingerprint_found(&pool->blocks[0], KIND, 1, 5);
	fingerprints_renumber(&fingerprints, map);
	assert_int_equal(fingerprint_cohort(pool->blocks[0]), 3);
	assert_true(fingerprint_is(pool->blocks[0], KIND, 1));
	assert_int_equal(pool->blocks[1], 0);
	fingerprints_free(&fingerprints);
}

/* Everything is charged, and given back. */
static void test_account(void **state)
{
	struct account account = {.limit = 65536};
	struct fingerprints fingerprints = {.account = &account, .index.account = &account};
	uint64_t pool = POOL;
	int fresh;
	(void)state;

	while (show(&fingerprints, pool, BYTES, &fresh))
		pool += 16384;
	assert_true(account.used > 1000 && account.used <= 65536);
	fingerprints_free(&fingerprints);
	assert_int_equal(account.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_renumber),
		cmocka_unit_test(test_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
