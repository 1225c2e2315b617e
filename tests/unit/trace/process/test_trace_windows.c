/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of probes, as records: which blocks enter the table, and what a window stands for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "ranges.h"
#include "snapshot/group/thread_shares.h"
#include "window_records.h"

/* Only what is allocated in a window, and shown by a walk in it, is kept. */
static void test_seen(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	assert_false(knows(trace, 1));
	open_at(trace, S);
	put(trace, 2);
	put(trace, 3);
	move_on(trace);
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 1);
	look(trace, LIVE(2), TYPE, PRINT);
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 0);
	put(trace, 4);
	assert_true(knows(trace, 2) && !knows(trace, 3) && knows(trace, 4));
	close_at(trace, 2 * S);
	assert_true(knows(trace, 2) && !knows(trace, 4));
	put(trace, 5);
	assert_false(knows(trace, 5));
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 2);
}

/* The pool has another size class now, or is gone. */
static void test_pool(void **state)
{
	struct kinds other = kinds_of(0), unread = kinds_of(0);
	struct trace *trace = *state;

	open_at(trace, S);
	put(trace, 1);
	move_on(trace);
	look(trace, LIVE(1), TYPE, PRINT);
	close_at(trace, 2 * S);
	unread.event.block_bytes = unread.event.count = 0;
	unread.event.header.size = sizeof(unread.event);
	assert_int_equal(trace_feed(trace, &unread, sizeof(unread.event)), 0);
	assert_true(knows(trace, 1));
	other.event.block_bytes = 32;
	other.event.kinds[1] = (struct event_census_kind){TYPE, PRINT};
	assert_int_equal(kinds_feed(trace, &other), 0);
	assert_false(knows(trace, 1));
	assert_int_equal(sighted(trace, SIGHTED_ALL), 0);
}

static const struct sampled_block *sampled_block_at(struct trace *trace, unsigned int block)
{
	return sampled_blocks_find(&trace->processes[0]->windows.sampled_blocks, at(block));
}

/*
 * Pools of the open window are known, also if a recheck has shown all of its blocks; those of the
 * last one until the next one begins. A look in the window says nothing about the time after it,
 * whenever that recheck was; later ones do.
 */
static void test_last(void **state)
{
	struct trace *trace = *state;
	struct kinds again = kinds_of(0);

	open_at(trace, S);
	put(trace, 1);
	put(trace, 2);
	move_on(trace);
	look(trace, LIVE(1, 2), TYPE, PRINT);
	again.event.header.time_ns = 3 * S / 2;
	again.event.kinds[1] = again.event.kinds[2] = (struct event_census_kind){TYPE, PRINT};
	assert_int_equal(kinds_feed(trace, &again), 0);
	assert_int_equal(sampled_block_at(trace, 1)->seen_ns, S);
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 0);
	assert_int_equal(sighted(trace, SIGHTED_LAST), 1);
	close_at(trace, 2 * S);
	assert_int_equal(sighted(trace, SIGHTED_LAST), 1);
	look(trace, LIVE(1), TYPE, PRINT);
	assert_int_equal(sampled_block_at(trace, 1)->seen_ns, 2 * S);
	assert_int_equal(sighted(trace, SIGHTED_LAST), 1);
	open_at(trace, 3 * S);
	assert_int_equal(sighted(trace, SIGHTED_LAST), 0);
	close_at(trace, 4 * S);
	assert_int_equal(sighted(trace, SIGHTED_LAST), 0);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 1);
}

/* Allocated when some probes may have been gone: it is not kept, though a recheck shows it. */
static void test_late(void **state)
{
	struct trace *trace = *state;
	struct event_alloc late = {.header = header_of(EVENT_ALLOC, sizeof(late)),
				   .address = at(2),
				   .bytes = BLOCK - 1,
				   .api = EVENT_API_OBJ};

	open_at(trace, S);
	put(trace, 1);
	late.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &late, sizeof(late)), 0);
	move_on(trace);
	look(trace, LIVE(1, 2), TYPE, PRINT);
	assert_true(knows(trace, 1) && knows(trace, 2));
	close_at(trace, 3 * S);
	assert_true(knows(trace, 1) && !knows(trace, 2));
	assert_int_equal(trace->processes[0]->windows.unchecked, 0);
	assert_int_equal(trace->processes[0]->windows.deaths.count, 0);
}

/* In a window its thread may not have taken or filled the last block yet. */
static void test_in_progress(void **state)
{
	struct trace *trace = *state;

	open_at(trace, S);
	put(trace, 1);
	look(trace, LIVE(200), TYPE, PRINT);
	assert_true(knows(trace, 1));
	move_on(trace);
	look(trace, LIVE(1), TYPE, PRINT);
	close_at(trace, 2 * S);
	assert_true(knows(trace, 1));
}

/* Between windows or in one: nothing is left, and what is in progress goes on. */
static void test_clear(void **state)
{
	struct trace *trace = *state;

	open_at(trace, S);
	put(trace, 1);
	move_on(trace);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_false(knows(trace, 1));
	put(trace, 2);
	move_on(trace);
	look(trace, LIVE(1, 2), TYPE, PRINT);
	close_at(trace, 2 * S);
	assert_true(!knows(trace, 1) && knows(trace, 2));
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 0);
	put(trace, 3);
	assert_false(knows(trace, 3));
}

static void fork_to(struct trace *trace, uint32_t tgid)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = 0x030d00f0,
				     .nframe = 16,
				     .mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE,
				     .parent = TGID};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* A child in a window: its parent's goes on, its own ends. */
static void test_fork(void **state)
{
	struct trace *trace = *state;
	struct event_window end = {.header = header_of(EVENT_WINDOW, sizeof(end)), .end_ns = S};
	const struct blocks *blocks;

	open_at(trace, S / 2);
	put(trace, 1);
	put(trace, 2);
	move_on(trace);
	look(trace, LIVE(1, 2), TYPE, PRINT);
	put(trace, 3);
	fork_to(trace, TGID + 1);
	end.header.tgid = TGID + 1;
	end.header.time_ns = S;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	blocks = trace_blocks(trace, 1, EVENT_LAYER_PYTHON);
	assert_non_null(blocks_find(blocks, at(1), 0));
	assert_null(blocks_find(blocks, at(3), 0));
	assert_true(knows(trace, 3));
}

/* A window of 20 blocks, which stay, of 42 that the heap has: put_block() makes the i-th. */
static void twenty_seen(struct trace *trace, void (*put_block)(struct trace *trace, unsigned int i))
{
	struct kinds kinds = kinds_of(1);

	baseline(trace, 3, LIVE(40, 41));
	open_at(trace, S);
	for (unsigned int i = 0; i < 20; i++)
		put_block(trace, i);
	move_on(trace);
	for (unsigned int i = 0; i < 42; i++)
		kinds.event.kinds[i] = (struct event_census_kind){TYPE, PRINT};
	kinds.event.id = 0;
	assert_int_equal(kinds_feed(trace, &kinds), 0);
	close_at(trace, 2 * S);
	kinds.event.id = 1;
	begin(trace, 1);
	assert_int_equal(kinds_feed(trace, &kinds), 0);
	pool(trace, 1,
	     LIVE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 40, 41));
	done(trace, 1);
}

/* The heap's own counts are the totals, and what was seen is their split. */
static void test_snapshot(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;
	uint64_t count = 0;

	twenty_seen(trace, put);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].bytes == BLOCK - 1)
			count += snapshot->traces[i].count;
	/* 40 are new; a part may be left to lines that no window has shown. */
	assert_uint_in_range(count, 20, 40);
	assert_string_equal(snapshot->meta.mode, "windows");
	snapshot_free(snapshot);
}

static void task_begin(struct trace *trace, uint64_t number)
{
	struct event_task event = {.header = header_of(EVENT_TASK, sizeof(event)),
				   .number = number,
				   .how = EVENT_TASK_NUMBERED};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void put_of_task(struct trace *trace, unsigned int i)
{
	task_begin(trace, i % 4 ? 1 : 2);
	put(trace, i);
}

/* The same by task: a quarter of what was seen is of the second one. Lines have what they had. */
static void test_by_task(void **state)
{
	struct trace *trace = *state;
	const struct thread_question question = {.by = GROUP_TASK};
	struct thread_rows rows;
	struct snapshot *snapshot;
	uint64_t count = 0;

	trace->processes[0]->info.tasks = 1;
	twenty_seen(trace, put_of_task);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		count += snapshot->traces[i].count;
	assert_int_equal(thread_shares_rows(snapshot, &question, &rows), 0);
	assert_int_equal(rows.count, 2);
	assert_true(rows.are_estimates && rows.items[0].sums.error.count);
	assert_string_equal(rows.items[0].name, "Task-1");
	assert_string_equal(rows.items[1].name, "Task-2");
	assert_int_equal(rows.total.count, count);
	assert_int_equal(rows.items[1].sums.count, count / 4);
	thread_rows_free(&rows);
	snapshot_free(snapshot);
}

/* A window that shows ten blocks of these bytes, from the given one on. */
static void window_of_ten(struct trace *trace, unsigned int from, uint64_t bytes, uint64_t start_ns)
{
	struct kinds kinds = kinds_of(0);

	open_at(trace, start_ns);
	for (unsigned int i = from; i < from + 10; i++)
		assert_int_equal(feed_alloc(trace, at(i), bytes, 0), 0);
	move_on(trace);
	for (unsigned int i = 0; i < from + 10; i++)
		kinds.event.kinds[i] = (struct event_census_kind){TYPE, PRINT};
	assert_int_equal(kinds_feed(trace, &kinds), 0);
	close_at(trace, start_ns + S);
}

/* A window stands for the time since the one before, which was known before it showed anything. */
static void test_span(void **state)
{
	struct trace *trace = *state;
	struct kinds kinds = kinds_of(1);
	struct snapshot *snapshot;
	uint64_t counts[2] = {0};
	int live[121];

	baseline(trace, 3, LIVE(200));
	open_at(trace, S);
	close_at(trace, 2 * S);
	window_of_ten(trace, 0, BLOCK - 1, 11 * S);
	window_of_ten(trace, 10, BLOCK - 2, 13 * S);
	open_at(trace, 31 * S);
	close_at(trace, 32 * S);
	for (int i = 0; i < 120; i++) {
		live[i] = i;
		kinds.event.kinds[i] = (struct event_census_kind){TYPE, PRINT};
	}
	live[120] = -1;
	begin(trace, 1);
	assert_int_equal(kinds_feed(trace, &kinds), 0);
	pool(trace, 1, live);
	done(trace, 1);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		for (unsigned int k = 0; k < 2; k++)
			if (snapshot->traces[i].bytes == BLOCK - 1 - k)
				counts[k] += snapshot->traces[i].count;
	assert_int_equal(counts[0], 100);
	assert_int_equal(counts[1], 20);
	snapshot_free(snapshot);
}

/* For how long the target slept in a window, where that is known. */
static void test_idle(void **state)
{
	struct trace *trace = *state;
	const struct trace_windows *windows = &trace->processes[0]->windows;
	struct event_window end = {
		.header = header_of(EVENT_WINDOW, sizeof(end)), .end_ns = 3 * S, .busy_ns = S / 4};

	baseline(trace, 3, LIVE(40, 41));
	open_at(trace, 2 * S);
	end.header.time_ns = end.end_ns;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(windows->items[windows->count - 1].idle_ns, 3 * S / 4);
	/* two threads */
	open_at(trace, 3 * S);
	end.end_ns = end.header.time_ns = 4 * S;
	end.busy_ns = 2 * S;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(windows->items[windows->count - 1].idle_ns, 0);
	open_at(trace, 4 * S);
	close_at(trace, 5 * S); /* how busy it was is not known */
	assert_int_equal(windows->items[windows->count - 1].idle_ns, 0);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	struct event_window early = {.header = header_of(EVENT_WINDOW, sizeof(early)),
				     .start_ns = 5 * S,
				     .end_ns = 4 * S};
	struct kinds kinds = kinds_of(0);

	early.header.time_ns = 6 * S;
	assert_int_equal(trace_feed(trace, &early, sizeof(early)), -EBADMSG);
	early.end_ns = 7 * S;
	assert_int_equal(trace_feed(trace, &early, sizeof(early)), -EBADMSG);
	kinds.event.count = BLOCKS + 1;
	assert_int_equal(kinds_feed(trace, &kinds), -EBADMSG);
	kinds.event.count = BLOCKS;
	kinds.event.address += 8;
	assert_int_equal(kinds_feed(trace, &kinds), -EBADMSG);
	kinds.event.address = UINT64_MAX - 15;
	assert_int_equal(kinds_feed(trace, &kinds), -EBADMSG);
	kinds = kinds_of(0);
	kinds.event.block_bytes = 0;
	assert_int_equal(kinds_feed(trace, &kinds), -EBADMSG);
	kinds.event.block_bytes = 1024;
	assert_int_equal(kinds_feed(trace, &kinds), -EBADMSG);
}

/* However many windows there are, memory is bounded, and blocks keep their place in time. */
static void test_many(void **state)
{
	struct trace *trace = *state;

	for (uint64_t i = 1; i < 20000; i++) {
		open_at(trace, i * S);
		if (i == 1 || i == 10000)
			put(trace, i == 1 ? 1 : 2);
		move_on(trace);
		look(trace, LIVE(1, 2), TYPE, PRINT);
		close_at(trace, i * S + S / 2);
	}
	assert_true(knows(trace, 1) && knows(trace, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_last, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
		cmocka_unit_test_setup_teardown(test_snapshot, setup, teardown),
		cmocka_unit_test_setup_teardown(test_by_task, setup, teardown),
		cmocka_unit_test_setup_teardown(test_span, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
