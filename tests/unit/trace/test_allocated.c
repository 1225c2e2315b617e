/* SPDX-License-Identifier: Apache-2.0 */
/* What was allocated, alive or not, and by whom: from records, in snapshots and their files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "allocated_records.h"

static void dead_blocks_and_reallocs_count(void **state)
{
	struct trace *trace = *state;

	feed_alloc(trace, 0x1000, 100, 1);
	feed_alloc(trace, 0x2000, 31, 2);
	feed_free(trace, 0x2000);
	feed_alloc(trace, 0x2000, 40, 2);
	feed_free(trace, 0x2000);
	feed_take(trace, EVENT_REALLOC, TGID, 0x1000);
	feed_put(trace, EVENT_REALLOC_DONE, TGID, 0x3000, 7, 3);
	check_now(trace, "line1.py 100/1, 0/0 alive; line2.py 71/2, 0/0 alive; "
			 "line3.py 7/1, 7/1 alive; total 178/4");
}

/* A report lists lines of which nothing is alive only if they are asked for. */
static void dead_lines_are_on_demand(void **state)
{
	const struct statistics_opts how = {.by = GROUP_FILENAME};
	struct trace *trace = *state;
	struct statistics statistics;
	struct snapshot *snapshot;

	feed_alloc(trace, 0x1000, 100, 1);
	feed_alloc(trace, 0x2000, 31, 2);
	feed_free(trace, 0x2000);
	snapshot = taken(trace);
	assert_int_equal(statistics_compute(snapshot, &how, &statistics), 0);
	assert_int_equal(statistics.count, 1);
	assert_int_equal(statistics.entries[0].extra.allocated.size, 100);
	assert_int_equal(statistics.extra.allocated.size, 131);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

static void files_hold_them(void **state)
{
	static const char expected[] = "line1.py 201/2, 100/1 alive; line2.py 31/1, 0/0 alive; "
				       "line3.py 0/1, 0/1 alive; total 232/4";
	struct trace *trace = *state;
	struct snapshot *snapshot, *back;

	feed_alloc(trace, 0x1000, 100, 1);
	feed_alloc(trace, 0x4000, 101, 1);
	feed_free(trace, 0x4000);
	feed_alloc(trace, 0x2000, 31, 2);
	feed_free(trace, 0x2000);
	feed_alloc(trace, 0x3000, 0, 3);
	snapshot = taken(trace);
	check(snapshot, expected);
	back = snapshot_through_file(snapshot);
	check(back, expected);
	snapshot_free(back);
	snapshot_free(snapshot);
}

static void clearing_begins_anew(void **state)
{
	struct event_mark clear = {.header = header_of(EVENT_CLEAR, sizeof(clear))};
	struct trace *trace = *state;

	feed_alloc(trace, 0x1000, 100, 1);
	assert_int_equal(trace_feed(trace, &clear, sizeof(clear)), 0);
	feed_alloc(trace, 0x2000, 5, 2);
	check_now(trace, "line2.py 5/1, 5/1 alive; total 5/1");
}

/* Each sampled block stands for the others of its size, also after a change of the mean. */
static void samples_are_scaled(void **state)
{
	const struct statistics_opts how = {.by = GROUP_FILENAME};
	struct trace *trace = *state;
	struct statistics statistics;
	struct snapshot *snapshot, *back;

	assert_int_equal(feed_mode(trace, EVENT_MODE_EXACT | EVENT_MODE_PYTHON, 1000), 0);
	for (uint64_t i = 0; i < 50; i++) {
		feed_alloc(trace, 0x10000, 100, 1); /* p = 0.0952: stands for 10.5 blocks */
		feed_free(trace, 0x10000);
	}
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	snapshot_free(snapshot);
	assert_int_equal(statistics_compute(back, &how, &statistics), 0);
	assert_true(statistics.extra.allocated.count >= 525 &&
		    statistics.extra.allocated.count <= 526);
	assert_true(statistics.extra.allocated.size >= 52500 &&
		    statistics.extra.allocated.size <= 52600);
	statistics_free(&statistics);
	snapshot_free(back);
}

/* Where allocations were not seen for some time, no figure is shown as the whole. */
static void gaps_are_not_figures(void **state)
{
	const struct statistics_opts how = {.by = GROUP_FILENAME, .sort = SORT_ALLOCATED};
	struct trace *trace = *state;
	struct statistics statistics;
	struct snapshot *snapshot;

	feed_alloc(trace, 0x1000, 100, 1);
	assert_true(is_known(trace));
	assert_int_equal(feed_mode(trace, EVENT_MODE_CENSUS | EVENT_MODE_PYTHON, 0), 0);
	assert_true(is_known(trace));
	assert_int_equal(feed_mode(trace, EVENT_MODE_OFF, 0), 0);
	assert_false(is_known(trace));
	assert_int_equal(feed_mode(trace, EVENT_MODE_CENSUS | EVENT_MODE_PYTHON, 0), 0);
	assert_false(is_known(trace));
	snapshot = taken(trace);
	assert_int_equal(statistics_compute(snapshot, &how, &statistics), -EINVAL);
	snapshot_free(snapshot);
}

static void feed_name(struct trace *trace, uint32_t tid, const char *name)
{
	struct event_thread event = {.header = header_of(EVENT_THREAD, sizeof(event))};

	event.header.tid = tid;
	snprintf(event.name, sizeof(event.name), "%s", name);
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* By the thread that has allocated, or taken from a free list, whoever frees. */
static void threads_own_blocks(void **state)
{
	const struct report_opts how = {.by = GROUP_THREAD};
	struct event_alloc reuse = {.header = header_of(EVENT_REUSE, sizeof(reuse)),
				    .address = 0x4000,
				    .stack_id = 2,
				    .api = EVENT_API_OBJ};
	struct trace *trace = *state;
	struct snapshot *snapshot, *back;
	size_t cursor = 0;
	uint32_t tid;

	put_at(trace, 1, 0, 0x1000, 1);
	put_at(trace, 2, 0, 0x2000, 1);
	put_at(trace, 2, 0, 0x3000, 2);
	put_at(trace, 3, 0, 0x4000, 1);
	put_at(trace, 1, 0, 0x5000, 1);
	free_at(trace, 2, 0, 0x5000);
	reuse.header.tid = 2;
	assert_int_equal(trace_feed(trace, &reuse, sizeof(reuse)), 0);
	feed_name(trace, 2, "work,er");
	feed_name(trace, 9, "nobody");
	assert_int_equal(trace_thread_nameless(trace, 0, &cursor, &tid), 1);
	assert_int_equal(tid, 1);
	assert_int_equal(trace_thread_nameless(trace, 0, &cursor, &tid), 1);
	assert_int_equal(tid, 3);
	assert_int_equal(trace_thread_nameless(trace, 0, &cursor, &tid), 0);
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	assert_int_equal(back->meta.sole_thread[EVENT_LAYER_PYTHON], 0);
	check_report(back, &how,
		     "tid,pid,thread,size,count\r\n2,1000,\"work,er\",30,3\r\n1,1000,,10,1\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
	free_at(trace, 2, 0, 0x1000);
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	assert_int_equal(back->meta.sole_thread[EVENT_LAYER_PYTHON], 2);
	check_report(back, &how, "tid,pid,thread,size,count\r\n2,1000,\"work,er\",30,3\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_set, trace_end)
	const struct CMUnitTest tests[] = {
		TEST(dead_blocks_and_reallocs_count),
		TEST(dead_lines_are_on_demand),
		TEST(files_hold_them),
		TEST(clearing_begins_anew),
		TEST(samples_are_scaled),
		TEST(gaps_are_not_figures),
		TEST(threads_own_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
