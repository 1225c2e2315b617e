/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of probes, as records: which blocks enter the table, and for how long they are taken to
 * be alive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "census_records.h"
#include "trace/state.h"

#define TYPE  77u /* a kind */
#define PRINT 5u

/* 16 KiB pools of 3.10 and later. */
#define POOL_AT (0x7f0000000040ull / 16384 * 16384)

static int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static void open_at(struct trace *trace, uint64_t start_ns)
{
	assert_int_equal(window_feed(trace, start_ns, 0), 0);
}

static void close_at(struct trace *trace, uint64_t end_ns)
{
	assert_int_equal(window_feed(trace, end_ns - 1, end_ns), 0);
}

struct kinds {
	struct event_census_kinds event;
	struct event_census_kind kinds[BLOCKS];
};

/* What a walk shows: nothing is live but what is set later. */
static struct kinds kinds_of(uint64_t id)
{
	struct kinds kinds = {.event = {.header = header_of(EVENT_CENSUS_KINDS, sizeof(kinds)),
					.id = id,
					.address = POOL,
					.block_bytes = BLOCK,
					.count = BLOCKS}};

	return kinds;
}

static int kinds_feed(struct trace *trace, const struct kinds *kinds)
{
	return trace_feed(trace, kinds, sizeof(*kinds));
}

/* A look at the pool, which shows objects of a kind in these blocks. */
static void look(struct trace *trace, const int *live, uint32_t kind, uint32_t print)
{
	struct kinds kinds = kinds_of(0);

	for (; *live >= 0; live++)
		kinds.event.kinds[*live] = (struct event_census_kind){kind, print};
	assert_int_equal(kinds_feed(trace, &kinds), 0);
}

/* A later allocation of the thread, elsewhere: the ones before are complete. */
static void move_on(struct trace *trace)
{
	put_by(trace, TGID, 0x7e0000000000ull, 600, EVENT_API_LARGE);
}

static size_t sighted(struct trace *trace, int fresh)
{
	uint64_t *pools;
	size_t count;

	assert_int_equal(trace_sighted_pools(trace, 0, fresh, &pools, &count), 0);
	if (count)
		assert_int_equal(pools[0], POOL_AT);
	free(pools);
	return count;
}

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
	assert_int_equal(sighted(trace, 1), 1);
	look(trace, LIVE(2), TYPE, PRINT);
	assert_int_equal(sighted(trace, 1), 0);
	put(trace, 4);
	assert_true(knows(trace, 2) && !knows(trace, 3) && knows(trace, 4));
	close_at(trace, 2 * S);
	assert_true(knows(trace, 2) && !knows(trace, 4));
	put(trace, 5);
	assert_false(knows(trace, 5));
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 2);
}

/* After its window a block is the same only as long as its content is. */
static void test_identity(void **state)
{
	static const struct {
		uint32_t kind, print;
		int alive;
	} cases[] = {{TYPE, PRINT, 1},        {TYPE + 1, PRINT, 0},     {TYPE, PRINT + 1, 0},
		     {EVENT_KIND_FREE, 0, 0}, {EVENT_KIND_OTHER, 0, 0}, {EVENT_KIND_DEAD, 0, 0}};
	struct trace *trace = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_at(trace, S);
		put(trace, 7);
		move_on(trace);
		look(trace, LIVE(7), TYPE, PRINT);
		close_at(trace, 2 * S);
		assert_true(knows(trace, 7));
		look(trace, LIVE(7), cases[i].kind, cases[i].print);
		assert_int_equal(knows(trace, 7), cases[i].alive);
		look(trace, LIVE(7), TYPE, PRINT);
		assert_int_equal(knows(trace, 7), cases[i].alive);
		assert_int_equal(sighted(trace, 0), cases[i].alive);
	}
}

static const struct death *death_at(struct trace *trace, size_t number)
{
	const struct deaths *deaths = &trace->processes[0]->windows.deaths;

	assert_true(number < deaths->count);
	return &deaths->items[number];
}

static void object_reuse(struct trace *trace, uint64_t object);

/* An address is used again in a window: would looks between windows have noticed? */
static void test_hidden(void **state)
{
	struct trace *trace = *state;

	open_at(trace, S);
	for (unsigned int i = 1; i <= 5; i++)
		put(trace, i);
	move_on(trace);
	look(trace, LIVE(1, 2, 3, 4, 5), TYPE, PRINT);
	close_at(trace, 2 * S);
	open_at(trace, 3 * S);
	put(trace, 1);
	/* Two that no look has told apart. */
	put(trace, 2);
	put(trace, 2);
	object_reuse(trace, at(3));
	move_on(trace);
	look(trace, LIVE(1, 2, 3, 4, 5), TYPE, PRINT);
	assert_int_equal(trace->processes[0]->windows.deaths.count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_true(death_at(trace, i)->hidden && death_at(trace, i)->reused_ns);
		assert_int_equal(death_at(trace, i)->window, 0);
	}
	put(trace, 4);
	put(trace, 1);
	move_on(trace);
	look(trace, LIVE(1, 2, 3, 4), TYPE, PRINT + 1);
	/* What was there before had other contents; and block 5 is only dead. */
	for (size_t i = 3; i < trace->processes[0]->windows.deaths.count; i++)
		assert_false(death_at(trace, i)->hidden);
	assert_true(death_at(trace, 3)->reused_ns && death_at(trace, 4)->reused_ns);
	assert_int_equal(death_at(trace, 4)->window, 1);
	close_at(trace, 4 * S);
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
	assert_int_equal(sighted(trace, 0), 0);
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

static void object_reuse(struct trace *trace, uint64_t object)
{
	struct event_alloc event = {.header = header_of(EVENT_REUSE, sizeof(event)),
				    .address = object,
				    .api = EVENT_API_OBJ};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* An object from a free list, in a block from before: a walk shows which block that is. */
static void test_reuse(void **state)
{
	struct trace *trace = *state;

	object_reuse(trace, at(9) + 16);
	open_at(trace, S);
	object_reuse(trace, at(1));
	object_reuse(trace, at(2) + 16);
	object_reuse(trace, at(3) + 32);
	object_reuse(trace, at(4) + 16);
	assert_int_equal(sighted(trace, 1), 1);
	/* The last one's reference count is not set yet. */
	look(trace, LIVE(4), EVENT_KIND_DEAD, 0);
	open_at(trace, S);
	object_reuse(trace, at(1));
	object_reuse(trace, at(2) + 16);
	object_reuse(trace, at(3) + 32);
	look(trace, LIVE(1, 2, 3, 4, 9), TYPE, 0);
	close_at(trace, 2 * S);
	for (unsigned int i = 1; i <= 4; i++)
		assert_true(knows(trace, i));
	assert_false(knows(trace, 9));
	/* A new object in a block that was seen before: what was known of it is void. */
	open_at(trace, 3 * S);
	object_reuse(trace, at(1));
	look(trace, LIVE(1, 2, 3, 4), TYPE + 1, 0);
	assert_true(knows(trace, 1) && !knows(trace, 2));
	close_at(trace, 4 * S);
	assert_true(knows(trace, 1));
}

/* The table of census mode is a window's. */
static void test_change(void **state)
{
	struct trace *trace = *state;
	struct event_mode_change change = {
		.header = header_of(EVENT_MODE_CHANGE, sizeof(change)),
		.mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE,
		.cost_permille = 900,
		.budget_permille = 50,
	};

	put(trace, 1);
	put(trace, 2);
	move_on(trace);
	change.header.time_ns = S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	look(trace, LIVE(1), TYPE, PRINT);
	close_at(trace, 2 * S);
	assert_true(knows(trace, 1) && !knows(trace, 2));
	assert_string_equal(snapshot_mode_name(process_of(trace)->changes[1].mode), "windows");
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 2);
	/* Large blocks are dropped when their frees are not seen any more. */
	change.mode = EVENT_MODE_WINDOWS;
	change.header.time_ns = 3 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 1);
	assert_true(knows(trace, 1));
	assert_int_equal(sighted(trace, 0), 1);
	/* Growth mode has another table. */
	change.mode = EVENT_MODE_GROWTH;
	change.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	assert_int_equal(sighted(trace, 0), 0);
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
	assert_int_equal(sighted(trace, 0), 0);
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

/* The heap's own counts are the totals, and what was seen is their split. */
static void test_snapshot(void **state)
{
	struct trace *trace = *state;
	struct kinds kinds = kinds_of(1);
	struct snapshot *snapshot;
	uint64_t count = 0;

	baseline(trace, 3, LIVE(40, 41));
	open_at(trace, S);
	for (unsigned int i = 0; i < 20; i++)
		put(trace, i);
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
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].bytes == BLOCK - 1)
			count += snapshot->traces[i].count;
	/* 40 are new; a part may be left to lines that no window has shown. */
	assert_in_range(count, 20, 40);
	assert_string_equal(snapshot->meta.mode, "windows");
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

/* What windows slow at most: nothing is said of the first one, and of one that may be all busy. */
static void test_busy(void **state)
{
	struct trace *trace = *state;
	const struct trace_windows *windows = &trace->processes[0]->windows;
	struct event_window end = {
		.header = header_of(EVENT_WINDOW, sizeof(end)), .end_ns = 3 * S, .busy_ns = S / 4};

	baseline(trace, 3, LIVE(40, 41));
	open_at(trace, S);
	put(trace, 1);
	close_at(trace, 2 * S);
	assert_true(windows->done == 0 && windows->undisturbed == 0);
	open_at(trace, 2 * S);
	put(trace, 2);
	put(trace, 3);
	put(trace, 4);
	end.header.time_ns = end.end_ns;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_true(windows->done == 3 && windows->undisturbed == 4);
	open_at(trace, 3 * S);
	close_at(trace, 4 * S); /* nothing was done in it */
	assert_true(windows->done == 3 && windows->undisturbed == 4);
	open_at(trace, 4 * S);
	put(trace, 5);
	close_at(trace, 5 * S); /* how busy it was is not known */
	assert_true(windows->done == 4 && windows->undisturbed > 100);
}

/* A walk that shows these blocks, with that content in the first of them. */
static void walk_kinds(struct trace *trace, uint64_t id, const int *live, uint32_t print)
{
	struct kinds kinds = kinds_of(id);

	for (size_t i = 0; live[i] >= 0; i++)
		kinds.event.kinds[live[i]] = (struct event_census_kind){TYPE, i ? PRINT : print};
	begin(trace, id);
	pool(trace, id, live);
	assert_int_equal(kinds_feed(trace, &kinds), 0);
	done(trace, id);
}

static const struct kind_count *count_at(struct trace *trace, uint32_t cohort)
{
	const struct kind_counts *heap = &trace->processes[0]->windows.heap;
	uint32_t found = id_map_find(&heap->index, kind_key(TYPE, BLOCK, cohort));

	return found == ID_MAP_NONE ? NULL : &heap->items[found];
}

/* At the address of an older block there is another one as soon as its content differs. */
static void test_older_changes(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 1, LIVE(40, 41, 42));
	walk_kinds(trace, 2, LIVE(40, 41, 42), PRINT);
	assert_int_equal(count_at(trace, COHORT_OLD)->live, 3);
	walk_kinds(trace, 3, LIVE(40, 41, 42), PRINT + 1);
	assert_int_equal(count_at(trace, COHORT_OLD)->live, 2);
	assert_int_equal(count_at(trace, COHORT_FIRST + 1)->live, 1);
	/* So it is if a window shows its allocation, whatever its content is. */
	open_at(trace, 4 * S);
	put(trace, 41);
	move_on(trace);
	/* In which block 40 is free. */
	look(trace, LIVE(41, 42), TYPE, PRINT);
	close_at(trace, 5 * S);
	walk_kinds(trace, 4, LIVE(40, 41, 42), PRINT + 1);
	assert_int_equal(count_at(trace, COHORT_OLD)->live, 1);
	assert_int_equal(count_at(trace, COHORT_FIRST + 2)->live, 2);
	assert_int_equal(state_windows_cohort(trace->processes[0], at(41)), COHORT_FIRST + 2);
}

/* Each walk that shows a block first is a cohort; old ones are joined. */
static void test_cohorts(void **state)
{
	struct trace *trace = *state;
	uint32_t cohort = 0;

	baseline(trace, 1, LIVE(40));
	for (unsigned int i = 0; i < 30; i++) {
		static int live[32] = {40};

		live[i + 1] = (int)i;
		live[i + 2] = -1;
		walk_kinds(trace, i + 2, live, PRINT);
		assert_int_equal(state_windows_cohort(trace->processes[0], at(i)),
				 COHORT_FIRST + i);
	}
	for (unsigned int i = 0; i < 60; i++)
		walk_kinds(trace, i + 100, LIVE(40, 0, 1, 2, 3, 4, 5, 6), PRINT);
	assert_true(trace->processes[0]->windows.cohort < COHORT_MAX);
	for (unsigned int i = 0; i < 7; i++) {
		uint32_t next = state_windows_cohort(trace->processes[0], at(i));

		assert_true(next >= COHORT_FIRST && next >= cohort);
		assert_non_null(count_at(trace, next));
		cohort = next;
	}
	assert_int_equal(state_windows_cohort(trace->processes[0], at(40)), COHORT_OLD);
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
		cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hidden, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reuse, setup, teardown),
		cmocka_unit_test_setup_teardown(test_change, setup_census, teardown),
		cmocka_unit_test_setup_teardown(test_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
		cmocka_unit_test_setup_teardown(test_snapshot, setup, teardown),
		cmocka_unit_test_setup_teardown(test_span, setup, teardown),
		cmocka_unit_test_setup_teardown(test_older_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cohorts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
