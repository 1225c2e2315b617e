/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are allocated or freed while a heap walk is under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "census_records.h"
#include "records.h"
#include "report/report.h"
#include "snapshot/snapshot.h"

static void take_by(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address)
{
	struct event_free event = {.header = header_of(type, sizeof(event)), .address = address};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void in_flight(struct trace *trace, uint32_t tid)
{
	struct event_mark event = {.header = header_of(EVENT_CENSUS_THREAD, sizeof(event))};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* The block's event was still under way when its pool was walked. */
static void test_doubtful_arrives(void **state)
{
	struct trace *trace = *state;

	begin(trace, 2);
	pool(trace, 2, LIVE(7, 8, 9));
	put(trace, 8);
	assert_int_equal(feed_alloc(trace, at(9), BLOCK + 1, 0),
			 0); /* of another class: a later block at that address */
	done(trace, 2);
	expect(trace, 1, 0, 2, 0);
	/* a block allocated during the walk lives, shown or not */
	assert_true(knows(trace, 8) && knows(trace, 9));
}

static void test_alive_meanwhile(void **state)
{
	struct trace *trace = *state;

	begin(trace, 2);
	pool(trace, 2, LIVE(1));
	put(trace, 200); /* after its pool was walked */
	done(trace, 2);
	assert_true(knows(trace, 200));
	expect(trace, 0, 0, 1, 0);
	walk(trace, 4, LIVE(200));
	expect(trace, 1, 0, 0, 0);
	walk(trace, 6, LIVE(1));
	assert_false(knows(trace, 200));
}

/* Blocks that are shown, but freed before the walk ends, do not count. */
static void test_died_meanwhile(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(1, 2));
	begin(trace, 4);
	pool(trace, 4, LIVE(1, 2, 3, 4));
	take_by(trace, EVENT_FREE, 1, at(2));
	take_by(trace, EVENT_FREE, 1, at(3));
	take_by(trace, EVENT_REALLOC, 2, at(4));
	done(trace, 4);
	expect(trace, 0, 1, 0, 0);
	/* Such a block is not old any more if it is shown again. */
	walk(trace, 6, LIVE(1, 2));
	expect(trace, 0, 1, 1, 0);
}

/* An event is emitted just before the allocation: the heap does not show the block yet. */
static void test_in_flight(void **state)
{
	struct trace *trace = *state;

	put_by(trace, 1, at(1), BLOCK, EVENT_API_OBJ);
	put_by(trace, 1, at(2), BLOCK, EVENT_API_OBJ);
	put_by(trace, 2, at(3), BLOCK, EVENT_API_OBJ);
	put_by(trace, 3, at(4), BLOCK, EVENT_API_OBJ);
	begin(trace, 2);
	in_flight(trace, 1);
	in_flight(trace, 2);
	in_flight(trace, 9); /* no event yet */
	pool(trace, 2, LIVE(299));
	done(trace, 2);
	assert_false(knows(trace, 1)); /* its thread has continued since */
	assert_true(knows(trace, 2) && knows(trace, 3));
	assert_false(knows(trace, 4)); /* its thread has completed it; the block was freed since */
	/* A mark applies to one walk only. */
	begin(trace, 4);
	in_flight(trace, 2);
	pool(trace, 4, LIVE(299));
	done(trace, 4);
	assert_true(!knows(trace, 2) && knows(trace, 3));
	in_flight(trace, 2); /* outside of a walk */
	walk(trace, 6, LIVE(299));
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 0);
	assert_int_equal(process_of(trace)->counters.records_malformed, 0);
}

static void test_in_flight_free(void **state)
{
	struct trace *trace = *state;

	put_by(trace, 1, at(1), BLOCK, EVENT_API_OBJ);
	put_by(trace, 1, at(2), BLOCK, EVENT_API_OBJ);
	take_by(trace, EVENT_FREE, 1, at(2));
	put_by(trace, 2, at(3), BLOCK, EVENT_API_OBJ);
	take_by(trace, EVENT_REALLOC, 2, at(3));
	begin(trace, 2);
	in_flight(trace, 1);
	in_flight(trace, 2);
	pool(trace, 2, LIVE(1, 2, 3));
	done(trace, 2);
	expect(trace, 1, 0, 0, 0);
	/* The realloc left the block in place. */
	take_by(trace, EVENT_REALLOC_FAIL, 2, at(3));
	begin(trace, 4);
	in_flight(trace, 2);
	pool(trace, 4, LIVE(1, 3));
	done(trace, 4);
	expect(trace, 2, 0, 0, 0);
	/* The free is complete: the block that is there now is another one. */
	walk(trace, 6, LIVE(1, 2, 3));
	expect(trace, 2, 0, 1, 0);
}

static void test_interrupted(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	begin(trace, 2);
	pool(trace, 2, LIVE(1, 9));
	begin(trace, 4);
	pool(trace, 2, LIVE(8)); /* belongs to no walk any more */
	pool(trace, 4, LIVE(2));
	done(trace, 2);
	assert_int_equal(process_of(trace)->coverage.time_ns, 0);
	done(trace, 4);
	expect(trace, 1, 0, 0, 1);
	assert_true(knows(trace, 2) && !knows(trace, 1));
	done(trace, 4); /* a duplicate changes nothing */
	pool(trace, 4, LIVE(3));
	expect(trace, 1, 0, 0, 1);
	assert_int_equal(process_of(trace)->counters.records_malformed, 0);
}

/*
 * The walk during a shutdown is the last one possible: a walk from outside that begins meanwhile is
 * ignored.
 */
static void test_inside(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	put(trace, 1);
	put(trace, 2);
	begin(trace, 2);
	pool(trace, 2, LIVE(1, 2));
	begin(trace, 5);
	begin(trace, 6);
	pool(trace, 6, LIVE(1));
	in_flight(trace, TGID);
	pool(trace, 5, LIVE(1));
	done_so(trace, 6, 0, EVENT_CENSUS_GIVEN_UP);
	done(trace, 5);
	expect(trace, 1, 0, 0, 1);
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->trace_count, 1);
	assert_int_equal(snapshot->traces[0].count, 1);
	snapshot_free(snapshot);
}

/*
 * The interpreter's count of large blocks is taken at some moment of the walk, and is compared with
 * the table's count at that moment.
 */
static void test_large_meanwhile(void **state)
{
	struct trace *trace = *state;

	for (uint64_t i = 1; i <= 3; i++)
		put_by(trace, 1, i << 16, 600, EVENT_API_OBJ);
	begin(trace, 2);
	for (uint64_t i = 4; i <= 9; i++)
		put_by(trace, 1, i << 16, 600, EVENT_API_OBJ);
	assert_int_equal(large_seen(trace, 2, 5), 5);
	begin(trace, 4);
	for (uint64_t i = 4; i <= 9; i++)
		take_by(trace, EVENT_FREE, 1, i << 16);
	assert_int_equal(large_seen(trace, 4, 7), 7);
	begin(trace, 6);
	assert_int_equal(large_seen(trace, 6, 2), 3);
}

int main(void)
{
#define CENSUS(test) cmocka_unit_test_setup_teardown(test, setup_census, teardown)
	const struct CMUnitTest tests[] = {
		CENSUS(test_doubtful_arrives), CENSUS(test_alive_meanwhile),
		CENSUS(test_died_meanwhile),   CENSUS(test_in_flight),
		CENSUS(test_in_flight_free),   CENSUS(test_interrupted),
		CENSUS(test_inside),           CENSUS(test_large_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
