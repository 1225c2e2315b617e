/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings of the heap against the table: what lives, what is old, what nobody has told of, what
 * has died.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "records.h"
#include "report/report.h"
#include "snapshot/snapshot.h"

#define POOL   0x7f0000000040ull
#define BLOCK  48u
#define BLOCKS 300u /* more than four words of bits */
#define S      1000000000ull

/* The block's address in the pool. */
static uint64_t at(unsigned int number)
{
	return POOL + (uint64_t)number * BLOCK;
}

static int setup_mode(void **state, uint32_t mode)
{
	struct trace *trace;
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = 0x030d00f0,
				     .nframe = 16,
				     .mode = mode,
				     .name = "python3"};

	if (trace_new(&trace, NULL) || trace_feed(trace, &event, sizeof(event)))
		return -1;
	*state = trace;
	return 0;
}

static int setup_census(void **state)
{
	return setup_mode(state, EVENT_MODE_CENSUS);
}

static int setup_exact(void **state)
{
	return setup_mode(state, EVENT_MODE_EXACT);
}

static int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

static void put_by(struct trace *trace, uint32_t tid, uint64_t address, uint64_t bytes,
		   uint32_t api)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .api = api};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void take_by(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address)
{
	struct event_free event = {.header = header_of(type, sizeof(event)), .address = address};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void put(struct trace *trace, unsigned int number)
{
	assert_int_equal(feed_alloc(trace, at(number), BLOCK - 1, 0), 0);
}

static void begin(struct trace *trace, uint64_t id)
{
	struct event_census event = {.header = header_of(EVENT_CENSUS, sizeof(event)), .id = id};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void in_flight(struct trace *trace, uint32_t tid)
{
	struct event_mark event = {.header = header_of(EVENT_CENSUS_THREAD, sizeof(event))};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

struct pool_event {
	struct event_census_pool event;
	uint64_t bits[EVENT_POOL_BLOCKS / 64];
};

static struct pool_event pool_of(uint64_t id, uint64_t address, uint32_t block_bytes,
				 uint32_t count)
{
	size_t size = sizeof(struct event_census_pool) + (count + 63) / 64 * 8;

	return (struct pool_event){.event = {.header = header_of(EVENT_CENSUS_POOL, size),
					     .id = id,
					     .address = address,
					     .block_bytes = block_bytes,
					     .count = count}};
}

static int pool_feed(struct trace *trace, const struct pool_event *pool)
{
	return trace_feed(trace, pool, pool->event.header.size);
}

/* A pool of BLOCKS blocks of which these live; the list ends with a negative number. */
static void pool(struct trace *trace, uint64_t id, const int *live)
{
	struct pool_event event = pool_of(id, POOL, BLOCK, BLOCKS);

	for (; *live >= 0; live++)
		event.bits[*live / 64] |= 1ull << *live % 64;
	assert_int_equal(pool_feed(trace, &event), 0);
}

#define LIVE(...) ((const int[]){__VA_ARGS__, -1})

static struct event_census end_of(uint64_t id)
{
	struct event_census event = {.header = header_of(EVENT_CENSUS_DONE, sizeof(event)),
				     .id = id};

	event.header.time_ns = 2 * S;
	return event;
}

static void done(struct trace *trace, uint64_t id)
{
	struct event_census event = end_of(id);

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void done_so(struct trace *trace, uint64_t id, uint32_t baseline, uint32_t failed)
{
	struct event_census event = end_of(id);

	event.baseline = baseline;
	event.failed = failed;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* A whole one. */
static void reading(struct trace *trace, uint64_t id, const int *live)
{
	begin(trace, id);
	pool(trace, id, live);
	done(trace, id);
}

static void baseline(struct trace *trace, uint64_t id, const int *live)
{
	begin(trace, id);
	pool(trace, id, live);
	done_so(trace, id, 1, 0);
}

static const struct trace_process *process_of(struct trace *trace)
{
	return trace_process_at(trace, 0);
}

static int knows(struct trace *trace, unsigned int number)
{
	return blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), at(number), 0) != NULL;
}

static void expect(struct trace *trace, uint64_t seen, uint64_t old, uint64_t unseen, uint64_t dead)
{
	const struct snapshot_coverage *counts = &process_of(trace)->coverage;

	assert_int_equal(counts->seen_blocks, seen);
	assert_int_equal(counts->seen_bytes, seen * BLOCK);
	assert_int_equal(counts->old_blocks, old);
	assert_int_equal(counts->old_bytes, old * BLOCK);
	assert_int_equal(counts->new_blocks, seen + unseen);
	assert_int_equal(counts->live_blocks, seen + old + unseen);
	assert_int_equal(counts->live_bytes, (seen + old + unseen) * BLOCK);
	assert_int_equal(counts->dead_blocks, dead);
}

static void test_reconcile(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(0, 1, 2, 299));
	assert_int_equal(process_of(trace)->coverage.time_ns, 0); /* it is no measurement */
	put(trace, 100);
	put(trace, 101);
	put(trace, 298);
	/* 2 has died, and so has 101; 50 nobody told of; 298 and 299 lie in the last word. */
	reading(trace, 4, LIVE(0, 1, 50, 100, 298, 299));
	expect(trace, 2, 3, 1, 1);
	assert_true(knows(trace, 100) && knows(trace, 298) && !knows(trace, 101));
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 2);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 2 * (BLOCK - 1));
	assert_int_equal(process_of(trace)->coverage.time_ns, 2 * S);
	/* 2 again, by a request that nobody saw: it was gone meanwhile, so it is not old. */
	reading(trace, 6, LIVE(0, 1, 2, 50, 100, 298));
	expect(trace, 2, 2, 2, 0);
	assert_int_equal(process_of(trace)->counters.records_malformed, 0);
}

/* Its event was on its way when the pool was read. */
static void test_doubtful_arrives(void **state)
{
	struct trace *trace = *state;

	begin(trace, 2);
	pool(trace, 2, LIVE(7, 8, 9));
	put(trace, 8);
	assert_int_equal(feed_alloc(trace, at(9), BLOCK + 1, 0),
			 0); /* of another class: a later block at that place */
	done(trace, 2);
	expect(trace, 1, 0, 2, 0);
	/* what came to life during it lives, shown or not */
	assert_true(knows(trace, 8) && knows(trace, 9));
}

static void test_alive_meanwhile(void **state)
{
	struct trace *trace = *state;

	begin(trace, 2);
	pool(trace, 2, LIVE(1));
	put(trace, 200); /* after its pool was read */
	done(trace, 2);
	assert_true(knows(trace, 200));
	expect(trace, 0, 0, 1, 0);
	reading(trace, 4, LIVE(200));
	expect(trace, 1, 0, 0, 0);
	reading(trace, 6, LIVE(1));
	assert_false(knows(trace, 200));
}

/* Shown, and gone before the reading's end: it counts as neither. */
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
	/* And is not old any more, should it be there once again. */
	reading(trace, 6, LIVE(1, 2));
	expect(trace, 0, 1, 1, 0);
}

/* An event that was made just before the deed: the heap does not show it yet. */
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
	in_flight(trace, 9); /* did nothing yet */
	pool(trace, 2, LIVE(299));
	done(trace, 2);
	assert_false(knows(trace, 1)); /* its thread has gone on since */
	assert_true(knows(trace, 2) && knows(trace, 3));
	assert_false(knows(trace, 4)); /* its thread has done it, and that was undone since */
	/* Said of one reading, it holds for that only. */
	begin(trace, 4);
	in_flight(trace, 2);
	pool(trace, 4, LIVE(299));
	done(trace, 4);
	assert_true(!knows(trace, 2) && knows(trace, 3));
	in_flight(trace, 2); /* of no reading */
	reading(trace, 6, LIVE(299));
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
	/* The realloc left it where it was. */
	take_by(trace, EVENT_REALLOC_FAIL, 2, at(3));
	begin(trace, 4);
	in_flight(trace, 2);
	pool(trace, 4, LIVE(1, 3));
	done(trace, 4);
	expect(trace, 2, 0, 0, 0);
	/* A free that is done: what is there now is another block. */
	reading(trace, 6, LIVE(1, 2, 3));
	expect(trace, 2, 0, 1, 0);
}

/* Blocks of an unreadable pool stay as they are, wherever in it they begin. */
/*
 * What the objects in some blocks of the pool say of their sizes: pairs of a block's number and
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
 * A block that lives, of the right class, is not the one in the table if its object is of another
 * size: the one before it was freed, and its own allocation not seen. What changes while the heap
 * is read says nothing.
 */
static void test_sizes(void **state)
{
	struct trace *trace = *state;
	const struct snapshot_coverage *counts = &process_of(trace)->coverage;

	begin(trace, 0); /* older: nothing */
	pool(trace, 0, LIVE(9));
	done(trace, 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(feed_alloc(trace, at(i), 40, 0), 0);
	assert_int_equal(feed_alloc(trace, at(4), 37, 0), 0);
	begin(trace, 2);
	pool(trace, 2, LIVE(0, 1, 2, 3, 4, 5, 9));
	/* 3 and 5 are told of by records that are still under way; 9 is older. */
	assert_int_equal(sizes(trace, 2, 10, LIVE(0, 40, 1, 48, 3, 48, 4, 40, 5, 40, 9, 40)), 0);
	assert_int_equal(feed_alloc(trace, at(3), 48, 0), 0);
	assert_int_equal(feed_alloc(trace, at(5), 40, 0), 0);
	done(trace, 2);
	assert_int_equal(counts->typed_blocks, 3);
	assert_int_equal(counts->mistyped_blocks, 1);
	/* A reading that asks of no types leaves that as it is. */
	begin(trace, 4);
	pool(trace, 4, LIVE(0, 1, 2, 3, 4, 5, 9));
	done(trace, 4);
	assert_int_equal(counts->typed_blocks, 3);
	assert_int_equal(counts->mistyped_blocks, 1);
	assert_int_equal(sizes(trace, 4, EVENT_POOL_BLOCKS + 4, LIVE(-1)), -EBADMSG);
}

static void test_unreadable(void **state)
{
	struct trace *trace = *state;
	struct pool_event unreadable = pool_of(2, POOL, 0, EVENT_POOL_BLOCKS);
	struct event_census end = end_of(2);
	uint64_t last = POOL + (EVENT_POOL_BLOCKS - 1) * 16;

	put(trace, 0);
	put(trace, 5);
	assert_int_equal(feed_alloc(trace, last, 16, 0), 0);
	assert_int_equal(feed_alloc(trace, last + 16, 16, 0), 0); /* the next pool */
	begin(trace, 2);
	assert_int_equal(pool_feed(trace, &unreadable), 0);
	end.pools_unreadable = 3;
	end.elapsed_ns = 4;
	end.frozen_ns = 5;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_true(knows(trace, 0) && knows(trace, 5));
	assert_non_null(blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), last, 0));
	assert_null(blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), last + 16, 0));
	expect(trace, 0, 0, 0, 1);
	assert_int_equal(process_of(trace)->coverage.pools_unreadable, 3);
	assert_int_equal(process_of(trace)->coverage.elapsed_ns, 4);
	assert_int_equal(process_of(trace)->coverage.frozen_ns, 5);
}

/* A block of another class at that place: what the table has there is dead. */
static void test_class_mismatch(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, at(1), BLOCK + 1, 0), 0);
	assert_int_equal(feed_alloc(trace, at(2), 32, 0), 0);
	/* of 48 bytes, made smaller where it is */
	assert_int_equal(feed_alloc(trace, at(3), 37, 0), 0);
	reading(trace, 2, LIVE(1, 2, 3));
	expect(trace, 1, 0, 2, 2);
	assert_true(knows(trace, 3) && !knows(trace, 1) && !knows(trace, 2));
}

static void test_interrupted(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	begin(trace, 2);
	pool(trace, 2, LIVE(1, 9));
	begin(trace, 4);
	pool(trace, 2, LIVE(8)); /* belongs to nothing any more */
	pool(trace, 4, LIVE(2));
	done(trace, 2);
	assert_int_equal(process_of(trace)->coverage.time_ns, 0);
	done(trace, 4);
	expect(trace, 1, 0, 0, 1);
	assert_true(knows(trace, 2) && !knows(trace, 1));
	done(trace, 4); /* twice says nothing new */
	pool(trace, 4, LIVE(3));
	expect(trace, 1, 0, 0, 1);
	assert_int_equal(process_of(trace)->counters.records_malformed, 0);
}

/*
 * The reading of a shutdown is the last there can be: one from outside that begins meanwhile gives
 * way.
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

static void test_given_up(void **state)
{
	struct trace *trace = *state;

	baseline(trace, 2, LIVE(0));
	put(trace, 1);
	put(trace, 2);
	reading(trace, 4, LIVE(0, 1, 2));
	begin(trace, 6);
	pool(trace, 6, LIVE(1, 9));
	done_so(trace, 6, 0, EVENT_CENSUS_GIVEN_UP);
	expect(trace, 2, 1, 0, 0); /* that of the one before */
	assert_true(knows(trace, 1) && knows(trace, 2));
	/* What is old still is, and the next one finds each block in order. */
	reading(trace, 8, LIVE(0, 2));
	expect(trace, 1, 1, 0, 1);
}

/* An arena that could not be found: what is shown counts, what is not may live there. */
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
	reading(trace, 4, LIVE(1));
	expect(trace, 1, 0, 0, 1);
}

/* Blocks that no pool holds: large, of no bytes, raw, and extension modules' own. */
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
	put_by(trace, 1, 0x3000, 1, EVENT_API_LARGE); /* of no bytes, as malloc is asked for it */
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
	end.large_blocks = 3; /* fewer than there were */
	begin(trace, 6);
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(process_of(trace)->coverage.large_new, 0);
}

static uint64_t large_seen(struct trace *trace, uint64_t id, uint64_t large_blocks)
{
	struct event_census end = end_of(id);

	end.large_blocks = large_blocks;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	return process_of(trace)->coverage.large_seen;
}

/*
 * The interpreter's count of large blocks is of some moment of the reading, and the table's of that
 * moment is held against it.
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

/*
 * Without their frees, blocks in pools end when their address is given out again: that is no loss.
 */
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
			 0); /* how much of that lives is not known yet */
	reading(trace, 2, LIVE(0, 1, 2, 3));
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 4 * (BLOCK - 1) + 600);
	put(trace, 20);
	reading(trace, 4, LIVE(0, 20));
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 4 * (BLOCK - 1) + 600);
	reading(trace, 6, LIVE(0));
	assert_int_equal(process_of(trace)->tables[0].live_bytes, BLOCK - 1 + 600);
	assert_int_equal(feed_mark(trace, EVENT_RESET_PEAK), 0);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, BLOCK - 1 + 600);
}

/* Exact mode: a free that was lost is made good, and the peak is what it was. */
static void test_lost_free(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 2 * (BLOCK - 1));
	reading(trace, 2, LIVE(2));
	expect(trace, 1, 0, 0, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, BLOCK - 1);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 2 * (BLOCK - 1));
	put(trace, 2);
	assert_int_equal(process_of(trace)->tables[0].replaced, 1);
}

/* Everything on the heap is old after a clear, also what the table knew. */
static void test_clear(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	reading(trace, 2, LIVE(1));
	begin(trace, 4);
	pool(trace, 4, LIVE(1, 2));
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	done(trace, 4); /* of before */
	assert_int_equal(process_of(trace)->coverage.time_ns, 0);
	baseline(trace, 6, LIVE(1, 2));
	put(trace, 3);
	reading(trace, 8, LIVE(1, 2, 3));
	expect(trace, 1, 2, 0, 0);
}

static void text_write(const struct snapshot *snapshot, FILE *out)
{
	const struct report_opts opts = {.by = GROUP_LINENO};

	assert_int_equal(report_text(snapshot, &opts, out), 0);
}

/* What is written of a snapshot; the caller's to free(). */
static char *text_of(const struct snapshot *snapshot,
		     void (*write)(const struct snapshot *, FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	write(snapshot, out);
	fclose(out);
	return text;
}

/* The end comes some time after the last reading, or before any: the report says so. */
static void test_unread(void **state)
{
	struct trace *trace = *state;
	struct event_process end = {.header = header_of(EVENT_EXIT, sizeof(end))};
	struct snapshot *snapshot;
	char *text;

	put(trace, 1);
	reading(trace, 2, LIVE(1));
	end.header.time_ns = 2 * S + S / 200;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->meta.unread_ns, S / 200);
	text = text_of(snapshot, text_write);
	assert_non_null(strstr(
		text, "  the heap was last read 5.0 ms before: small blocks that died since "));
	assert_non_null(strstr(
		text, "  heap: 1 blocks in pools: 1 traced, 0 older than the trace, 0 unseen; "));
	free(text);
	snapshot_free(snapshot);
}

#define ARENA_BYTES (1u << 20)
#define FAR         100000 /* number of a block that lies in another arena */

static int arena(struct trace *trace, uint64_t id, uint64_t bytes)
{
	struct event_census_arena event = {.header = header_of(EVENT_CENSUS_ARENA, sizeof(event)),
					   .id = id,
					   .address = POOL & ~(uint64_t)(ARENA_BYTES - 1),
					   .bytes = bytes};

	return trace_feed(trace, &event, sizeof(event));
}

static void cut(struct trace *trace, uint64_t id)
{
	struct event_census event = end_of(id);

	event.failed = EVENT_CENSUS_CUT;
	event.pieces = 1;
	event.steps = 1234;
	event.arenas = 1;
	event.arenas_unread = 17;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/*
 * The kernel's steps were used up: what is not shown is dead in the arenas that were read whole,
 * and there alone.
 */
static void test_cut(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	put(trace, FAR);
	reading(trace, 2, LIVE(1, 2, 5));
	put(trace, FAR); /* that reading did not show it */
	begin(trace, 3);
	pool(trace, 3, LIVE(1, 9));
	assert_int_equal(arena(trace, 3, ARENA_BYTES), 0);
	cut(trace, 3);
	assert_true(knows(trace, 1) && knows(trace, FAR) && !knows(trace, 2));
	expect(trace, 2, 0, 1, 1); /* what the whole reading has measured */
	assert_int_equal(process_of(trace)->ending.steps, 1234);
}

/* An arena of which a part was read is none that was read. */
static void test_cut_within(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	begin(trace, 3);
	pool(trace, 3, LIVE(1));
	cut(trace, 3);
	assert_true(knows(trace, 1) && knows(trace, 2));
}

static void test_arena_malformed(void **state)
{
	struct trace *trace = *state;

	put(trace, 2);
	begin(trace, 3);
	assert_int_equal(arena(trace, 3, UINT64_MAX), -EBADMSG);
	assert_int_equal(arena(trace, 5, ARENA_BYTES), 0); /* of another reading */
	cut(trace, 3);
	assert_true(knows(trace, 2));
}

/* The report says how much was not read, and how old the figures of that are. */
static void test_cut_said(void **state)
{
	struct trace *trace = *state;
	struct event_process end = {.header = header_of(EVENT_EXIT, sizeof(end))};
	struct snapshot *snapshot;
	char *text;

	put(trace, 1);
	reading(trace, 2, LIVE(1));
	begin(trace, 3);
	cut(trace, 3);
	end.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	text = text_of(snapshot, text_write);
	assert_non_null(strstr(
		text, "  of the heap's arenas 1 were read at the end, at most 17 were not: "));
	assert_non_null(strstr(text, "  the heap was last read 2000.0 ms before: small blocks "));
	free(text);
	text = text_of(snapshot, report_json_meta);
	assert_non_null(strstr(text, "\"ending\": {\"pieces\": 1, \"steps\": 1234, "));
	assert_non_null(strstr(text, "\"arenas_unread\": 17, \"whole\": false}"));
	free(text);
	snapshot_free(snapshot);
}

/* A capture of before there were steps. */
static void test_short_record(void **state)
{
	struct trace *trace = *state;
	struct event_census event = end_of(2);

	put(trace, 1);
	begin(trace, 2);
	pool(trace, 2, LIVE(1));
	event.header.size = EVENT_CENSUS_MIN;
	assert_int_equal(trace_feed(trace, &event, EVENT_CENSUS_MIN), 0);
	expect(trace, 1, 0, 0, 0);
	assert_int_equal(process_of(trace)->ending.pieces, 0);
}

static void malformed(struct trace *trace, const struct pool_event *event)
{
	uint64_t before = process_of(trace)->counters.records_malformed;

	assert_int_equal(pool_feed(trace, event), -EBADMSG);
	assert_int_equal(process_of(trace)->counters.records_malformed, before + 1);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	struct pool_event event;

	begin(trace, 2);
	event = pool_of(2, POOL, BLOCK, EVENT_POOL_BLOCKS + 1);
	event.event.header.size = sizeof(event);
	malformed(trace, &event);
	event = pool_of(2, POOL, 528, 1);
	malformed(trace, &event);
	event = pool_of(2, POOL, 24, 1);
	malformed(trace, &event);
	event = pool_of(2, POOL + 8, BLOCK, 1);
	malformed(trace, &event);
	event = pool_of(2, (1ull << 56) - 16, BLOCK, 2); /* beyond the addresses of user space */
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 65);
	event.event.header.size -= 8; /* bits for 64 */
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 64);
	event.event.header.size += 8;
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 0); /* nothing, and well said */
	assert_int_equal(pool_feed(trace, &event), 0);
	/* As many as there can be, and bits beyond the last block. */
	event = pool_of(2, POOL, 512, EVENT_POOL_BLOCKS);
	memset(event.bits, 0xff, sizeof(event.bits));
	assert_int_equal(pool_feed(trace, &event), 0);
	event = pool_of(2, POOL, BLOCK, 1);
	event.bits[0] = UINT64_MAX;
	assert_int_equal(pool_feed(trace, &event), 0);
	done(trace, 2);
	assert_int_equal(process_of(trace)->coverage.live_blocks, EVENT_POOL_BLOCKS + 1);
	assert_int_equal(process_of(trace)->coverage.seen_blocks, 0);
}

int main(void)
{
#define CENSUS(test) cmocka_unit_test_setup_teardown(test, setup_census, teardown)
#define EXACT(test)  cmocka_unit_test_setup_teardown(test, setup_exact, teardown)
	const struct CMUnitTest tests[] = {
		CENSUS(test_cut),
		CENSUS(test_cut_within),
		CENSUS(test_cut_said),
		CENSUS(test_arena_malformed),
		CENSUS(test_short_record),
		CENSUS(test_reconcile),
		CENSUS(test_doubtful_arrives),
		CENSUS(test_alive_meanwhile),
		CENSUS(test_died_meanwhile),
		CENSUS(test_in_flight),
		CENSUS(test_in_flight_free),
		CENSUS(test_sizes),
		CENSUS(test_unreadable),
		CENSUS(test_class_mismatch),
		CENSUS(test_interrupted),
		CENSUS(test_inside),
		CENSUS(test_given_up),
		CENSUS(test_partial),
		CENSUS(test_not_pooled),
		CENSUS(test_large_meanwhile),
		CENSUS(test_census_counters),
		EXACT(test_lost_free),
		CENSUS(test_clear),
		CENSUS(test_unread),
		CENSUS(test_malformed),
		EXACT(test_reconcile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
