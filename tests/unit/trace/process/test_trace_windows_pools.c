/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that are taken into use when no window is open: as records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "census_records.h"
#include "trace/process/process_tables.h"

#define TYPE       77u
#define POOL_BYTES 16384u
#define POOLS      10u /* that are taken at once */
#define SEEN       3u
#define TAKEN      (POOLS * BLOCKS)

static int setup_windows(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static uint64_t pool_at(unsigned int number)
{
	return POOL + (uint64_t)number * POOL_BYTES;
}

static void take(struct trace *trace, unsigned int number)
{
	put_by(trace, TGID, pool_at(number), POOL_BYTES, EVENT_API_POOL);
}

/* A window in which the target sleeps, so that it is not slowed. */
static void idle_window(struct trace *trace, uint64_t start_ns, unsigned int seen)
{
	struct event_window end = {.header = header_of(EVENT_WINDOW, sizeof(end)),
				   .start_ns = start_ns,
				   .end_ns = start_ns + S};
	struct {
		struct event_census_kinds event;
		struct event_census_kind kinds[SEEN];
	} shown = {.event = {.header = header_of(EVENT_CENSUS_KINDS, sizeof(shown)),
			     .id = 0,
			     .address = POOL,
			     .block_bytes = BLOCK,
			     .count = SEEN}};

	window(trace, start_ns, 0);
	for (unsigned int i = 0; i < seen; i++) {
		put(trace, i);
		shown.kinds[i] = (struct event_census_kind){TYPE, 1};
	}
	/* The thread's last block may not be filled yet. */
	put_by(trace, TGID, at(9999), BLOCK - 1, EVENT_API_OBJ);
	if (seen)
		assert_int_equal(trace_feed(trace, &shown, sizeof(shown)), 0);
	end.header.time_ns = start_ns + S;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
}

/* A walk: count blocks in each pool. */
static void heap(struct trace *trace, uint64_t id, unsigned int pools, unsigned int count)
{
	struct {
		struct event_census_kinds event;
		struct event_census_kind kinds[BLOCKS];
	} shown = {.event = {.id = id, .block_bytes = BLOCK, .count = count}};
	size_t size = sizeof(shown.event) + count * sizeof(shown.kinds[0]);

	begin(trace, id);
	for (unsigned int i = 0; i < pools && count; i++) {
		struct pool_event event = pool_of(id, pool_at(i), BLOCK, count);

		for (unsigned int j = 0; j < count; j++) {
			event.bits[j / 64] |= 1ull << j % 64;
			shown.kinds[j] = (struct event_census_kind){TYPE, 1};
		}
		assert_int_equal(pool_feed(trace, &event), 0);
		shown.event.header = header_of(EVENT_CENSUS_KINDS, size);
		shown.event.address = pool_at(i);
		assert_int_equal(trace_feed(trace, &shown, size), 0);
	}
	done_so(trace, id, id == 1, 0);
}

/* By who took the pools; in no line. All others are as windows have shown. */
static void expect_split(struct trace *trace, uint64_t pools, uint64_t unseen)
{
	struct snapshot *snapshot;
	uint64_t in_lines = 0;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		/* The size that windows have shown, not that of the class. */
		assert_int_equal(snapshot->traces[i].bytes, BLOCK - 1);
		assert_int_equal(snapshot->traces[i].flags, 0);
		in_lines += snapshot->traces[i].count;
	}
	assert_int_equal(snapshot->meta.windows.pool_blocks, pools);
	assert_int_equal(snapshot->meta.windows.pool_bytes, pools * BLOCK);
	assert_int_equal(snapshot->meta.windows.unseen_blocks, unseen);
	assert_int_equal(in_lines + unseen, snapshot->meta.windows.new_blocks);
	assert_true(in_lines - pools >= SEEN);
	snapshot_free(snapshot);
}

static uint64_t burst(struct trace *trace, unsigned int taken)
{
	heap(trace, 1, 0, 0);
	idle_window(trace, 10 * S, 0);
	idle_window(trace, 20 * S, SEEN);
	for (unsigned int i = 0; i < taken; i++)
		take(trace, 1 + i);
	heap(trace, 2, 1 + POOLS, BLOCKS);
	return (uint64_t)(1 + POOLS) * BLOCKS;
}

static void test_unreported(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	burst(trace, 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_true(snapshot->meta.windows.unseen_blocks > TAKEN);
	assert_int_equal(snapshot->meta.windows.pool_blocks, 0);
	snapshot_free(snapshot);
}

/* Lines get no more than there is in the pools that they took. */
static void test_taken(void **state)
{
	struct trace *trace = *state;
	uint64_t all = burst(trace, POOLS), by_windows;
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	by_windows = all - snapshot->meta.windows.unseen_blocks - TAKEN;
	snapshot_free(snapshot);
	assert_true(by_windows < BLOCKS);
	expect_split(trace, TAKEN, all - TAKEN - by_windows);
}

static void put_of(struct trace *trace, uint64_t stack_id, uint64_t address, uint64_t bytes,
		   uint32_t api)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .stack_id = stack_id,
				    .api = api};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/*
 * Two lines have taken as many pools. What a window shows of the first one's instruction are blocks
 * of another size that it drops: that says nothing about those which it keeps.
 */
static void test_other_sizes(void **state)
{
	enum { FIRST = 1, SECOND, DROPPED = 60 };
	struct trace *trace = *state;
	struct snapshot *snapshot;
	uint64_t least = UINT64_MAX, most = 0;

	assert_int_equal(feed_stack(trace, FIRST, 100, 1), 0);
	assert_int_equal(feed_stack(trace, SECOND, 200, 1), 0);
	heap(trace, 1, 0, 0);
	window(trace, 10 * S, 0);
	for (unsigned int i = 0; i < DROPPED; i++)
		put_of(trace, FIRST, pool_at(POOLS + 2) + i * 4 * BLOCK, 3 * BLOCK, EVENT_API_OBJ);
	window(trace, 10 * S, 11 * S);
	for (unsigned int i = 0; i < POOLS; i++)
		put_of(trace, i % 2 ? SECOND : FIRST, pool_at(1 + i), POOL_BYTES, EVENT_API_POOL);
	heap(trace, 2, 1 + POOLS, BLOCKS);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.windows.pool_blocks, TAKEN);
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		least = snapshot->traces[i].count < least ? snapshot->traces[i].count : least;
		most = snapshot->traces[i].count > most ? snapshot->traces[i].count : most;
	}
	assert_int_equal(least, TAKEN / 2);
	assert_int_equal(most, TAKEN / 2);
	snapshot_free(snapshot);
}

/* Blocks that came later than the next walks are not told by who took the pool. */
static void test_later(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	heap(trace, 1, 0, 0);
	idle_window(trace, 10 * S, 0);
	for (unsigned int i = 0; i < POOLS; i++)
		take(trace, 1 + i);
	heap(trace, 2, 1 + POOLS, 1);
	heap(trace, 3, 1 + POOLS, 1);
	idle_window(trace, 20 * S, SEEN);
	heap(trace, 4, 1 + POOLS, BLOCKS);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_true(snapshot->meta.windows.unseen_blocks > TAKEN - 2 * BLOCKS);
	assert_true(snapshot->meta.windows.pool_blocks <= POOLS);
	snapshot_free(snapshot);
}

/* Walks go on until cohorts are joined. */
static void test_joined(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;
	uint64_t taken;

	burst(trace, POOLS);
	for (uint64_t id = 3; id < 3 + 3 * COHORT_MAX; id++)
		heap(trace, id, 1 + POOLS, BLOCKS);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	taken = snapshot->meta.windows.pool_blocks;
	snapshot_free(snapshot);
	assert_int_equal(taken, TAKEN);
}

/* After ctl clear nothing is known of them. */
static void test_clear(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	burst(trace, POOLS);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	heap(trace, 3, 1 + POOLS, BLOCKS);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.windows.pool_blocks, 0);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_unreported, setup_windows, teardown),
		cmocka_unit_test_setup_teardown(test_taken, setup_windows, teardown),
		cmocka_unit_test_setup_teardown(test_other_sizes, setup_windows, teardown),
		cmocka_unit_test_setup_teardown(test_later, setup_windows, teardown),
		cmocka_unit_test_setup_teardown(test_joined, setup_windows, teardown),
		cmocka_unit_test_setup_teardown(test_clear, setup_windows, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
