/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of processes that have ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include "budget_traces.h"
#include "ranges.h"
#include "records.h"
#include "sanitized.h"
#include "snapshot/builder.h"

/* Ended processes make room, the smallest first; what they held is reported. */
static void test_ended_make_room(void **state)
{
	enum { BLOCKS = 3000, PROCESSES = 400 };
	struct trace *trace = trace_begin(BUDGET);
	struct trace_dropped dropped;
	size_t index;
	(void)state;

	for (uint32_t p = 1; p <= PROCESSES; p++) {
		begin(trace, TGID + p, 0, EVENT_MODE_EXACT);
		for (uint64_t i = 1; i <= BLOCKS + p; i++)
			put(trace, TGID + p, i, 0);
		end(trace, TGID + p);
		assert_true(trace_memory(trace) <= BUDGET);
	}
	dropped = trace_dropped(trace);
	assert_uint_in_range(dropped.processes, 1, PROCESSES - 2);
	assert_true(dropped.bytes > 10 * dropped.blocks);
	assert_int_equal(trace_process_find(trace, TGID + 1, &index), -ENOENT);
	assert_int_equal(trace_process_find(trace, TGID + PROCESSES, &index), 0);
	trace_free(trace);
}

enum { SMALL_BLOCKS = 100, SMALL_STACKS = 20, SMALL_PROCESSES = 500, SMALL_BUDGET = 64 << 20 };

/* Traces a small program from start to end. */
static void small_run(struct trace *trace, uint32_t tgid)
{
	begin(trace, tgid, 0, EVENT_MODE_EXACT);
	for (uint64_t i = 1; i <= SMALL_BLOCKS; i++)
		put(trace, tgid, i, i % SMALL_STACKS);
	end(trace, tgid);
}

/*
 * Large processes that end, and one that runs and takes all the memory it can get, do not displace
 * the small ones.
 */
static void test_small_ended(void **state)
{
	struct trace *trace = trace_begin(SMALL_BUDGET);
	const struct trace_process *process;
	struct snapshot *snapshot;
	uint32_t larger = 10 * TGID;
	size_t index;
	(void)state;

	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++) {
		for (uint64_t i = 1; i <= 6000; i++)
			put(trace, TGID, p * 6000 + i, 0);
		small_run(trace, TGID + p);
		if (p % 2)
			continue;
		begin(trace, ++larger, 0, EVENT_MODE_EXACT);
		for (uint64_t i = 1; i <= 5000; i++)
			put(trace, larger, i, 0);
		end(trace, larger);
	}
	assert_true(trace_process_at(trace, 0)->counters.blocks_dropped > 0);
	assert_uint_in_range(trace_dropped(trace).processes, 1, larger - 10 * TGID);
	assert_true(trace_memory(trace) <= SMALL_BUDGET);
	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++) {
		assert_int_equal(trace_process_find(trace, TGID + p, &index), 0);
		process = trace_process_at(trace, index);
		assert_int_equal(
			process->counters.blocks_dropped + process->counters.stacks_dropped, 0);
		assert_int_equal(trace_snapshot(trace, index, 1, &snapshot), 0);
		assert_int_equal(snapshot->trace_count, SMALL_BLOCKS);
		snapshot_free(snapshot);
	}
	trace_free(trace);
}

static size_t held(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/*
 * Ended processes are charged for the memory they hold: 100 traces of 48 bytes, up to two for what
 * each of 20 stacks has allocated and held at the peak, and the metadata of each process.
 */
static void test_ended_memory(void **state)
{
	struct trace *trace = trace_begin(SMALL_BUDGET);
	size_t before = held(), charged = trace_memory(trace);
	(void)state;

	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++)
		small_run(trace, TGID + p);
	charged = trace_memory(trace) - charged;
	assert_uint_in_range(charged / SMALL_PROCESSES, 8640, 14500);
	if (!SANITIZED)
		assert_uint_in_range(held() - before, charged / 5 * 4, charged / 5 * 6);
	trace_free(trace);
}

/*
 * Discarded processes leave nothing behind, however many there were. Late records of the last ones
 * are still possible.
 */
static void test_gone(void **state)
{
	enum { FEW = 5000, MOST = 100000 };
	struct trace *trace = trace_begin(SMALL_BUDGET);
	size_t after_few = 0;
	(void)state;

	for (uint32_t p = 1; p <= MOST; p++) {
		struct event_mark discard = {.header = header_of(EVENT_DISCARD, sizeof(discard))};

		discard.header.tgid = TGID + p;
		begin(trace, TGID + p, 0, EVENT_MODE_EXACT);
		assert_int_equal(trace_feed(trace, &discard, sizeof(discard)), 0);
		put(trace, TGID + p, 1, 0);
		put(trace, TGID + 1, 1, 0); /* records of this process continue */
		if (p == FEW)
			after_few = trace_memory(trace);
	}
	assert_int_equal(trace_memory(trace), after_few);
	assert_int_equal(trace_orphans(trace), 0);
	trace_free(trace);
}

/* A snapshot that exceeds the remaining memory holds what fits, and counts the rest. */
static void test_snapshot_left(void **state)
{
	enum { SMALL = 1 << 20 };
	struct trace *trace = trace_begin(SMALL);
	struct snapshot *snapshot;
	uint64_t kept = 0, live;
	(void)state;

	for (uint32_t i = 1; i < MANY / 16; i++) {
		put(trace, TGID, i, i);
		assert_int_equal(feed_stack(trace, i, i, 1), 0);
	}
	for (uint32_t i = 1; i < MANY / 16; i++) {
		char name[32];

		snprintf(name, sizeof(name), "function %u", i);
		assert_int_equal(feed_code(trace, i, "f.py", name, i, EVENT_MISS_LINES, 0), 0);
	}
	live = trace_process_at(trace, 0)->tables[0].live_blocks;
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		kept += snapshot->traces[i].count;
	assert_true(kept > 0);
	assert_int_equal(kept + snapshot->meta.blocks_dropped,
			 live + trace_process_at(trace, 0)->counters.blocks_dropped);
	snapshot_free(snapshot);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ended_make_room),
		cmocka_unit_test(test_snapshot_left),
		cmocka_unit_test(test_small_ended),
		cmocka_unit_test(test_ended_memory),
		cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
