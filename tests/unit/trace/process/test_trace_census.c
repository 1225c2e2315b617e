/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap walk is reconciled with the table of live blocks: live, older than the session,
 * missed and freed blocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "census_records.h"
#include "records.h"
#include "report/report.h"
#include "snapshot/snapshot.h"

static int setup_exact(void **state)
{
	return setup_mode(state, EVENT_MODE_EXACT);
}

static void test_reconcile(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(0, 1, 2, 299));
	assert_int_equal(process_of(trace)->coverage.time_ns, 0); /* a baseline is no measurement */
	put(trace, 100);
	put(trace, 101);
	put(trace, 298);
	/* 2 and 101 have died; 50 has no record; 298 and 299 are in the bitmap's last word. */
	walk(trace, 4, LIVE(0, 1, 50, 100, 298, 299));
	expect(trace, 2, 3, 1, 1);
	assert_true(knows(trace, 100) && knows(trace, 298) && !knows(trace, 101));
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 2);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 2 * (BLOCK - 1));
	assert_int_equal(process_of(trace)->coverage.time_ns, 2 * S);
	/* 2 is live again, without a record: it was freed in between, so it is not old. */
	walk(trace, 6, LIVE(0, 1, 2, 50, 100, 298));
	expect(trace, 2, 2, 2, 0);
	assert_int_equal(process_of(trace)->counters.records_malformed, 0);
}

/*
 * Feeds the sizes that the objects in some blocks of the pool report: pairs of a block's number and
 * bytes; the list ends with -1.
 */
static int sizes(struct trace *trace, uint64_t id, uint32_t count, const int *pairs)
{
	struct {
		struct event_census_sizes event;
		uint16_t bytes[EVENT_POOL_BLOCKS];
	} record = {.event = {.id = id, .address = POOL, .block_bytes = BLOCK, .count = count}};

	record.event.header =
		header_of(EVENT_CENSUS_SIZES, sizeof(record.event) + (count + 3) / 4 * 8);
	for (; *pairs >= 0; pairs += 2)
		record.bytes[pairs[0]] = (uint16_t)pairs[1];
	return trace_feed(trace, &record, record.event.header.size);
}

/*
 * A live block of the right class is not the one in the table if its object has another size: the
 * earlier block was freed, and the new allocation was not seen. A block that changes during the
 * walk proves nothing.
 */
static void test_sizes(void **state)
{
	struct trace *trace = *state;
	const struct snapshot_coverage *counts = &process_of(trace)->coverage;

	begin(trace, 0); /* older blocks are not checked */
	pool(trace, 0, LIVE(9));
	done(trace, 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(feed_alloc(trace, at(i), 40, 0), 0);
	assert_int_equal(feed_alloc(trace, at(4), 37, 0), 0);
	begin(trace, 2);
	pool(trace, 2, LIVE(0, 1, 2, 3, 4, 5, 9));
	/* The records of 3 and 5 are still under way; 9 is older. */
	assert_int_equal(sizes(trace, 2, 10, LIVE(0, 40, 1, 48, 3, 48, 4, 40, 5, 40, 9, 40)), 0);
	assert_int_equal(feed_alloc(trace, at(3), 48, 0), 0);
	assert_int_equal(feed_alloc(trace, at(5), 40, 0), 0);
	done(trace, 2);
	assert_int_equal(counts->typed_blocks, 3);
	assert_int_equal(counts->mistyped_blocks, 1);
	/* A walk without types leaves the counts unchanged. */
	begin(trace, 4);
	pool(trace, 4, LIVE(0, 1, 2, 3, 4, 5, 9));
	done(trace, 4);
	assert_int_equal(counts->typed_blocks, 3);
	assert_int_equal(counts->mistyped_blocks, 1);
	assert_int_equal(sizes(trace, 4, EVENT_POOL_BLOCKS + 4, LIVE(-1)), -EBADMSG);
}

/* A block of another class at that address: the block in the table is dead. */
static void test_class_mismatch(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, at(1), BLOCK + 1, 0), 0);
	assert_int_equal(feed_alloc(trace, at(2), 32, 0), 0);
	/* of 48 bytes, shrunk in place */
	assert_int_equal(feed_alloc(trace, at(3), 37, 0), 0);
	walk(trace, 2, LIVE(1, 2, 3));
	expect(trace, 1, 0, 2, 2);
	assert_true(knows(trace, 3) && !knows(trace, 1) && !knows(trace, 2));
}

static void test_given_up(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(0));
	put(trace, 1);
	put(trace, 2);
	walk(trace, 4, LIVE(0, 1, 2));
	begin(trace, 6);
	pool(trace, 6, LIVE(1, 9));
	done_so(trace, 6, 0, EVENT_CENSUS_GIVEN_UP);
	expect(trace, 2, 1, 0, 0); /* the result of the previous walk */
	assert_true(knows(trace, 1) && knows(trace, 2));
	/* Old blocks stay old, and the next walk finds each block in order. */
	walk(trace, 8, LIVE(0, 2));
	expect(trace, 1, 1, 0, 1);
}

/* An arena was not found: blocks that are shown count, other blocks may live in that arena. */
static void test_partial(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	begin(trace, 2);
	pool(trace, 2, LIVE(1, 5));
	done_so(trace, 2, 0, EVENT_CENSUS_PARTIAL);
	expect(trace, 1, 0, 1, 0);
	assert_true(knows(trace, 1) && knows(trace, 2));
	walk(trace, 4, LIVE(1));
	expect(trace, 1, 0, 0, 1);
}

/* Blocks outside of pools: large, of no bytes, raw, and of extension modules. */
static void test_not_pooled(void **state)
{
	struct trace *trace = *state;
	struct event_census end = end_of(4);

	begin(trace, 2);
	end.id = 2;
	end.baseline = 1;
	end.large_blocks = 10;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	put_by(trace, 1, 0x1000, 600, EVENT_API_OBJ);
	put_by(trace, 1, 0x2000, 0, EVENT_API_OBJ);
	put_by(trace, 1, 0x3000, 1, EVENT_API_LARGE); /* of no bytes, passed to malloc as 1 */
	put_by(trace, 1, 0x4000, 100, EVENT_API_LARGE);
	put_by(trace, 1, 0x5000, 100, EVENT_API_RAW);
	put_by(trace, 1, 0x6000, 100, EVENT_API_TRACK);
	put_by(trace, 1, 0x7000, 512, EVENT_API_OBJ);
	begin(trace, 4);
	end = end_of(4);
	end.large_blocks = 15;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 6);
	assert_int_equal(blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), 0x3000, 0)->bytes,
			 0);
	assert_null(blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), 0x7000, 0));
	assert_int_equal(process_of(trace)->coverage.large_blocks, 15);
	assert_int_equal(process_of(trace)->coverage.large_seen, 4);
	assert_int_equal(process_of(trace)->coverage.large_new, 5);
	end.id = 6;
	end.large_blocks = 3; /* fewer than before */
	begin(trace, 6);
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(process_of(trace)->coverage.large_new, 0);
}

/* Without frees, blocks in pools end when their address is reused: that is no loss. */
static void test_census_counters(void **state)
{
	struct trace *trace = *state;

	for (unsigned int i = 0; i < 10; i++)
		put(trace, i);
	put(trace, 0);
	assert_int_equal(process_of(trace)->tables[0].replaced, 0);
	put_by(trace, 1, 0x1000, 600, EVENT_API_OBJ);
	put_by(trace, 1, 0x1000, 600, EVENT_API_OBJ);
	assert_int_equal(process_of(trace)->tables[0].replaced, 1);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes,
			 0); /* how many of them live is not known yet */
	walk(trace, 2, LIVE(0, 1, 2, 3));
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 4 * (BLOCK - 1) + 600);
	put(trace, 20);
	walk(trace, 4, LIVE(0, 20));
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 4 * (BLOCK - 1) + 600);
	walk(trace, 6, LIVE(0));
	assert_int_equal(process_of(trace)->tables[0].live_bytes, BLOCK - 1 + 600);
	assert_int_equal(feed_mark(trace, EVENT_RESET_PEAK), 0);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, BLOCK - 1 + 600);
}

/* Exact mode: a walk corrects a lost free, and the peak stays the same. */
static void test_lost_free(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 2 * (BLOCK - 1));
	walk(trace, 2, LIVE(2));
	expect(trace, 1, 0, 0, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, BLOCK - 1);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 2 * (BLOCK - 1));
	put(trace, 2);
	assert_int_equal(process_of(trace)->tables[0].replaced, 1);
}

/* After a clear everything on the heap is old, including blocks that the table held. */
static void test_clear(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	walk(trace, 2, LIVE(1));
	begin(trace, 4);
	pool(trace, 4, LIVE(1, 2));
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	done(trace, 4); /* the walk began before the clear */
	assert_int_equal(process_of(trace)->coverage.time_ns, 0);
	baseline(trace, 6, LIVE(1, 2));
	put(trace, 3);
	walk(trace, 8, LIVE(1, 2, 3));
	expect(trace, 1, 2, 0, 0);
}

/* What it has run, and its probes. */
static void cost(struct trace *trace, uint64_t time_ns, uint64_t cpu_ns, uint64_t probes_ns)
{
	struct event_cost event = {.header = header_of(EVENT_COST, sizeof(event)),
				   .cpu_ns = cpu_ns,
				   .wait_ns = 7,
				   .probes_ns = probes_ns};

	event.header.time_ns = time_ns;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static struct snapshot_meta meta_of(struct trace *trace)
{
	struct snapshot_meta meta;

	assert_int_equal(trace_meta(trace, 0, &meta), 0);
	return meta;
}

/* A process that has not run since the last walk has not changed its heap. */
static void test_idle(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(0));
	cost(trace, 1 * S, 500, 100);
	walk(trace, 4, LIVE(0)); /* at 2 s */
	cost(trace, 3 * S, 500, 100);
	assert_int_equal(meta_of(trace).unread_ns, 0);
	cost(trace, 4 * S, 501, 100);
	assert_int_equal(meta_of(trace).unread_ns, 2 * S);
}

/* What the probes took is at most all that it has run; what is not known is not guessed. */
static void test_cost(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(meta_of(trace).cpu_ns, 0);
	cost(trace, 1 * S, 500, EVENT_COST_UNKNOWN);
	assert_int_equal(meta_of(trace).cpu_ns, 0);
	assert_int_equal(meta_of(trace).probes_ns, 0);
	cost(trace, 2 * S, 500, 300);
	assert_int_equal(meta_of(trace).cpu_ns, 500);
	assert_int_equal(meta_of(trace).wait_ns, 7);
	assert_int_equal(meta_of(trace).probes_ns, 300);
	cost(trace, 3 * S, 500, 600);
	assert_int_equal(meta_of(trace).probes_ns, 500);
	assert_int_equal(meta_of(trace).emptied, 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(meta_of(trace).emptied, 1);
}

int main(void)
{
#define CENSUS(test) cmocka_unit_test_setup_teardown(test, setup_census, teardown)
#define EXACT(test)  cmocka_unit_test_setup_teardown(test, setup_exact, teardown)
	const struct CMUnitTest tests[] = {
		CENSUS(test_reconcile),  EXACT(test_reconcile),
		CENSUS(test_sizes),      CENSUS(test_class_mismatch),
		CENSUS(test_given_up),   CENSUS(test_partial),
		CENSUS(test_not_pooled), CENSUS(test_census_counters),
		EXACT(test_lost_free),   CENSUS(test_clear),
		CENSUS(test_idle),       CENSUS(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
