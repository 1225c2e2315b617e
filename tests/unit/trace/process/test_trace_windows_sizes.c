/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks of a process traced in windows, where malloc's heap is walked: as records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "census_records.h"
#include "ranges.h"
#include "snapshot/estimate.h"
#include "trace/blocks/chunk_table.h"

#define LARGE 0x7d0000000010ull
#define SMALL 1000u /* two sizes of large blocks */
#define BIG   2000u
#define TYPE  77u

static int setup_windowed(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE | EVENT_MODE_LARGE_WINDOWS);
}

/* Large blocks are traced all the time. */
static int setup_always(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static int setup_3_8(void **state)
{
	return setup_python(state, 0x030800f0, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static uint64_t large_at(unsigned int i)
{
	return LARGE + (uint64_t)i * 4096;
}

/* A block that is shown in the open window. */
static void see(struct trace *trace, unsigned int i, uint64_t bytes)
{
	struct {
		struct event_census_large event;
		struct event_large_block block;
	} record = {.event = {.header = header_of(EVENT_CENSUS_LARGE, sizeof(record)), .count = 1},
		    .block = {large_at(i), bytes + 8, {TYPE, 1}}};

	put_by(trace, TGID, large_at(i), bytes, EVENT_API_LARGE);
	put_by(trace, TGID, large_at(9999), bytes, EVENT_API_LARGE);
	assert_int_equal(trace_feed(trace, &record, sizeof(record)), 0);
}

/* A window shows three blocks of the smaller size. */
static void show_small(struct trace *trace)
{
	window(trace, 10 * S, 0);
	for (unsigned int i = 30; i < 33; i++)
		see(trace, i, SMALL);
	window(trace, 10 * S, 11 * S);
}

/* Walks both heaps: chunks [0, small) and [small, small + big), and one block in a pool. */
static void heaps(struct trace *trace, uint64_t id, unsigned int small, unsigned int big,
		  uint64_t large_blocks)
{
	struct {
		struct event_census_chunks event;
		struct event_chunk chunks[EVENT_CHUNKS_MAX];
	} record = {
		.event = {.flags = EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST, .count = small + big}};
	struct {
		struct event_census_kinds event;
		struct event_census_kind kind;
	} shown = {{.header = header_of(EVENT_CENSUS_KINDS, sizeof(shown)),
		    .id = id,
		    .address = POOL,
		    .block_bytes = BLOCK,
		    .count = 1},
		   {TYPE, 1}};
	struct event_census end = end_of(id);

	record.event.header =
		header_of(EVENT_CENSUS_CHUNKS,
			  sizeof(record.event) + (small + big) * sizeof(record.chunks[0]));
	for (unsigned int i = 0; i < small + big; i++)
		record.chunks[i] =
			(struct event_chunk){large_at(i), chunk_units(i < small ? SMALL : BIG), 0};
	assert_int_equal(trace_feed(trace, &record, record.event.header.size), 0);
	begin(trace, id);
	pool(trace, id, LIVE(0));
	assert_int_equal(trace_feed(trace, &shown, sizeof(shown)), 0);
	end.large_blocks = large_blocks;
	end.baseline = id == 1;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
}

/* A live view is told what a report says. */
static void expect_sums(const struct trace *trace, const struct snapshot *snapshot)
{
	size_t stacks = trace_stack_count(trace, 0);
	struct trace_sum *sums = calloc(stacks + 1, sizeof(*sums));
	double count = 0, size = 0;

	trace_sums(trace, 0, EVENT_LAYER_PYTHON, NULL, sums);
	for (size_t i = 0; i < stacks; i++) {
		count += sums[i].count;
		size += sums[i].size;
	}
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		count -= (double)snapshot->traces[i].count;
		size -= (double)snapshot->traces[i].count * (double)snapshot->traces[i].bytes;
	}
	assert_true(count > -1 && count < 1);
	assert_true(size > -(double)BIG && size < BIG);
	free(sums);
}

/* How many blocks of a size there are in lines: new ones, and older ones by donor. */
static void expect_lines(struct trace *trace, uint64_t bytes, uint64_t new, uint64_t old)
{
	struct snapshot *snapshot;
	uint64_t counts[2] = {0};

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].bytes == bytes)
			counts[0] += snapshot->traces[i].count;
	for (size_t i = 0; i < snapshot->layers[SNAPSHOT_OLDER].trace_count; i++)
		if (snapshot->layers[SNAPSHOT_OLDER].traces[i].bytes == bytes)
			counts[1] += snapshot->layers[SNAPSHOT_OLDER].traces[i].count;
	assert_int_equal(counts[0], new);
	assert_int_equal(counts[1], old);
	expect_sums(trace, snapshot);
	snapshot_free(snapshot);
}

/* Of each size there are as many as malloc's heap has, though windows have shown a few of them. */
static void test_windowed(void **state)
{
	struct trace *trace = *state;

	heaps(trace, 1, 20, 0, 20);
	window(trace, 10 * S, 0);
	for (unsigned int i = 30; i < 33; i++)
		see(trace, i, SMALL);
	see(trace, 65, BIG);
	window(trace, 10 * S, 11 * S);
	heaps(trace, 2, 60, 10, 70);
	expect_lines(trace, SMALL, 40, 20);
	expect_lines(trace, BIG, 10, 0);
}

/* Half of the older chunks and three quarters of the new ones are Python's. */
static void test_shared(void **state)
{
	struct trace *trace = *state;

	heaps(trace, 1, 20, 0, 10);
	show_small(trace);
	heaps(trace, 2, 60, 0, 40);
	expect_lines(trace, SMALL, 30, 10);
}

/* Half of what the first walk takes for older blocks is new, by the interpreter's count. */
static void test_before_the_first_walk(void **state)
{
	struct trace *trace = *state;

	heaps(trace, 1, 20, 0, 10);
	show_small(trace);
	heaps(trace, 2, 60, 0, 60);
	expect_lines(trace, SMALL, 50, 10);
}

/* Of a report's total, where rows that no window has shown are a part. */
static uint64_t total_error(struct trace *trace)
{
	struct snapshot *snapshot;
	struct estimate sum = {0};

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		estimate_add_trace(&sum, snapshot, &snapshot->traces[i]);
	snapshot_free(snapshot);
	estimate_include_unseen(&sum);
	return estimate_count_error(&sum);
}

/* So do two more, so that no row has been shown by chance alone. */
static void show_small_often(struct trace *trace)
{
	show_small(trace);
	for (unsigned int i = 33; i < 35; i++) {
		window(trace, (i - 21) * S, 0);
		see(trace, i, SMALL);
		window(trace, (i - 21) * S, (i - 20) * S);
	}
}

/*
 * Half of the older chunks are gone, of which half were Python's: it has none or 20 of those left,
 * and 50 or 30 new blocks.
 */
static void test_older_gone(void **state)
{
	struct trace *trace = *state;

	heaps(trace, 1, 20, 20, 20);
	show_small_often(trace);
	heaps(trace, 2, 60, 0, 50);
	expect_lines(trace, SMALL, 40, 10);
	assert_uint_in_range(total_error(trace), 10, 12);
}

/* All older ones are alive: the interpreter's count tells the total. */
static void test_older_alive(void **state)
{
	struct trace *trace = *state;

	heaps(trace, 1, 20, 0, 10);
	show_small_often(trace);
	heaps(trace, 2, 60, 0, 50);
	expect_lines(trace, SMALL, 40, 10);
	assert_int_equal(total_error(trace), 0);
}

/* Only the older ones are estimated, by those that are alive now. */
static void test_always(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	heaps(trace, 1, 20, 5, 25);
	for (unsigned int i = 30; i < 33; i++)
		put_by(trace, TGID, large_at(i), SMALL, EVENT_API_LARGE);
	window(trace, 10 * S, 0);
	window(trace, 10 * S, 11 * S);
	heaps(trace, 2, 20, 5, 28);
	expect_lines(trace, SMALL, 3, 20);
	expect_lines(trace, BIG, 0, 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.windows.malloc_blocks, 20 + 5 + 3);
	/* The others are of a size that nobody allocates now; one more is in the pool. */
	assert_int_equal(snapshot->meta.windows.old_unseen_blocks, 5 + 1);
	snapshot_free(snapshot);
}

/* 3.8 does not count its large blocks: new chunks of malloc's are taken for other libraries'. */
static void test_always_uncounted(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	heaps(trace, 1, 20, 0, 0);
	put_by(trace, TGID, large_at(30), SMALL, EVENT_API_LARGE);
	window(trace, 10 * S, 0);
	window(trace, 10 * S, 11 * S);
	heaps(trace, 2, 20, 5, 0);
	expect_lines(trace, SMALL, 1, 20);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.windows.unseen_blocks, 0);
	snapshot_free(snapshot);
}

/* Large blocks are not traced any more: what malloc had given out is not counted either. */
static void test_given_up(void **state)
{
	struct trace *trace = *state;
	struct event_mode_change change = {.header = header_of(EVENT_MODE_CHANGE, sizeof(change)),
					   .mode = EVENT_MODE_WINDOWS};
	struct snapshot *snapshot;

	heaps(trace, 1, 20, 0, 20);
	change.header.time_ns = 5 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	window(trace, 10 * S, 0);
	window(trace, 10 * S, 11 * S);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.windows.malloc_blocks, 0);
	snapshot_free(snapshot);
}

/*
 * Large blocks are traced all the time, and then in windows: of the line whose blocks were seen
 * before, there may be others between windows. So its figure is no exact one.
 */
static void test_windowed_later(void **state)
{
	struct trace *trace = *state;
	struct event_mode_change change = {.header = header_of(EVENT_MODE_CHANGE, sizeof(change)),
					   .mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE |
						   EVENT_MODE_LARGE_WINDOWS};
	struct snapshot *snapshot;
	struct estimate sum = {0};

	heaps(trace, 1, 20, 0, 20);
	for (unsigned int i = 30; i < 40; i++)
		put_by(trace, TGID, large_at(i), SMALL, EVENT_API_LARGE);
	change.header.time_ns = 5 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	window(trace, 10 * S, 0);
	window(trace, 10 * S, 11 * S);
	heaps(trace, 2, 26, 0, 36);
	expect_lines(trace, SMALL, 16, 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		estimate_add_trace(&sum, snapshot, &snapshot->traces[i]);
	assert_uint_in_range(estimate_count_error(&sum), 6, 16);
	assert_int_equal(snapshot->meta.windows.unseen_bytes, 0);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_windowed, setup_windowed, teardown),
		cmocka_unit_test_setup_teardown(test_shared, setup_windowed, teardown),
		cmocka_unit_test_setup_teardown(test_before_the_first_walk, setup_windowed,
						teardown),
		cmocka_unit_test_setup_teardown(test_older_gone, setup_windowed, teardown),
		cmocka_unit_test_setup_teardown(test_older_alive, setup_windowed, teardown),
		cmocka_unit_test_setup_teardown(test_always, setup_always, teardown),
		cmocka_unit_test_setup_teardown(test_always_uncounted, setup_3_8, teardown),
		cmocka_unit_test_setup_teardown(test_given_up, setup_always, teardown),
		cmocka_unit_test_setup_teardown(test_windowed_later, setup_always, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
