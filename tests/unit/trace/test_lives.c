/* SPDX-License-Identifier: Apache-2.0 */
/* How long blocks lived, and which were alive at the peak: from records, in snapshots and files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "allocated_records.h"
#include "census_records.h"

/* Freed by its own thread, before the next allocation of that thread; in between others may act. */
static void temporary_blocks(void **state)
{
	const struct report_opts how = {.by = GROUP_FILENAME, .sort = SORT_TEMPORARY};
	const struct report_opts one = {
		.by = GROUP_FILENAME, .sort = SORT_TEMPORARY, .temporary_others = 1};
	struct trace *trace = *state;
	struct snapshot *snapshot, *back;

	put_at(trace, 1, 0, 0x1000, 1);
	put_at(trace, 2, 0, 0x2000, 2);
	free_at(trace, 1, 0, 0x1000); /* temporary */
	put_at(trace, 1, 0, 0x3000, 1);
	free_at(trace, 2, 0, 0x3000); /* by another thread */
	put_at(trace, 1, 0, 0x4000, 1);
	put_at(trace, 1, 0, 0x5000, 1);
	free_at(trace, 1, 0, 0x4000); /* one allocation later */
	free_at(trace, 1, 0, 0x5000); /* temporary: frees between do not count */
	put_at(trace, 1, 0, 0x6000, 3);
	feed_take(trace, EVENT_REALLOC, 1, 0x6000); /* temporary: it is replaced at once */
	feed_put(trace, EVENT_REALLOC_DONE, 1, 0x6000, 20, 3);
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	check_report(back, &how,
		     "filename,lineno,size,count,allocated_size,allocated_count,temporary_size,"
		     "temporary_count\r\n"
		     "line1.py,0,0,0,40,4,20,2\r\n"
		     "line3.py,0,20,1,30,2,10,1\r\n"
		     "line2.py,0,10,1,10,1,0,0\r\n");
	check_report(back, &one,
		     "filename,lineno,size,count,allocated_size,allocated_count,temporary_size,"
		     "temporary_count\r\n"
		     "line1.py,0,0,0,40,4,30,3\r\n"
		     "line3.py,0,20,1,30,2,10,1\r\n"
		     "line2.py,0,10,1,10,1,0,0\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
	/* Two later: not temporary by either rule. */
	put_at(trace, 4, 0, 0x8000, 2);
	put_at(trace, 4, 0, 0x9000, 2);
	put_at(trace, 4, 0, 0xa000, 2);
	free_at(trace, 4, 0, 0xa000);
	free_at(trace, 4, 0, 0x8000);
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	check_report(back, &one,
		     "filename,lineno,size,count,allocated_size,allocated_count,temporary_size,"
		     "temporary_count\r\n"
		     "line1.py,0,0,0,40,4,30,3\r\n"
		     "line2.py,0,20,2,40,4,10,1\r\n"
		     "line3.py,0,20,1,30,2,10,1\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
}

static void lifetimes(void **state)
{
	const struct report_opts how = {.by = GROUP_LIFETIME}, sizes = {.by = GROUP_SIZE};
	static const uint64_t ages[] = {0, 9, 10, 99, 100, 5000, 50000, 500000, 5000000, 50000000};
	struct trace *trace = *state;
	struct snapshot *snapshot, *back;

	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
		put_at(trace, 1, 7, 0x1000, 1);
		put_at(trace, 1, 7, 0x2000, 2);
		put_at(trace, 1, 7, 0x2800, 2);
		free_at(trace, 1, 7 + ages[i], 0x1000);
		free_at(trace, 1, 7 + ages[i], 0x2000);
		free_at(trace, 1, 7 + ages[i], 0x2800);
	}
	put_at(trace, 1, 8, 0x3000, 3);
	feed_alloc(trace, 0x4000, 0, 3);
	feed_alloc(trace, 0x5000, 16, 3);
	feed_alloc(trace, 0x6000, 17, 3);
	feed_alloc(trace, 0x7000, 3ull << 20, 3);
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	check_report(
		back, &how,
		"lifetime,size,count\r\n\"temporary\",100,10\r\n\"one allocation later\",100,10\r\n"
		"\"below 10 ms\",20,2\r\n"
		"\"10 to 100 ms\",20,2\r\n\"0.1 to 1 s\",10,1\r\n\"1 to 10 s\",10,1\r\n"
		"\"10 to 100 s\",10,1\r\n\"100 to 1,000 s\",10,1\r\n"
		"\"1,000 to 10,000 s\",10,1\r\n\"10,000 s and more\",10,1\r\n"
		"\"still alive\",3145771,5\r\n");
	check_report(back, &sizes,
		     "up_to,size,count\r\n0,0,1\r\n16,26,2\r\n32,17,1\r\n4194304,3145728,1\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
}

static void put_block(struct trace *trace, uint64_t ms, unsigned int number, uint64_t stack)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = at(number),
				    .bytes = BLOCK - 1,
				    .stack_id = stack,
				    .api = EVENT_API_OBJ};

	event.header.time_ns = 1 + ms * 1000000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void walk_at(struct trace *trace, uint64_t ms, uint64_t id, const int *live)
{
	struct event_census event = {.header = header_of(EVENT_CENSUS, sizeof(event)), .id = id};

	event.header.time_ns = 1 + ms * 1000000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	pool(trace, id, live);
	done(trace, id);
}

/* Census mode sees no frees: lifetimes are not known, but what did not live to a heap walk is. */
static void census_knows_the_short_lived(void **state)
{
	const struct report_opts how = {.by = GROUP_LIFETIME};
	const struct report_opts sort = {.by = GROUP_FILENAME, .sort = SORT_TEMPORARY};
	const struct report_opts one = {.by = GROUP_FILENAME, .temporary_others = 1};
	struct trace *trace = *state;
	struct snapshot *snapshot, *back;

	assert_int_equal(feed_mode(trace, EVENT_MODE_CENSUS | EVENT_MODE_PYTHON, 0), 0);
	walk_at(trace, 10, 2, LIVE(-1));
	put_block(trace, 20, 0, 1);
	put_block(trace, 20, 1, 1);
	put_block(trace, 20, 2, 2);
	put_block(trace, 30, 1, 2);     /* where a block of line 1 was */
	walk_at(trace, 40, 4, LIVE(0)); /* both of line 2 are dead */
	put_block(trace, 40, 3, 3);     /* maybe before the walk: not counted */
	put_block(trace, 41, 4, 3);
	walk_at(trace, 50, 6, LIVE(-1)); /* the first of line 1 has lived to a walk */
	snapshot = taken(trace);
	back = snapshot_through_file(snapshot);
	assert_int_equal(report_csv(back, &how, stdout), -EINVAL);
	assert_int_equal(report_csv(back, &one, stdout), -EINVAL);
	check_report(back, &sort,
		     "filename,lineno,size,count,allocated_size,allocated_count,short_lived_size,"
		     "short_lived_count\r\n"
		     "line2.py,0,0,0,94,2,94,2\r\nline3.py,0,0,0,94,2,47,1\r\n"
		     "line1.py,0,0,0,94,2,47,1\r\n");
	snapshot_free(back);
	snapshot_free(snapshot);
	/* of what was allocated in another mode it is not known */
	assert_int_equal(feed_mode(trace, EVENT_MODE_EXACT | EVENT_MODE_PYTHON, 0), 0);
	put_block(trace, 60, 0, 1);
	assert_int_equal(feed_mode(trace, EVENT_MODE_CENSUS | EVENT_MODE_PYTHON, 0), 0);
	snapshot = taken(trace);
	assert_false(snapshot_knows(snapshot, EXTRA_FREED));
	assert_int_equal(report_csv(snapshot, &sort, stdout), -EINVAL);
	snapshot_free(snapshot);
}

static void check_peak(struct trace *trace, const char *expected)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct snapshot *snapshot = taken(trace), *back = snapshot_through_file(snapshot), peak;

	assert_true(snapshot_knows(back, EXTRA_PEAK));
	peak = snapshot_at_peak(back);
	check_report(&peak, &how, expected);
	snapshot_free(back);
	snapshot_free(snapshot);
}

/* The table as it was when most bytes were alive, whatever came and went before and since. */
static void peaks(void **state)
{
	struct trace *trace = *state;

	feed_alloc(trace, 0x1000, 100, 1);
	feed_alloc(trace, 0x2000, 50, 2);
	feed_free(trace, 0x1000);
	feed_alloc(trace, 0x3000, 60, 3); /* 110: no peak */
	check_peak(trace, "filename,lineno,size,count\r\nline1.py,0,100,1\r\nline2.py,0,50,1\r\n");
	feed_alloc(trace, 0x4000, 41, 3); /* 151 */
	feed_alloc(trace, 0x5000, 5, 1);  /* 156 */
	feed_free(trace, 0x3000);
	feed_free(trace, 0x2000);
	feed_free(trace, 0x4000);
	feed_alloc(trace, 0x6000, 7, 2);
	check_peak(trace, "filename,lineno,size,count\r\nline3.py,0,101,2\r\nline2.py,0,50,1\r\n"
			  "line1.py,0,5,1\r\n");
	feed_alloc(trace, 0x7000, 1000, 2);
	check_peak(trace, "filename,lineno,size,count\r\nline2.py,0,1007,2\r\nline1.py,0,5,1\r\n");
}

/* An object from a free list moves its block to another line, also at the peak before it. */
static void peaks_know_who_held_a_block(void **state)
{
	struct event_alloc reuse = {.header = header_of(EVENT_REUSE, sizeof(reuse)),
				    .address = 0x1000,
				    .stack_id = 2,
				    .api = EVENT_API_OBJ};
	struct trace *trace = *state;

	feed_alloc(trace, 0x1000, 100, 1);
	assert_int_equal(trace_feed(trace, &reuse, sizeof(reuse)), 0);
	check_peak(trace, "filename,lineno,size,count\r\nline1.py,0,100,1\r\n");
	feed_alloc(trace, 0x2000, 1, 3);
	feed_free(trace, 0x1000);
	check_peak(trace, "filename,lineno,size,count\r\nline2.py,0,100,1\r\nline3.py,0,1,1\r\n");
}

/* A child begins with what its parent holds: that is its peak until it holds more. */
static void peak_of_a_child(void **state)
{
	struct event_target child = {.header = header_of(EVENT_PROCESS, sizeof(child)),
				     .python_version = 0x030d0000,
				     .nframe = 16,
				     .mode = 1,
				     .parent = TGID,
				     .name = "child"};
	struct trace *trace = *state;
	struct snapshot *snapshot, peak;
	const struct report_opts how = {.by = GROUP_FILENAME};

	feed_alloc(trace, 0x1000, 100, 1);
	feed_alloc(trace, 0x2000, 10, 2);
	feed_free(trace, 0x1000);
	child.header.tgid = child.header.tid = TGID + 1;
	assert_int_equal(trace_feed(trace, &child, sizeof(child)), 0);
	assert_int_equal(trace_snapshot(trace, 1, 0, &snapshot), 0);
	peak = snapshot_at_peak(snapshot);
	check_report(&peak, &how, "filename,lineno,size,count\r\nline2.py,0,10,1\r\n");
	check(snapshot, "line2.py 0/0, 10/1 alive; total 0/0");
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_set, trace_end)
	const struct CMUnitTest tests[] = {
		TEST(temporary_blocks),
		TEST(lifetimes),
		TEST(census_knows_the_short_lived),
		TEST(peaks),
		TEST(peaks_know_who_held_a_block),
		TEST(peak_of_a_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
