/* SPDX-License-Identifier: Apache-2.0 */
/* jemalloc's structures as bytes, and a heap that lies, in this process's own memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "jemalloc_forgery.h"
#include "util/error.h"

#define LAYOUTS 4u
#define PAGE    4096u

static struct jemalloc_forgery *forgery;

struct walked {
	uint64_t end;
	struct allocator_totals totals;
};

/* Runs come in order of address and do not overlap. */
static int run_see(const struct allocator_run *run, void *context)
{
	struct walked *walked = context;

	assert_true(run->address >= walked->end && run->count && run->block_bytes);
	walked->end = run->address + run->count * run->block_bytes;
	return 0;
}

static int forged_open(struct allocator *allocator)
{
	struct space *space;
	int err = space_open(&space, getpid());

	assert_int_equal(err, 0);
	allocator->type = &jemalloc_allocator;
	error_clear();
	err = jemalloc_allocator.open(&allocator->state, space, &forgery->maps, allocator->version);
	space_close(space);
	return err;
}

static int opened_walk(const struct allocator *allocator, struct walked *walked)
{
	*walked = (struct walked){0};
	return allocator_walk(allocator, &forgery->maps, run_see, walked, &walked->totals);
}

static int forged_walk(struct walked *walked)
{
	struct allocator allocator;
	int err = forged_open(&allocator);

	if (err)
		return err;
	err = opened_walk(&allocator, walked);
	jemalloc_allocator.close(allocator.state);
	return err;
}

static void test_walk(void **state)
{
	struct walked walked;

	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++) {
		const uint64_t *bytes = walked.totals.bytes;

		forged_make(forgery, i);
		assert_int_equal(forged_walk(&walked), 0);
		/* 58 blocks of 64 bytes, 2 of them cached; 256 of 80 bytes; one of 16 KiB. */
		assert_int_equal(bytes[ALLOCATOR_USED], 56 * 64 + 256 * 80 + 16384);
		assert_int_equal(bytes[ALLOCATOR_CACHED], 2 * 64);
		assert_int_equal(bytes[ALLOCATOR_FREE], 6 * 64 + PAGE);
		assert_int_equal(bytes[ALLOCATOR_DIRTY], 2 * PAGE);
		assert_int_equal(bytes[ALLOCATOR_MUZZY], PAGE);
		assert_int_equal(bytes[ALLOCATOR_RETAINED], 50 * PAGE);
		assert_int_equal(bytes[ALLOCATOR_METADATA], FORGED_BLOCK);
		assert_int_equal(bytes[ALLOCATOR_UNKNOWN], 0);
		assert_int_equal(walked.totals.unused, PAGE);
		assert_int_equal(walked.totals.caches, 1);
		assert_int_equal(walked.totals.cut, 0);
		assert_int_equal(walked.totals.class_count, 2);
		assert_int_equal(walked.totals.classes[0].block_bytes, 64);
		assert_int_equal(walked.totals.classes[0].used, 56);
		assert_int_equal(walked.totals.classes[0].cached, 2);
		assert_int_equal(walked.totals.classes[0].free, 6);
		assert_int_equal(walked.totals.classes[1].slabs, 1);
		assert_int_equal(walked.totals.classes[1].slab_bytes, 5 * PAGE);
	}
}

/* What became inconsistent since it was opened is told, and what is around it is read. */
static void test_inconsistent(void **state)
{
	struct walked walked;

	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++) {
		struct allocator allocator;

		forged_make(forgery, i);
		assert_int_equal(forged_open(&allocator), 0);
		forged_put(forged_at(forgery, 0) + 64, 1); /* not as many as it counts */
		assert_int_equal(opened_walk(&allocator, &walked), 0);
		assert_int_equal(walked.totals.bytes[ALLOCATOR_UNKNOWN], PAGE);
		assert_int_equal(walked.totals.bytes[ALLOCATOR_USED], 256 * 80 + 16384);
		assert_int_equal(walked.totals.cut, 1);

		/* An extent that claims more than its last page says. */
		forged_make(forgery, i);
		forged_put(forged_at(forgery, 3) + 16, 3 * PAGE);
		assert_int_equal(opened_walk(&allocator, &walked), 0);
		assert_int_equal(walked.totals.bytes[ALLOCATOR_MUZZY], PAGE);
		assert_int_equal(walked.totals.bytes[ALLOCATOR_DIRTY], 0);
		assert_int_equal(walked.totals.cut, 2); /* each of its elements */

		/* A list of caches that does not return to its start. */
		forged_make(forgery, i);
		forged_put(forgery->cache + (forgery->layout->minor == 2 ? 2048 : 16),
			   (uintptr_t)forgery->cache + 12288);
		assert_int_equal(opened_walk(&allocator, &walked), 0);
		assert_int_equal(walked.totals.cut, 1);

		/* A table in two places. */
		forged_make(forgery, i);
		forged_put(forgery->data + FORGED_ROOT, (uintptr_t)forged_table(forgery, 1));
		assert_int_equal(opened_walk(&allocator, &walked), -ENOTSUP);
		jemalloc_allocator.close(allocator.state);
	}
}

static void expect_refused(int err)
{
	struct walked walked;

	assert_int_equal(forged_walk(&walked), err);
	if (err == -ENOTSUP)
		assert_non_null(strstr(error_reason(err), "its structures are not those"));
}

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++) {
		unsigned int last;

		forged_make(forgery, i);
		last = forgery->layout->levels - 1;
		forged_put(forgery->data + FORGED_SIZES + 24, 0); /* no table of sizes */
		expect_refused(-ENOTSUP);

		forged_make(forgery, i);
		for (unsigned int n = 0; n < forgery->extents; n++)
			forged_put(forged_at(forgery, n) + 8, (uintptr_t)forgery->cache);
		expect_refused(-ENOTSUP);

		/* Another word of the first table leads to no table. */
		forged_make(forgery, i);
		forged_put(forgery->data + FORGED_ROOT, (uintptr_t)forgery->heap);
		expect_refused(-ENOTSUP);

		/* A table is in two places. */
		forged_make(forgery, i);
		forged_put(forgery->data + FORGED_ROOT, (uintptr_t)forged_table(forgery, 1));
		expect_refused(-ENOTSUP);

		forged_make(forgery, i);
		memset(forged_entry(forgery, last, (uintptr_t)forgery->heap), 0, 4096);
		expect_refused(-ENOTSUP);

		forged_make(forgery, i);
		forged_put(forgery->block + 32, 8192); /* no block */
		expect_refused(-ENOENT);
	}
}

/* Only data with room for a first table is searched. */
static void test_absent(void **state)
{
	struct process_map map = {.readable = 1, .path = ""};
	struct process_maps maps = {&map, 1};
	char version[ALLOCATOR_VERSION];
	struct space *space;
	void *opened;

	(void)state;
	assert_int_equal(space_open(&space, getpid()), 0);
	assert_int_equal(jemalloc_allocator.open(&opened, space, &maps, version), -ENOENT);
	map = (struct process_map){.path = "/usr/lib/libjemalloc.so.1", .inode = 7};
	assert_int_equal(jemalloc_allocator.open(&opened, space, &maps, version), -ENOTSUP);
	space_close(space);
}

static void test_large(void **state)
{
	struct jemalloc_extent extent = {.bytes = 5 * PAGE};
	uint64_t pad = 0;
	struct jemalloc_sizes sizes;

	(void)state;
	forged_sizes(&sizes);
	assert_int_equal(jemalloc_sizes_small(&sizes), 36);
	/* 16 KiB and a page, or 20 KiB: its class tells. */
	for (extent.size_class = 36; sizes.bytes[extent.size_class] > 16384;)
		extent.size_class--;
	assert_int_equal(jemalloc_large_bytes(&extent, &sizes, &pad), 16384);
	assert_int_equal(pad, PAGE);
	extent.size_class++;
	assert_int_equal(jemalloc_large_bytes(&extent, &sizes, &pad), 20480);
	assert_int_equal(pad, 0);
	/* 44 KiB or 40: only that the block begins within its page tells. */
	extent.size_class = 42;
	assert_int_equal(sizes.bytes[42], 49152);
	extent.bytes = 12 * PAGE;
	assert_int_equal(jemalloc_large_bytes(&extent, &sizes, &pad), 49152);
	extent.address = 64;
	assert_int_equal(jemalloc_large_bytes(&extent, &sizes, &pad), 45056);
	/* A small one that was sampled. */
	extent.size_class = 3;
	assert_int_equal(jemalloc_large_bytes(&extent, &sizes, &pad), 48);
}

static void test_version(void **state)
{
	static const char text[] = "x\0-g\0-1-g\0a5.1.0-0-g1\0"
				   "5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0more";
	char version[ALLOCATOR_VERSION];

	(void)state;
	assert_int_equal(jemalloc_version_find(text, sizeof(text), version), 0);
	assert_string_equal(version, "5.3.0");
	assert_int_equal(jemalloc_version_find(text, 20, version), -ENOENT);
	assert_int_equal(jemalloc_version_find("5.3.0-0-g5", 10, version), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),    cmocka_unit_test(test_inconsistent),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_absent),
		cmocka_unit_test(test_large),   cmocka_unit_test(test_version),
	};

	forgery = forged_new();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
