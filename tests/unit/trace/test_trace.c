/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations and frees, fed into a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "ranges.h"
#include "records.h"
#include "snapshot/snapshot.h"
#include "traces.h"

static void test_alloc_free(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 150);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 50);
	assert_int_equal(process->tables[0].live_blocks, 1);
	assert_int_equal(process->tables[0].peak_bytes, 150);
	assert_int_equal(process->tables[0].frees, 2);
	assert_int_equal(process->tables[0].frees_unknown, 1);
}

/* A table that has reached its budget keeps its blocks, and counts those that it drops. */
static void test_budget(void **state)
{
	enum { FED = 200000, BUDGET = 2 << 20, AGAIN = 2000 };
	struct trace *trace;
	const struct trace_process *process;
	struct snapshot *snapshot;
	uint64_t kept, again;
	(void)state;

	assert_int_equal(trace_new(&trace, NULL), 0);
	trace_budget(trace, BUDGET);
	assert_int_equal(feed_process(trace, PY38), 0);
	process = process_of(trace);
	for (uint64_t i = 1; i <= FED; i++)
		assert_int_equal(feed_alloc(trace, 16 * i, 10, 0), 0);
	kept = process->tables[0].live_blocks;
	assert_uint_in_range(kept, BUDGET / 100, FED - 1);
	assert_int_equal(process->counters.blocks_dropped, FED - kept);
	assert_int_equal(process->counters.bytes_dropped, 10 * (FED - kept));
	assert_uint_in_range(trace_memory(trace), BUDGET / 2, 2 * BUDGET);
	/*
	 * A full table still replaces an existing block, and reuses the entries of dead blocks
	 * (each part of the table reuses only its own entries).
	 */
	assert_int_equal(feed_alloc(trace, 16, 30, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 10 * kept + 20);
	for (uint64_t i = 1; i <= AGAIN; i++)
		assert_int_equal(feed_free(trace, 16 * i), 0);
	assert_int_equal(process->tables[0].live_blocks, kept - AGAIN);
	for (uint64_t i = 1; i <= AGAIN; i++)
		assert_int_equal(feed_alloc(trace, 16 * (FED + i), 10, 0), 0);
	again = process->tables[0].live_blocks - (kept - AGAIN);
	assert_uint_in_range(again, AGAIN / 2, AGAIN);
	assert_int_equal(process->counters.blocks_dropped, FED - kept + AGAIN - again);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.blocks_dropped, process->counters.blocks_dropped);
	snapshot_free(snapshot);
	trace_free(trace);
}

static void test_replaced(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 7, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].replaced, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 7);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 1);
}

static void test_realloc_done(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
	/* Another thread gets the old address before the realloc returns: no phantom block. */
	assert_int_equal(feed_put(trace, EVENT_ALLOC, 2, 16, 30, 0), 0);
	assert_int_equal(process->tables[0].replaced, 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 64, 200, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 230);
	assert_int_equal(process->tables[0].reallocs, 1);
	assert_int_equal(process->tables[0].frees_unknown, 0);
	/* A block older than the trace. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 999), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 128, 1, 0), 0);
	assert_int_equal(process->tables[0].frees_unknown, 1);
	assert_int_equal(process->tables[0].live_bytes, 231);
}

static void test_realloc_fail(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 16), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 32), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 100);
	/* no realloc is under way any more */
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 100);
	/* An earlier realloc that never ended is dropped. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 2, 16), 0);
	/* The address is live already: the newer block stays. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(feed_alloc(trace, 16, 5, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 2, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 5);
}

/*
 * Requests that pymalloc forwards to malloc: no bytes or more than 512. Such a block stays large.
 */
static void test_large(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 512, 0), 0);
	assert_int_equal(process->large_blocks, 0);
	assert_int_equal(feed_alloc(trace, 1024, 513, 0), 0);
	assert_int_equal(feed_alloc(trace, 2048, 0, 0), 0);
	assert_int_equal(process->large_blocks, 2);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 1024), 0);
	assert_int_equal(process->large_blocks, 1);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 1024, 10, 0), 0);
	assert_int_equal(process->large_blocks, 2);
	assert_int_equal(feed_free(trace, 1024), 0);
	assert_int_equal(feed_free(trace, 2048), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->large_blocks, 0);
}

/*
 * The debugging hooks request 24 bytes more than the program, so that blocks of more than 488 bytes
 * are large for pymalloc.
 */
static void test_hooked(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 0x1010,
				    .bytes = 488,
				    .api = EVENT_API_OBJ | EVENT_API_HOOKED};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 0);
	event.address = 0x2010;
	event.bytes = 489;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 1);
	event.address = 0x3010;
	event.bytes = 0; /* also a block */
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 1);
	assert_int_equal(process->tables[0].live_bytes, 488 + 489);
	assert_int_equal(process->tables[0].live_blocks, 3);
}

/*
 * A block with a rounded size is counted as such as long as it lives, and it has a separate trace.
 */
static void test_rounded(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 16,
				    .bytes = 48,
				    .api = EVENT_API_OBJ | EVENT_API_ROUNDED};
	struct snapshot *snapshot;

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(feed_alloc(trace, 32, 40, 0), 0);
	assert_int_equal(process->rounded_blocks, 1);
	assert_int_equal(feed_alloc(trace, 96, 48, 0), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.rounded_blocks, 1);
	assert_int_equal(snapshot->trace_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(snapshot->traces[i].bytes, i ? 48 : 40);
		assert_int_equal(snapshot->traces[i].count, 1);
		assert_int_equal(snapshot->traces[i].flags, i == 2 ? SNAPSHOT_ROUNDED : 0);
	}
	snapshot_free(snapshot);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->rounded_blocks, 0);
}

/*
 * A dead object that is reused: its block begins at one of three distances before it, and only the
 * block's owner changes.
 */
static void test_reuse(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 0x1000, 64, 1), 0);
	assert_int_equal(feed_alloc(trace, 0x2000, 16, 1), 0);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 0x1010, 0, 2), 0);
	/* beyond the end of the block */
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 0x2010, 0, 2), 0);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 8, 0, 2), 0);
	assert_int_not_equal(traceback_of(trace, 0x1000), traceback_of(trace, 0x2000));
	assert_int_equal(process_of(trace)->counters.reuses, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 80);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 2);
}

/*
 * A pool that held blocks of another size before: their entries in the table are not taken for the
 * reused block.
 */
static void test_reuse_in_pool(void **state)
{
	const uint64_t pool = 0x7f0000001000, first = pool + 48;
	struct trace *trace = *state;
	uint32_t old;

	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(feed_alloc(trace, first + i * 64, 60, 1), 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(feed_alloc(trace, first + i * 48, 40, 1), 0);
	/* The block shrinks in place: the pool keeps its size class. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, TGID, first), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, TGID, first, 30, 1), 0);
	old = traceback_of(trace, first);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, first + 64, 0, 2), 0);
	assert_int_equal(traceback_of(trace, first + 64), old);
	assert_int_not_equal(traceback_of(trace, first + 48), old);
	assert_int_equal(trace_block_containing(trace, 0, EVENT_LAYER_PYTHON, first + 72)->address,
			 first + 48);
	/* No pool has blocks that large, whatever an event says. */
	assert_int_equal(feed_alloc(trace, first, 1ull << 32, 1), 0);
	assert_non_null(trace_block_containing(trace, 0, EVENT_LAYER_PYTHON, first + 72));
}

static void test_hostile_sizes(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, UINT64_MAX, 0), -EBADMSG);
	assert_int_equal(feed_alloc(trace, 0, 8, 0), -EBADMSG);
	assert_int_equal(feed_alloc(trace, 16, (1ull << 59) - 1, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 1, 0), -EBADMSG);
	assert_int_equal(process->counters.records_malformed, 3);
	assert_int_equal(process->tables[0].live_bytes, (1ull << 59) - 1);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
}

static void test_stack_without_frames(void **state)
{
	struct trace *trace = *state;
	struct trace_traceback shown;

	assert_int_equal(feed_stack(trace, 1, 0, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 1), 0);
	assert_int_equal(process_of(trace)->counters.stacks_unknown, 0);
	shown = trace_traceback_at(trace, 0, traceback_of(trace, 16));
	assert_int_equal(shown.nframe, 1);
	assert_int_equal(shown.total, 1);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "<unknown>");
}

static void test_reset_peak(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_mark(trace, EVENT_RESET_PEAK), 0);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 50);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 50);
	assert_int_equal(feed_alloc(trace, 16, 7, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 57);
}

/*
 * As in CPython: a block removed by a clear may be freed, resized or reused; a new block counts as
 * usual.
 */
static void test_clear(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct snapshot *snapshot;

	assert_int_equal(feed_put(trace, EVENT_ALLOC, TGID, 16, 100, 5), 0);
	assert_int_equal(feed_alloc(trace, 32, 5000, 0), 0);
	assert_int_equal(feed_alloc(trace, 48, 8, 0), 0);
	assert_int_equal(feed_free(trace, 64), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 48), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(process->counters.stacks_unknown, 1);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(process->tables[0].live_blocks, 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
	assert_int_equal(process->large_blocks, 0);
	assert_int_equal(process->tables[0].peak_bytes, 0);
	assert_int_equal(process->tables[0].frees_unknown, 0);
	assert_int_equal(process->counters.stacks_unknown, 0);
	assert_int_equal(blocks_count(trace_blocks(trace, 0, EVENT_LAYER_PYTHON)), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 48), 0);
	/* the block was cleared while it was set aside */
	assert_int_equal(process->tables[0].live_blocks, 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 2, 16, 300, 5), 0);
	assert_int_equal(feed_free(trace, 32), 0);
	assert_int_equal(process->tables[0].frees_unknown, 2);
	assert_int_equal(process->tables[0].live_bytes, 300);
	/* The meaning of a stack id is sent only once, before or after the clear. */
	assert_int_equal(feed_code(trace, 9, "/a.py", "f", 1, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 5, 9, 1), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "/a.py");
	assert_int_equal(process->counters.stacks_unknown, 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(feed_alloc(trace, 80, 1, 5), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 80), 0), "/a.py");
	/* The state kept for the end is cleared, too. */
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->trace_count, 0);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_alloc_free),
		TEST(test_alloc_free),
		TEST(test_budget),
		TEST(test_replaced),
		TEST(test_realloc_done),
		TEST(test_realloc_fail),
		TEST(test_reuse),
		TEST(test_reuse_in_pool),
		TEST(test_large),
		TEST(test_hooked),
		TEST(test_rounded),
		TEST(test_hostile_sizes),
		TEST(test_stack_without_frames),
		TEST(test_reset_peak),
		TEST(test_clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
