/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of mimalloc's segments, pages and lists, honest and forged. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "mimalloc_forgery.h"
#include "util/error.h"

static const uint32_t versions[] = {0x030d, 0x030e, 0x030f};

/* What a walk gave. */
struct given {
	uint64_t last_end; /* pieces come in order and do not overlap */
	uint64_t pieces, live, waiting, unreadable;
	uint64_t lowest_live;
};

static int give(const struct heap_pool *pool, void *context)
{
	struct given *given = context;

	assert_true(pool->start >= given->last_end && pool->end > pool->start);
	assert_true(pool->address >= pool->start);
	assert_true(pool->arena == FORGED_SEGMENT && pool->arena_head == FORGED_SLICE);
	given->last_end = pool->end;
	given->pieces++;
	given->unreadable += !pool->block_bytes;
	assert_true(pool->count <= 1024);
	for (uint32_t i = 0; pool->block_bytes && i < pool->count; i++) {
		given->live += heap_pool_live(pool, i);
		given->waiting += pool->state[i] == HEAP_BLOCK_WAITING;
		if (heap_pool_live(pool, i) && !given->lowest_live)
			given->lowest_live = pool->address + i * pool->block_bytes;
	}
	return 0;
}

static struct given walk_of(struct mimalloc_forgery *forgery, struct heap_walk *walk)
{
	struct given given = {0};

	assert_int_equal(forged_walk(forgery, give, &given, walk), 0);
	assert_int_equal(walk->blocks, given.live);
	assert_int_equal(walk->waiting_blocks, given.waiting);
	assert_int_equal(walk->pools_unreadable, given.unreadable);
	return given;
}

static struct given given_of(struct mimalloc_forgery *forgery)
{
	struct heap_walk walk;

	return walk_of(forgery, &walk);
}

/* Puts blocks of the page on one of its lists, and takes them off its count of used ones. */
static void list_put(struct mimalloc_forgery *forgery, uint32_t slice, uint32_t block_bytes,
		     uint32_t list, const uint32_t *numbers, uint32_t count, uint64_t flags)
{
	uint8_t *page = forged_slice(forgery, slice), *link = page + list;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t block = forged_block(slice, block_bytes, numbers[i]);

		forged_put(link, block | (i ? 0 : flags), 8);
		link = forged_at(forgery, block);
	}
}

static void used_put(struct mimalloc_forgery *forgery, uint32_t slice, uint32_t used)
{
	forged_put(forged_slice(forgery, slice) + forgery->at->page_used, used, 4);
}

static void test_pages(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		struct mimalloc_forgery *forgery = forged_new(versions[i]);
		const struct free_threaded_offsets *at = forgery->at;
		struct heap_walk walk;
		struct given given;

		forged_page(forgery, 1, 48, 100);
		list_put(forgery, 1, 48, at->page_free, (uint32_t[]){0, 5}, 2, 0);
		list_put(forgery, 1, 48, at->page_local, (uint32_t[]){7}, 1, 0);
		/* Blocks that other threads returned still count as used. */
		list_put(forgery, 1, 48, at->page_thread, (uint32_t[]){9, 8}, 2, 2);
		used_put(forgery, 1, 97);
		forged_page(forgery, 2, 8192, 3);
		/* A piece has at most 1024 blocks, and 16 KiB. */
		forged_page(forgery, 4, 8, 2000);
		given = walk_of(forgery, &walk);
		assert_int_equal(given.live, 95 + 3 + 2000);
		assert_int_equal(given.lowest_live, forged_block(1, 48, 1));
		assert_int_equal(given.pieces, 1 + 2 + 2);
		assert_int_equal(walk.bytes, 95 * 48 + 3 * 8192 + 2000 * 8);
		assert_true(walk.is_mimalloc && walk.arenas == 1 && !walk.pools_unreadable);
		free(forgery);
	}
}

/* The heaps of a release that has other fields before them are found. */
static void test_shifted(void **state)
{
	const uint32_t shifts[] = {8, 64, 2048, (uint32_t)-32};

	(void)state;
	for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		struct mimalloc_forgery *forgery = forged_new(0x030e);

		forged_thread(forgery, shifts[i]);
		forged_page(forgery, 1, 64, 10);
		assert_int_equal(given_of(forgery).live, 10);
		free(forgery);
	}
}

static void test_not_proven(void **state)
{
	struct mimalloc_forgery *forgery = forged_new(0x030e);
	struct given given = {0};
	struct heap_walk walk;

	(void)state;
	forged_thread(forgery, 4096);
	assert_int_equal(forged_walk(forgery, give, &given, &walk), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "near 944 in their states"));
	free(forgery);
}

/* Blocks that were returned to a heap, and those that wait for readers. */
static void test_lists_of_threads(void **state)
{
	struct mimalloc_forgery *forgery = forged_new(0x030e);
	const struct free_threaded_offsets *at = forgery->at;
	uint64_t one = forged_block(1, 64, 3), two = forged_block(1, 64, 4);
	uint8_t *chunk = forgery->thread + 20000, *queue = forgery->thread + at->tstate_queue;
	struct given given;

	(void)state;
	forged_page(forgery, 1, 64, 10);
	forged_put(forgery->thread + at->tstate_heaps + 2 * at->heap_bytes + at->heap_delayed, one,
		   8);
	forged_put(forged_at(forgery, one), two, 8);
	assert_int_equal(given_of(forgery).live, 8);
	/* {next, previous}, first and last item, items {block, goal} */
	forged_put(queue, FORGED_THREAD + 20000, 8);
	forged_put(queue + 8, FORGED_THREAD + 20000, 8);
	forged_put(chunk, FORGED_THREAD + at->tstate_queue, 8);
	forged_put(chunk + 8, FORGED_THREAD + at->tstate_queue, 8);
	forged_put(chunk + 16, 1, 8);
	forged_put(chunk + 24, 3, 8);
	forged_put(chunk + 32, forged_block(1, 64, 0), 8);
	forged_put(chunk + 48, forged_block(1, 64, 1), 8);
	forged_put(chunk + 64, forged_block(1, 64, 2) | 1, 8);
	given = given_of(forgery);
	assert_int_equal(given.live, 8);
	assert_int_equal(given.waiting, 2);
	/* A list whose first node does not lead back to it is none. */
	forged_put(chunk + 8, FORGED_THREAD, 8);
	assert_int_equal(given_of(forgery).waiting, 0);
	/* One that leads to itself ends. */
	forged_put(chunk + 8, FORGED_THREAD + at->tstate_queue, 8);
	forged_put(chunk, FORGED_THREAD + 20000, 8);
	assert_int_equal(given_of(forgery).waiting, 2);
	forged_put(forged_at(forgery, two), one, 8);
	assert_int_equal(given_of(forgery).live, 8);
	free(forgery);
}

/* The segments of threads that have ended are in the interpreter's pool. */
static void test_abandoned(void **state)
{
	struct mimalloc_forgery *forgery = forged_new(0x030e);
	const struct free_threaded_offsets *at = forgery->at;
	uint8_t *pool = forgery->interp + 4096;

	(void)state;
	forged_page(forgery, 1, 64, 10);
	forged_put(forgery->thread + at->tstate_heaps + 2 * at->heap_bytes + at->heap_queues +
			   at->queue_bytes,
		   0, 8);
	/* The lower bits are a counter; a list that leads to itself ends. */
	forged_put(pool + at->abandoned_list, FORGED_SEGMENT + 77, 8);
	forged_put(forgery->segment + at->segment_next, FORGED_SEGMENT, 8);
	assert_int_equal(given_of(forgery).live, 10);
	forged_put(pool + at->abandoned_list, 0, 8);
	forged_put(pool + at->abandoned_visited, FORGED_SEGMENT, 8);
	assert_int_equal(given_of(forgery).live, 10);
	free(forgery);
}

/* Each lie makes the page unreadable, and leaves the next one as it is. */
static void test_damaged_pages(void **state)
{
	(void)state;
	for (unsigned int lie = 0; lie < 7; lie++) {
		struct mimalloc_forgery *forgery = forged_new(0x030e);
		const struct free_threaded_offsets *at = forgery->at;
		uint8_t *page = forged_slice(forgery, 1);
		uint64_t block = forged_block(1, 64, 2);
		struct given given;

		forged_page(forgery, 1, 64, 10);
		forged_page(forgery, 2, 64, 10);
		if (lie == 0)
			used_put(forgery, 1, 9);
		else if (lie == 1)
			forged_put(page + at->page_reserved, 7, 2);
		else if (lie == 2)
			forged_put(page + at->page_capacity, 2000, 2);
		else if (lie == 3)
			forged_put(page + at->page_free, block + 8, 8);
		else if (lie == 4)
			forged_put(page + at->page_free, forged_block(1, 64, 10), 8);
		else if (lie == 5)
			forged_put(page + at->page_block, 12, 4);
		else
			forged_put(page + at->page_free, block, 8);
		/* The last one: a list that leads to itself. */
		forged_put(forged_at(forgery, block), block, 8);
		given = given_of(forgery);
		assert_int_equal(given.live, 10);
		assert_int_equal(given.unreadable, 4);
		free(forgery);
	}
}

static void test_damaged_segments(void **state)
{
	(void)state;
	for (unsigned int lie = 0; lie < 4; lie++) {
		struct mimalloc_forgery *forgery = forged_new(0x030e);
		const struct free_threaded_offsets *at = forgery->at;
		struct given given = {0};
		struct heap_walk walk;

		forged_page(forgery, 1, 64, 10);
		if (lie == 0)
			forged_put(forgery->segment + at->segment_info, 2, 8);
		else if (lie == 1)
			forged_put(forgery->segment + at->segment_entries, 1u << 20, 8);
		else if (lie == 2)
			forged_put(forgery->segment + at->segment_count, 511, 8);
		else
			forged_put(forgery->segment + at->segment_count, 1ull << 60, 8);
		assert_int_equal(forged_walk(forgery, give, &given, &walk), -ENODATA);
		free(forgery);
	}
}

/* Queues, threads and slices that lead to themselves, and slices of no length, end. */
static void test_cycles(void **state)
{
	struct mimalloc_forgery *forgery = forged_new(0x030e);
	const struct free_threaded_offsets *at = forgery->at;

	(void)state;
	forged_page(forgery, 1, 64, 10);
	forged_put(forged_slice(forgery, 1) + at->page_next,
		   FORGED_SEGMENT + at->segment_slices + at->page_bytes, 8);
	for (uint32_t i = 2; i < 16; i++)
		forged_put(forged_slice(forgery, i) + at->page_slices, i % 2 ? 0 : 4000000000u, 4);
	assert_int_equal(given_of(forgery).live, 10);
	free(forgery);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_shifted),
		cmocka_unit_test(test_not_proven),
		cmocka_unit_test(test_lists_of_threads),
		cmocka_unit_test(test_abandoned),
		cmocka_unit_test(test_damaged_pages),
		cmocka_unit_test(test_damaged_segments),
		cmocka_unit_test(test_cycles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
