/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of probes, as records: for how long a block is taken to be the same one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "window_records.h"

static const struct death *death_at(struct trace *trace, size_t number)
{
	const struct deaths *deaths = &trace->processes[0]->windows.deaths;

	assert_true(number < deaths->count);
	return &deaths->items[number];
}

static void object_reuse(struct trace *trace, uint64_t object)
{
	struct event_alloc event = {.header = header_of(EVENT_REUSE, sizeof(event)),
				    .address = object,
				    .api = EVENT_API_OBJ};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* After its window a block is the same only as long as its content is. */
static void test_fingerprint(void **state)
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
		assert_int_equal(sighted(trace, SIGHTED_ALL), cases[i].alive);
	}
}

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
	/* Two that no recheck has told apart. */
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
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 1);
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
	assert_int_equal(sighted(trace, SIGHTED_ALL), 1);
	/* Growth mode has another table. */
	change.mode = EVENT_MODE_GROWTH;
	change.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fingerprint, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hidden, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reuse, setup, teardown),
		cmocka_unit_test_setup_teardown(test_change, setup_census, teardown),
		cmocka_unit_test_setup_teardown(test_older_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cohorts, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
