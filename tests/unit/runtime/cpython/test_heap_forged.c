/* SPDX-License-Identifier: Apache-2.0 */
/* Heap walks through forged pools, free lists and arenas. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "heap_seen.h"
#include "runtime/cpython/heap.h"

/* A heap with 3.13's layout in this process: one interpreter, one arena, pool 0 in use. */
struct forgery {
	struct python_runtime runtime;
	uint8_t *cpython; /* _PyRuntime */
	uint8_t *interp, *obmalloc, *objects, *arena, *pool;
	const struct heap_offsets *heap;
};

#define BLOCK  64u
#define CARVED 10u

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static void put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint64_t address_of(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}

static uint8_t *block_at(const struct forgery *forgery, unsigned int number)
{
	return forgery->pool + forgery->heap->pool_header_size + (size_t)number * BLOCK;
}

static void free_list(const struct forgery *forgery, const unsigned int *numbers,
		      unsigned int count)
{
	uint8_t *link = forgery->pool + forgery->heap->pool_freeblock;

	for (unsigned int i = 0; i < count; i++) {
		put64(link, address_of(block_at(forgery, numbers[i])));
		link = block_at(forgery, numbers[i]);
	}
	put64(link, 0);
	put32(forgery->pool + forgery->heap->pool_count, CARVED - count);
}

static int forge(void **state)
{
	struct forgery *forgery = calloc(1, sizeof(*forgery));
	const struct python_offsets *offsets = offsets_for(0x030d, BUILD_RELEASE);
	const struct heap_offsets *heap = &offsets->heap;

	forgery->heap = heap;
	forgery->runtime.pid = getpid();
	assert_int_equal(space_open(&forgery->runtime.space, getpid()), 0);
	forgery->runtime.offsets = offsets;
	forgery->cpython = calloc(1, 4096);
	forgery->interp = calloc(1, 65536);
	forgery->obmalloc = calloc(1, 8192);
	forgery->objects = calloc(4, heap->arena_object_size);
	forgery->arena = aligned_alloc(heap->pool_bytes, heap->arena_bytes);
	memset(forgery->arena, 0, heap->arena_bytes);
	forgery->pool = forgery->arena;
	forgery->runtime.target.runtime = address_of(forgery->cpython);
	put64(forgery->cpython + offsets->abi.runtime_interpreters_head,
	      address_of(forgery->interp));
	put64(forgery->interp + heap->interp_obmalloc, address_of(forgery->obmalloc));
	put64(forgery->interp + offsets->abi.interp_threads_head, address_of(forgery->interp));
	/* pools.used[]: no size class has a pool with a free block. */
	for (uint32_t at = 0; at < heap->mgmt_arenas; at += 8)
		put64(forgery->obmalloc + at, address_of(forgery->obmalloc) + at / 16 * 16 - 16);
	put64(forgery->obmalloc + heap->mgmt_arenas, address_of(forgery->objects));
	put32(forgery->obmalloc + heap->mgmt_maxarenas, 4);
	put64(forgery->obmalloc + heap->mgmt_raw_blocks, 5);
	put64(forgery->objects + heap->arena_address, address_of(forgery->arena));
	put64(forgery->objects + heap->arena_pool_address,
	      address_of(forgery->arena) + 2 * heap->pool_bytes);
	put32(forgery->pool + heap->pool_szidx, BLOCK / 16 - 1);
	put32(forgery->pool + heap->pool_nextoffset, heap->pool_header_size + CARVED * BLOCK);
	put32(forgery->pool + heap->pool_maxnextoffset, heap->pool_bytes - BLOCK);
	free_list(forgery, (unsigned int[]){3, 9, 0}, 3);
	*state = forgery;
	return 0;
}

static int unforge(void **state)
{
	struct forgery *forgery = *state;

	space_close(forgery->runtime.space);
	free(forgery->cpython);
	free(forgery->interp);
	free(forgery->obmalloc);
	free(forgery->objects);
	free(forgery->arena);
	free(forgery);
	return 0;
}

/* Walks the forged heap and compares; unreadable pools contribute no block. */
static void expect(const struct forgery *forgery, uint64_t blocks, uint64_t unreadable)
{
	struct heap_walk walk;
	struct seen seen = {0};

	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &walk), 0);
	assert_int_equal(walk.blocks, blocks);
	assert_int_equal(walk.bytes, blocks * BLOCK);
	assert_int_equal(seen.blocks, blocks);
	assert_int_equal(walk.pools_unreadable, unreadable);
	assert_int_equal(walk.raw_blocks, 5);
}

static void test_forged(void **state)
{
	struct forgery *forgery = *state;
	struct heap_walk walk;
	struct seen seen = {.known = address_of(block_at(forgery, 4))};

	expect(forgery, 7, 0);
	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &walk), 0);
	assert_int_equal(seen.known_bytes, BLOCK);
	assert_int_equal(walk.arenas, 1);
	assert_int_equal(walk.pools, 1);
	seen = (struct seen){.known = address_of(block_at(forgery, 9))}; /* this block is free */
	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &walk), 0);
	assert_int_equal(seen.known_bytes, 0);
}

static void test_forged_lists(void **state)
{
	struct forgery *forgery = *state;

	put64(block_at(forgery, 0), address_of(block_at(forgery, 3))); /* a cycle */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, 0)));
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, 2)) + 8); /* between two blocks */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, CARVED))); /* never allocated */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(forgery->pool)); /* the pool header */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), UINT64_MAX);
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), 0);
	expect(forgery, 7, 0);
}

static void test_forged_headers(void **state)
{
	struct forgery *forgery = *state;
	uint8_t *pool = forgery->pool;
	const struct heap_offsets *heap = forgery->heap;

	put32(pool + heap->pool_count, 8); /* one more than exist */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_count, UINT32_MAX);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_count, 7);
	put32(pool + heap->pool_szidx, 32); /* beyond 512 bytes */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_szidx, UINT32_MAX); /* size 0 */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_szidx, BLOCK / 16 - 1);
	put32(pool + heap->pool_nextoffset, heap->pool_bytes + 16);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_nextoffset, 0);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_nextoffset, heap->pool_header_size + CARVED * BLOCK);
	put32(pool + heap->pool_maxnextoffset, 0);
	expect(forgery, 0, 1);
}

static uint64_t arenas_lost(const struct forgery *forgery)
{
	struct heap_walk walk;

	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), 0);
	return walk.arenas_lost;
}

static void test_forged_arenas(void **state)
{
	struct forgery *forgery = *state;
	const struct heap_offsets *heap = forgery->heap;
	uint8_t *second = forgery->objects + heap->arena_object_size;
	struct heap_walk walk;

	/* An unmapped arena beside a valid one: its pools are counted, and nothing else happens. */
	put64(second + heap->arena_address, 1 << 20);
	put64(second + heap->arena_pool_address, (1 << 20) + 3 * heap->pool_bytes);
	expect(forgery, 7, 3);
	assert_int_equal(arenas_lost(forgery), 0);
	put64(second + heap->arena_pool_address, UINT64_MAX); /* invalid: all pools of that arena */
	expect(forgery, 7, heap->arena_bytes / heap->pool_bytes);
	put64(second + heap->arena_address, UINT64_MAX - 7);
	expect(forgery, 7, heap->arena_bytes / heap->pool_bytes);
	assert_int_equal(arenas_lost(forgery), 1); /* its blocks must not be taken for dead */
	put64(forgery->objects + heap->arena_address, 12345); /* invalid arenas only */
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -ENOTSUP);
	put32(forgery->obmalloc + heap->mgmt_maxarenas, UINT32_MAX);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -ENOTSUP);
	put32(forgery->obmalloc + heap->mgmt_maxarenas, 4);
	put64(forgery->obmalloc + heap->mgmt_arenas, 4096); /* not mapped */
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -EFAULT);
	put64(forgery->obmalloc + heap->mgmt_arenas, 0);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -ENOTSUP);
}

static void test_forged_interpreters(void **state)
{
	struct forgery *forgery = *state;
	const struct python_offsets *offsets = forgery->runtime.offsets;
	struct heap_walk walk;

	uint8_t *second = calloc(1, 65536);

	/* Two interpreters share one heap, which counts once. */
	memcpy(second, forgery->interp, 65536);
	put64(forgery->interp + offsets->abi.interp_next, address_of(second));
	expect(forgery, 7, 0);
	/* A list that never ends. */
	put64(second + offsets->abi.interp_next, address_of(second));
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -ENOTSUP);
	free(second);
	put64(forgery->cpython + offsets->abi.runtime_interpreters_head, 4096);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &walk), -EFAULT);
}

#define FORGED(test) cmocka_unit_test_setup_teardown(test, forge, unforge)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FORGED(test_forged),
		FORGED(test_forged_lists),
		FORGED(test_forged_headers),
		FORGED(test_forged_arenas),
		FORGED(test_forged_interpreters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
