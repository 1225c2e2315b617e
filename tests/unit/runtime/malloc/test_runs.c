/* SPDX-License-Identifier: Apache-2.0 */
/* How what an allocator's walk visits is put together. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/malloc/runs.h"

struct seen {
	struct allocator_run runs[8];
	size_t count, stop_at; /* stop_at: 0: never */
};

static struct allocator_totals totals;

static int run_see(const struct allocator_run *run, void *context)
{
	struct seen *seen = context;

	assert_true(seen->count < 8);
	seen->runs[seen->count++] = *run;
	return seen->count == seen->stop_at ? -EINTR : 0;
}

static void assert_run(const struct allocator_run *run, uint64_t address, uint64_t block_bytes,
		       uint64_t count, enum allocator_kind kind)
{
	assert_int_equal(run->address, address);
	assert_int_equal(run->block_bytes, block_bytes);
	assert_int_equal(run->count, count);
	assert_int_equal(run->kind, kind);
}

static void test_put(void **state)
{
	struct seen seen = {0};
	struct runs runs = {.visit = run_see, .context = &seen, .totals = &totals};

	(void)state;
	totals = (struct allocator_totals){0};
	assert_int_equal(runs_put(&runs, 4096, 64, 2, ALLOCATOR_USED), 0);
	assert_int_equal(runs_put(&runs, 4096 + 128, 64, 1, ALLOCATOR_USED), 0); /* joined */
	assert_int_equal(runs_put(&runs, 4096 + 192, 64, 1, ALLOCATOR_FREE), 0);
	assert_int_equal(runs_put(&runs, 4096 + 256, 32, 1, ALLOCATOR_FREE), 0);
	assert_int_equal(runs_put(&runs, 8192, 0, 5, ALLOCATOR_FREE), 0); /* nothing */
	assert_int_equal(totals.cut, 0);
	/* Before the end of what was put; beyond all addresses. */
	assert_int_equal(runs_put(&runs, 4096 + 256, 32, 1, ALLOCATOR_FREE), 0);
	assert_int_equal(runs_put(&runs, 1ull << 46, 1ull << 46, 2, ALLOCATOR_USED), 0);
	assert_int_equal(runs_put(&runs, 8192, UINT64_MAX / 2, 3, ALLOCATOR_USED), 0);
	assert_int_equal(totals.cut, 3);
	assert_int_equal(runs_end(&runs), 0);
	assert_int_equal(runs_end(&runs), 0);
	assert_int_equal(seen.count, 3);
	assert_run(&seen.runs[0], 4096, 64, 3, ALLOCATOR_USED);
	assert_run(&seen.runs[1], 4096 + 192, 64, 1, ALLOCATOR_FREE);
	assert_run(&seen.runs[2], 4096 + 256, 32, 1, ALLOCATOR_FREE);
}

static void test_stop(void **state)
{
	struct seen seen = {.stop_at = 1};
	struct runs runs = {.visit = run_see, .context = &seen, .totals = &totals};

	(void)state;
	totals = (struct allocator_totals){0};
	assert_int_equal(runs_put(&runs, 4096, 64, 1, ALLOCATOR_USED), 0);
	assert_int_equal(runs_put(&runs, 8192, 64, 1, ALLOCATOR_USED), -EINTR);
}

static void test_blocks(void **state)
{
	static const uint8_t states[] = {ALLOCATOR_USED, ALLOCATOR_FREE, ALLOCATOR_FREE,
					 ALLOCATOR_CACHED, ALLOCATOR_USED};
	struct seen seen = {0};
	struct runs runs = {.visit = run_see, .context = &seen, .totals = &totals};

	(void)state;
	totals = (struct allocator_totals){0};
	struct allocator_class *class = runs_class(&totals, 48);
	assert_int_equal(runs_put_blocks(&runs, 65536, 48, states, 5, class), 0);
	assert_int_equal(runs_end(&runs), 0);
	assert_int_equal(seen.count, 4);
	assert_run(&seen.runs[1], 65536 + 48, 48, 2, ALLOCATOR_FREE);
	assert_run(&seen.runs[2], 65536 + 144, 48, 1, ALLOCATOR_CACHED);
	assert_int_equal(class->used, 2);
	assert_int_equal(class->free, 2);
	assert_int_equal(class->cached, 1);
}

static void test_classes(void **state)
{
	(void)state;
	totals = (struct allocator_totals){0};
	for (uint64_t i = ALLOCATOR_CLASSES; i; i--)
		runs_class(&totals, i * 16)->slabs = i;
	assert_int_equal(totals.class_count, ALLOCATOR_CLASSES);
	for (uint64_t i = 1; i <= ALLOCATOR_CLASSES; i++) {
		assert_int_equal(totals.classes[i - 1].block_bytes, i * 16);
		assert_int_equal(runs_class(&totals, i * 16)->slabs, i);
	}
	assert_null(runs_class(&totals, 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_classes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
