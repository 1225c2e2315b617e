/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "trace/blocks/blocks.h"
#include "util/hash.h"

#define FILL 1000000u

static struct block block_of(uint64_t address, uint64_t bytes)
{
	return (struct block){.address = address, .bytes = bytes};
}

static void test_put_take(void **state)
{
	struct blocks *blocks;
	struct block a = {.address = 16, .bytes = 100, .stack = 7, .domain = 1}, b = a, old;
	(void)state;

	assert_int_equal(blocks_new(&blocks, NULL), 0);
	assert_null(blocks_find(blocks, 16, 1));
	assert_int_equal(blocks_take(blocks, 16, 1, &old), 0);
	assert_int_equal(blocks_put(blocks, &a, &old), 0);
	b.bytes = 200;
	assert_int_equal(blocks_put(blocks, &b, &old), 1);
	assert_int_equal(old.bytes, 100);
	assert_int_equal(old.stack, 7);
	assert_int_equal(blocks_count(blocks), 1);
	assert_null(blocks_find(blocks, 16, 0)); /* the domain is part of the key */
	b.domain = 0;
	assert_int_equal(blocks_put(blocks, &b, &old), 0);
	assert_int_equal(blocks_count(blocks), 2);
	assert_int_equal(blocks_take(blocks, 16, 1, &old), 1);
	assert_int_equal(old.bytes, 200);
	assert_int_equal(blocks_take(blocks, 16, 1, &old), 0);
	assert_non_null(blocks_find(blocks, 16, 0));
	blocks_free(blocks);
}

static void test_address_zero(void **state)
{
	struct blocks *blocks;
	struct block zero = {.bytes = 1}, old;
	(void)state;

	assert_int_equal(blocks_new(&blocks, NULL), 0);
	assert_int_equal(blocks_put(blocks, &zero, &old), -EINVAL);
	assert_int_equal(blocks_take(blocks, 0, 0, &old), 0);
	assert_null(blocks_find(blocks, 0, 0));
	blocks_free(blocks);
	blocks_free(NULL);
}

/* Compared with a plain array of the expected content, through growth and shifting removals. */
static void test_churn(void **state)
{
	enum { KEYS = 5000, STEPS = 400000 };
	uint64_t *expected = calloc(KEYS, sizeof(*expected)), random = 42;
	struct blocks *blocks;
	struct block old;
	size_t live = 0, seen = 0, cursor = 0;
	const struct block *block;
	(void)state;

	assert_non_null(expected);
	assert_int_equal(blocks_new(&blocks, NULL), 0);
	for (uint64_t i = 1; i <= STEPS; i++) {
		random = hash_u64(random + i);
		uint64_t key = random % KEYS, address = (key + 1) * 16;
		if (random >> 63) {
			struct block put = block_of(address, i);
			assert_int_equal(blocks_put(blocks, &put, &old), expected[key] != 0);
			if (expected[key])
				assert_int_equal(old.bytes, expected[key]);
			live += !expected[key];
			expected[key] = i;
		} else {
			assert_int_equal(blocks_take(blocks, address, 0, &old), expected[key] != 0);
			if (expected[key])
				assert_int_equal(old.bytes, expected[key]);
			live -= expected[key] != 0;
			expected[key] = 0;
		}
		assert_int_equal(blocks_count(blocks), live);
	}
	for (uint64_t key = 0; key < KEYS; key++) {
		block = blocks_find(blocks, (key + 1) * 16, 0);
		assert_int_equal(block ? block->bytes : 0, expected[key]);
	}
	while ((block = blocks_next(blocks, &cursor))) {
		assert_int_equal(block->bytes, expected[block->address / 16 - 1]);
		seen++;
	}
	assert_int_equal(seen, live);
	assert_null(blocks_next(blocks, &cursor));
	blocks_free(blocks);
	free(expected);
}

static void test_memory(void **state)
{
	struct blocks *blocks;
	struct block old;
	(void)state;

	assert_int_equal(blocks_new(&blocks, NULL), 0);
	for (uint64_t i = 1; i <= FILL; i++) {
		struct block block = block_of(0x7f0000000000 + i * 48, i);
		assert_int_equal(blocks_put(blocks, &block, &old), 0);
		if (i >= FILL / 4 && i % 4096 == 0) /* also at every moment of the growth */
			assert_true(blocks_memory(blocks) <= 60 * i);
	}
	assert_true(blocks_memory(blocks) <= 60 * (size_t)FILL);
	for (uint64_t i = 1; i <= FILL; i++)
		assert_int_equal(blocks_take(blocks, 0x7f0000000000 + i * 48, 0, &old), 1);
	assert_int_equal(blocks_count(blocks), 0);
	blocks_free(blocks);
}

static uint64_t start_of(const struct blocks *blocks, uint64_t address)
{
	const struct block *block = blocks_containing(blocks, address);

	return block ? block->address : 0;
}

static void test_containing(void **state)
{
	static const struct block put[] = {
		{.address = 0x1000, .bytes = 48},
		{.address = 0x1030, .bytes = 1},
		{.address = 0x1040, .bytes = 0},
		{.address = 0x2000, .bytes = 100u << 20},
		{.address = 0x2100, .bytes = 64, .domain = 7},      /* inside the previous one */
		{.address = 0x9000008, .bytes = 4096, .domain = 7}, /* not aligned */
		{.address = 0x9000108, .bytes = 16, .domain = 9},
		{.address = UINT64_MAX - 15, .bytes = 16},
		{.address = 16, .bytes = (1ull << 59) - 1, .domain = 3},
	};
	struct blocks *blocks;
	struct block old;
	(void)state;

	assert_int_equal(blocks_new(&blocks, NULL), 0);
	assert_int_equal(start_of(blocks, 0x1000), 0);
	for (size_t i = 0; i + 1 < sizeof(put) / sizeof(put[0]); i++)
		assert_int_equal(blocks_put(blocks, &put[i], &old), 0);
	for (uint64_t at = 0x1000; at < 0x1030; at++)
		assert_int_equal(start_of(blocks, at), 0x1000);
	assert_int_equal(start_of(blocks, 0xfff), 0);
	assert_int_equal(start_of(blocks, 0x1030), 0x1030);
	assert_int_equal(start_of(blocks, 0x1031), 0);
	assert_int_equal(start_of(blocks, 0x1040), 0x1040);
	assert_int_equal(start_of(blocks, 0x1041), 0);
	assert_int_equal(start_of(blocks, 0x2000 + 32), 0x2000);
	assert_int_equal(start_of(blocks, 0x2000 + BLOCKS_NEAR + 8), 0x2000);
	assert_int_equal(start_of(blocks, 0x2000 + (100u << 20) - 1), 0x2000);
	assert_int_equal(start_of(blocks, 0x2000 + (100u << 20)), 0);
	/* near or far, Python's own domain has precedence */
	assert_int_equal(start_of(blocks, 0x2110), 0x2000);
	assert_int_equal(start_of(blocks, 0x2000 + 0x101000), 0x2000);
	assert_int_equal(start_of(blocks, 0x9000107), 0x9000008);
	assert_int_equal(start_of(blocks, 0x9000108), 0x9000108); /* the inner one */
	assert_int_equal(start_of(blocks, 0x9000118), 0x9000008);
	assert_int_equal(start_of(blocks, UINT64_MAX), UINT64_MAX - 15);
	assert_int_equal(start_of(blocks, 0), 0);
	assert_int_equal(blocks_put(blocks, &put[8], &old), 0);
	assert_int_equal(start_of(blocks, 0xfff), 16);
	assert_int_equal(start_of(blocks, 15), 0);
	blocks_free(blocks);
}

/*
 * The heap walk reports a hooked block 16 bytes before the program's address, in a size class for
 * 24 bytes more.
 */
static void test_hooked(void **state)
{
	struct block hooked = {.address = 0x1010, .bytes = 40, .pooled = 1, .hooked = 1};
	struct block plain = {.address = 0x2010, .bytes = 10, .pooled = 1};
	struct blocks *blocks;
	struct block old;

	(void)state;
	assert_int_equal(blocks_new(&blocks, NULL), 0);
	assert_int_equal(blocks_put(blocks, &hooked, &old), 0);
	assert_int_equal(blocks_put(blocks, &plain, &old), 0);
	assert_int_equal(blocks_confirm(blocks, 0x1000, 64, 0, 1), 1);
	assert_int_equal(blocks_find(blocks, 0x1010, 0)->epoch, 1);
	assert_int_equal(blocks_confirm(blocks, 0x1000, 48, 0, 1), 0);
	assert_int_equal(blocks_confirm(blocks, 0x1000, 128, 0, 1), 0);
	/* Another block follows an unknown block of 16 bytes. */
	assert_int_equal(blocks_confirm(blocks, 0x2000, 16, 0, 1), 0);
	assert_int_equal(blocks_confirm(blocks, 0x2010, 16, 0, 1), 1);
	blocks_keep(blocks, 0x1010, 0);
	assert_int_equal(blocks_find(blocks, 0x1010, 0)->epoch, 0);
	blocks_keep(blocks, 0x3010, 0);
	blocks_free(blocks);
}

/* A block of those bytes in a pool of that size class. */
struct fit {
	uint64_t bytes;
	uint32_t class_bytes;
	int fits;
};

/* At an address that no block has yet. */
static void check_fits(struct blocks *blocks, const struct fit *cases, size_t count,
		       int is_mimalloc)
{
	struct block old;

	for (size_t i = 0; i < count; i++) {
		struct block block = {.address = 0x1000, .bytes = cases[i].bytes, .pooled = 1};

		assert_int_equal(blocks_put(blocks, &block, &old), i > 0);
		assert_int_equal(
			blocks_confirm(blocks, 0x1000, cases[i].class_bytes, is_mimalloc, 1),
			cases[i].fits);
		assert_int_equal(blocks_find(blocks, 0x1000, 0)->epoch, cases[i].fits);
	}
}

/* A heap walk confirms a block only if pymalloc would place it in a pool of that size class. */
static void test_confirm(void **state)
{
	static const struct fit cases[] = {
		/* 0: another block */
		{1, 16, 1},    {16, 16, 1},   {17, 16, 0},   {17, 32, 1},
		{16, 32, 0},   {385, 512, 1}, /* a realloc left it in place */
		{384, 512, 0}, {512, 512, 1}, {496, 512, 1}, {13, 48, 0},
		{37, 48, 1},   {25, 32, 1},   {24, 32, 1},
	};
	struct blocks *blocks;
	struct block old;

	(void)state;
	assert_int_equal(blocks_new(&blocks, NULL), 0);
	check_fits(blocks, cases, sizeof(cases) / sizeof(cases[0]), 0);
	assert_int_equal(blocks_confirm(blocks, 0x2000, 16, 0, 1), 0);
	/* A block of malloc and a block of another domain are in no pool. */
	struct block raw = {.address = 0x3000, .bytes = 16},
		     other = {.address = 0x4000, .bytes = 16, .domain = 1, .pooled = 1};
	assert_int_equal(blocks_put(blocks, &raw, &old), 0);
	assert_int_equal(blocks_put(blocks, &other, &old), 0);
	assert_int_equal(blocks_confirm(blocks, 0x3000, 16, 0, 1), 0);
	assert_int_equal(blocks_confirm(blocks, 0x4000, 16, 0, 1), 0);
	blocks_keep(blocks, 0x3000, 1);
	assert_int_equal(blocks_find(blocks, 0x3000, 0)->epoch, 0);
	blocks_confirm_all(blocks, 1);
	assert_int_equal(blocks_find(blocks, 0x3000, 0)->epoch, 1);
	assert_int_equal(blocks_find(blocks, 0x4000, 1)->epoch, 1);
	blocks_free(blocks);
}

/* mimalloc leaves more of them in place. */
static void test_confirm_mimalloc(void **state)
{
	static const struct fit cases[] = {
		{205, 320, 1}, {160, 320, 1}, {159, 320, 0}, {320, 320, 1},
		{321, 320, 0}, {73, 128, 1},  {63, 128, 0},  {1, 16, 1},
	};
	struct blocks *blocks;

	(void)state;
	assert_int_equal(blocks_new(&blocks, NULL), 0);
	check_fits(blocks, cases, sizeof(cases) / sizeof(cases[0]), 1);
	blocks_free(blocks);
}

struct model {
	uint8_t live, pooled, epoch;
};

struct sweep {
	struct model *model;
	unsigned int epoch;
	size_t removed;
};

static void model_remove(void *context, const struct block *block)
{
	struct sweep *sweep = context;
	struct model *entry = &sweep->model[block->address / 16 - 1];

	/* Each removed block is reported once. A block that stays is not reported. */
	assert_true(entry->live && entry->pooled && entry->epoch != sweep->epoch);
	assert_int_equal(block->bytes, block->address / 16 % 16 + 1);
	entry->live = 0;
	sweep->removed++;
}

/*
 * Heap walks of random shares of random tables. Small segments are full up to their last slots, so
 * that runs of followers wrap around from the end to the start, and a removal at one end moves
 * entries at the other end.
 */
static void test_sweep(void **state)
{
	enum { KEYS = 3000, ROUNDS = 400 };
	struct model *model = calloc(KEYS, sizeof(*model));
	uint64_t random = 1;

	(void)state;
	assert_non_null(model);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int epoch = round & 1, live = 0;
		uint64_t share = (random = hash_u64(random + round)) % 17,
			 keys = 1 + random / 17 % KEYS;
		struct sweep sweep = {.model = model, .epoch = epoch};
		struct blocks *blocks;
		struct block old;
		size_t before;

		assert_int_equal(blocks_new(&blocks, NULL), 0);
		for (uint64_t key = 0; key < keys; key++) {
			random = hash_u64(random + key);
			model[key] = (struct model){random % 4 != 0, random / 4 % 8 != 0,
						    random / 32 % 16 < share};
			struct block block = {.address = (key + 1) * 16,
					      .bytes = (key + 1) % 16 + 1,
					      .pooled = model[key].pooled,
					      .epoch = model[key].epoch};
			if (model[key].live)
				assert_int_equal(blocks_put(blocks, &block, &old), 0);
		}
		before = blocks_count(blocks);
		blocks_sweep(blocks, epoch, model_remove, &sweep);
		assert_int_equal(blocks_count(blocks), before - sweep.removed);
		for (uint64_t key = 0; key < keys; key++) {
			struct model *entry = &model[key];

			assert_true(!entry->live || !entry->pooled || entry->epoch == epoch);
			assert_int_equal(blocks_find(blocks, (key + 1) * 16, 0) != NULL,
					 entry->live);
			live += entry->live;
		}
		assert_int_equal(live, blocks_count(blocks));
		blocks_free(blocks);
	}
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_take),   cmocka_unit_test(test_address_zero),
		cmocka_unit_test(test_churn),      cmocka_unit_test(test_memory),
		cmocka_unit_test(test_containing), cmocka_unit_test(test_hooked),
		cmocka_unit_test(test_confirm),    cmocka_unit_test(test_confirm_mimalloc),
		cmocka_unit_test(test_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
