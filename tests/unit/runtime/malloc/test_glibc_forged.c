/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused, and lies about heaps, in this process's own memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc/memory.h"
#include "runtime/malloc/find.h"
#include "runtime/malloc/walk.h"
#include "util/error.h"

#define HEAP_BYTES 8192u

struct forged {
	uint8_t arena[4096] __attribute__((aligned(64)));
	uint8_t heap[HEAP_BYTES] __attribute__((aligned(4096)));
};

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, 8);
}

static void bins_make(uint8_t *bins, uint64_t address)
{
	for (uint32_t bin = 0; bin < GLIBC_BINS; bin++) {
		put64(bins + bin * 16, address + bin * 16 - 16);
		put64(bins + bin * 16 + 8, address + bin * 16 - 16);
	}
}

/* Two chunks of 64 and 128 bytes, the first free, and top. */
static struct forged *forge(unsigned int minor)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(glibc_layout_for(minor));
	struct forged *forged = aligned_alloc(4096, sizeof(*forged));

	memset(forged, 0, sizeof(*forged));
	bins_make(forged->arena + offsets.bins, (uintptr_t)forged->arena + offsets.bins);
	put64(forged->arena + offsets.top, (uintptr_t)forged->heap + 192);
	put64(forged->arena + offsets.next, (uintptr_t)forged->arena);
	put64(forged->arena + offsets.system_mem, HEAP_BYTES);
	put64(forged->heap + 8, 64 | GLIBC_PREV_INUSE);
	put64(forged->heap + 64, 64);
	put64(forged->heap + 72, 128);
	put64(forged->heap + 200, (HEAP_BYTES - 192) | GLIBC_PREV_INUSE);
	return forged;
}

static int forged_open(struct glibc **glibc, unsigned int minor, struct forged *forged)
{
	struct process_map map = {.start = (uintptr_t)forged->heap,
				  .end = (uintptr_t)forged->heap + HEAP_BYTES,
				  .path = "[heap]"};
	struct process_maps maps = {&map, 1};
	struct space *space;
	int err;

	assert_int_equal(space_open(&space, getpid()), 0);
	err = glibc_open_at(glibc, space, minor, (uintptr_t)forged->arena, 0, &maps);
	space_close(space);
	return err;
}

static void test_versions(void **state)
{
	const unsigned int known[] = {31, 34, 35, 41, 42, 43};
	struct process_maps maps = {0};
	struct glibc *glibc;

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_non_null(glibc_layout_for(known[i]));
	assert_null(glibc_layout_for(30));
	assert_null(glibc_layout_for(44));
	assert_int_equal(glibc_open_at(&glibc, NULL, 28, 0x1000, 0, &maps), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "2.28"));
	/* sizes as sizeof() in glibc's sources gives them */
	assert_int_equal(glibc_arena_offsets(glibc_layout_for(36)).bytes, 2200);
	assert_int_equal(glibc_tcache_chunk_bytes(glibc_layout_for(36)), 0x290);
	assert_int_equal(glibc_tcache_chunk_bytes(glibc_layout_for(42)), 0x300);
}

static void check_walk(unsigned int minor)
{
	struct forged *forged = forge(minor);
	struct glibc_totals totals;
	struct glibc *glibc;

	assert_int_equal(forged_open(&glibc, minor, forged), 0);
	assert_int_equal(glibc_walk(glibc, NULL, NULL, &totals), 0);
	assert_int_equal(totals.bytes[GLIBC_BIN], 64);
	assert_int_equal(totals.bytes[GLIBC_USED], 128);
	assert_int_equal(totals.bytes[GLIBC_TOP], HEAP_BYTES - 192);
	/* A free chunk whose size is not the one behind it: the rest cannot be read. */
	put64(forged->heap + 64, 80);
	assert_int_equal(glibc_look(glibc, &(struct process_maps){0}), 0);
	glibc_close(glibc);
	assert_int_equal(forged_open(&glibc, minor, forged), 0);
	assert_int_equal(glibc_walk(glibc, NULL, NULL, &totals), 0);
	assert_int_equal(totals.bytes[GLIBC_UNKNOWN], HEAP_BYTES);
	glibc_close(glibc);
	free(forged);
}

static void test_walk(void **state)
{
	(void)state;
	check_walk(31);
	check_walk(36);
	check_walk(43);
}

static void test_inconsistencies(void **state)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(glibc_layout_for(36));
	struct forged *forged = forge(36);
	struct glibc *glibc;

	(void)state;
	/* top ends behind the heap */
	put64(forged->heap + 200, HEAP_BYTES);
	assert_int_equal(forged_open(&glibc, 36, forged), -ENOTSUP);
	put64(forged->heap + 200, (HEAP_BYTES - 192) | GLIBC_PREV_INUSE);
	/* another arena that does not follow a heap_info */
	put64(forged->arena + offsets.next, (uintptr_t)forged->arena + 2304);
	put64(forged->arena + 2304 + offsets.top - 2304, (uintptr_t)forged->heap + 192);
	assert_int_equal(forged_open(&glibc, 36, forged), -ENOTSUP);
	/* a list of arenas that does not return */
	put64(forged->arena + offsets.next, (uintptr_t)forged->heap);
	put64(forged->heap + offsets.next, (uintptr_t)forged->heap);
	assert_int_equal(forged_open(&glibc, 36, forged), -ENOTSUP);
	free(forged);
}

static void test_find(void **state)
{
	const struct glibc_layout *layout = glibc_layout_for(36);
	struct glibc_arena_offsets offsets = glibc_arena_offsets(layout);
	uint8_t *bytes = calloc(1, 16384);
	uint64_t base = 0x7f0000000000, arena = 0, parameters;

	(void)state;
	assert_int_equal(glibc_find_arena(layout, bytes, 16384, base, &arena), -ENOENT);
	bins_make(bytes + 1024 + offsets.bins, base + 1024 + offsets.bins);
	/* top and last_remainder look like one more bin */
	put64(bytes + 1024 + offsets.top, 0x555500001000);
	put64(bytes + 1024 + offsets.top + 8, 0x555500002000);
	assert_int_equal(glibc_find_arena(layout, bytes, 16384, base, &arena), 0);
	assert_int_equal(arena, base + 1024);
	bins_make(bytes + 8192 + offsets.bins, base + 8192 + offsets.bins);
	assert_int_equal(glibc_find_arena(layout, bytes, 16384, base, &arena), -EEXIST);

	memset(bytes, 0, 16384);
	put64(bytes + 800, 0x555500000010); /* sbrk_base */
	put64(bytes + 808, 64);
	assert_int_equal(
		glibc_find_parameters(layout, bytes, 16384, base, 0x555500000000, &parameters), 0);
	assert_int_equal(parameters, base + 800);
	/* more blocks now than ever: something else */
	memset(bytes + 800 - 36, 1, 4);
	assert_int_equal(
		glibc_find_parameters(layout, bytes, 16384, base, 0x555500000000, &parameters),
		-ENOENT);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_inconsistencies),
		cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
