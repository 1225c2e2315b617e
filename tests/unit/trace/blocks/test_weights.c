/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that sample their native blocks themselves: weights in tables and snapshots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "records.h"
#include "snapshot/estimate.h"
#include "snapshot/group/group.h"

#define STACK 77u
#define CHILD (TGID + 1)

static int begin(void **state)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .nframe = 4,
				     .mode = EVENT_MODE_EXACT | EVENT_MODE_NATIVE,
				     .name = "program"};
	struct trace *trace;

	if (trace_new(&trace, NULL))
		return -1;
	*state = trace;
	return trace_feed(trace, &event, sizeof(event)) ||
	       feed_native_stack(trace, STACK, (const uint64_t[]){0x1000}, 1, 0);
}

static int end(void **state)
{
	trace_free(*state);
	return 0;
}

static int feed_weighted(struct trace *trace, uint64_t address, uint64_t bytes, uint64_t weight)
{
	struct event_alloc_weighted event = {.header =
						     header_of(EVENT_ALLOC_WEIGHTED, sizeof(event)),
					     .address = address,
					     .bytes = bytes,
					     .stack_id = STACK,
					     .weighted_bytes = weight};

	return trace_feed(trace, &event, sizeof(event));
}

static int feed_malloc(struct trace *trace, uint32_t type, uint64_t address)
{
	struct event_alloc event = {.header = header_of(type, sizeof(event)),
				    .address = address,
				    .bytes = 64,
				    .stack_id = STACK,
				    .api = EVENT_API_NATIVE};

	return trace_feed(trace, &event, sizeof(event));
}

static int feed_end(struct trace *trace, uint32_t type, uint64_t address)
{
	struct event_free event = {.header = header_of(type, sizeof(event)),
				   .address = address,
				   .api = EVENT_API_NATIVE};

	return trace_feed(trace, &event, sizeof(event));
}

static const struct trace_table *native(struct trace *trace)
{
	return &trace_process_at(trace, 0)->tables[EVENT_LAYER_NATIVE];
}

static void test_sums(void **state)
{
	struct trace *trace = *state;
	struct trace_table live;

	assert_int_equal(feed_mark(trace, EVENT_SELF_SAMPLED), 0);
	assert_int_equal(feed_weighted(trace, 0x10, 100, 1000), 0);
	assert_int_equal(feed_weighted(trace, 0x20, 100, 501), 0);
	assert_int_equal(feed_weighted(trace, 0x30, 4096, 4096), 0);
	assert_int_equal(native(trace)->live_bytes, 5597);
	live = trace_live(trace, 0, EVENT_LAYER_NATIVE);
	assert_int_equal(live.live_blocks, 16); /* 10 + 5.01 + 1 */
	assert_int_equal(feed_end(trace, EVENT_FREE, 0x10), 0);
	assert_int_equal(native(trace)->live_bytes, 4597);
	/* Its free was not seen: the new block's weight replaces the old one's. */
	assert_int_equal(feed_weighted(trace, 0x20, 10, 77), 0);
	assert_int_equal(native(trace)->live_bytes, 4173);
	assert_int_equal(native(trace)->replaced, 1);
	assert_int_equal(feed_end(trace, EVENT_FREE, 0x20), 0);
	assert_int_equal(feed_end(trace, EVENT_FREE, 0x30), 0);
	assert_int_equal(native(trace)->live_bytes, 0);
	assert_int_equal(native(trace)->live_blocks, 0);
	assert_int_equal(native(trace)->peak_bytes, 5597);
}

/* A block that stands for less than itself, for too much, or for nothing, changes nothing. */
static void test_malformed(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_weighted(trace, 0x10, 100, 1000), 0);
	assert_int_equal(feed_weighted(trace, 0x20, 100, 99), -EBADMSG);
	assert_int_equal(feed_weighted(trace, 0x20, 0, 99), -EBADMSG);
	assert_int_equal(feed_weighted(trace, 0, 100, 100), -EBADMSG);
	assert_int_equal(feed_weighted(trace, 0x20, 100, ~0ull), -EBADMSG);
	assert_int_equal(feed_weighted(trace, 0x20, 100, (1ull << 59) - 1), -EBADMSG);
	assert_int_equal(native(trace)->live_bytes, 1000);
	assert_int_equal(trace_process_at(trace, 0)->counters.records_malformed, 5);
}

/* The first weight, or the mark, ends what malloc's probes report. */
static void test_malloc_ignored(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_malloc(trace, EVENT_ALLOC, 0x10), 0);
	assert_int_equal(feed_malloc(trace, EVENT_ALLOC, 0x20), 0);
	assert_int_equal(feed_end(trace, EVENT_REALLOC, 0x20), 0);
	assert_int_equal(native(trace)->live_bytes, 64);
	assert_int_equal(feed_weighted(trace, 0x30, 100, 1000), 0);
	assert_int_equal(feed_malloc(trace, EVENT_REALLOC_DONE, 0x20), 0);
	assert_int_equal(feed_malloc(trace, EVENT_ALLOC, 0x40), 0);
	assert_int_equal(feed_end(trace, EVENT_REALLOC, 0x30), 0);
	assert_int_equal(feed_end(trace, EVENT_REALLOC_FAIL, 0x30), 0);
	assert_int_equal(native(trace)->live_bytes, 1000);
	assert_int_equal(native(trace)->live_blocks, 1);
	assert_true(trace_process_at(trace, 0)->self_sampled);
	/* tracemalloc.clear_traces() empties the table; the process still speaks for itself. */
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(native(trace)->live_bytes, 0);
	assert_int_equal(feed_malloc(trace, EVENT_ALLOC, 0x40), 0);
	assert_int_equal(feed_weighted(trace, 0x30, 100, 1000), 0);
	assert_int_equal(native(trace)->live_bytes, 1000);
}

static void expect_statistics(const struct snapshot *snapshot)
{
	struct statistics statistics;

	assert_true(snapshot->meta.self_sampled);
	assert_int_equal(snapshot->meta.self_sampled_ns, 0);
	assert_int_equal(statistics_compute(snapshot, &(struct statistics_opts){.by = GROUP_LINENO},
					    &statistics),
			 0);
	assert_int_equal(statistics.count, 1);
	assert_true(statistics.sampled);
	assert_int_equal(statistics.total_size, 5597);
	assert_int_equal(statistics.total_count, 16);
	/* (1 - p) / p^2 * s^2 for p of 200 / 1501, twice; nothing for the block that is itself. */
	assert_int_equal(statistics.total_error.size, 989);
	statistics_free(&statistics);
}

static void test_snapshot(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot, *all;

	assert_int_equal(feed_weighted(trace, 0x10, 100, 1000), 0);
	assert_int_equal(feed_weighted(trace, 0x20, 100, 501), 0);
	assert_int_equal(feed_weighted(trace, 0x30, 4096, 4096), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->trace_count, 2);
	assert_int_equal(snapshot->traces[0].count, 2);
	assert_int_equal(snapshot->traces[0].weight, 1501);
	expect_statistics(snapshot);
	assert_int_equal(estimate_snapshot(snapshot, &all), 0);
	assert_false(all->meta.self_sampled);
	assert_int_equal(all->traces[0].count, 15);
	assert_int_equal(all->traces[0].weight, 0);
	snapshot_free(all);
	snapshot_free(snapshot);
}

/* A child reports its own samples only, and is known to sample itself. */
static void test_fork(void **state)
{
	struct trace *trace = *state;
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .nframe = 4,
				     .mode = EVENT_MODE_EXACT | EVENT_MODE_NATIVE,
				     .parent = TGID,
				     .name = "program"};
	const struct trace_process *child;
	size_t index;

	event.header.tgid = event.header.tid = CHILD;
	assert_int_equal(feed_weighted(trace, 0x10, 100, 1000), 0);
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(trace_process_find(trace, CHILD, &index), 0);
	child = trace_process_at(trace, index);
	assert_true(child->self_sampled);
	assert_int_equal(child->tables[EVENT_LAYER_NATIVE].live_bytes, 0);
	assert_int_equal(native(trace)->live_bytes, 1000);
}

/* The native layer is not traced: such a record is an error, and changes nothing. */
static void test_other_layer(void **state)
{
	struct trace *trace;
	(void)state;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process(trace, 0x030b02f0), 0);
	assert_int_equal(feed_weighted(trace, 0x10, 100, 1000), -EBADMSG);
	assert_int_equal(feed_mark(trace, EVENT_SELF_SAMPLED), -EBADMSG);
	assert_int_equal(trace_process_at(trace, 0)->counters.records_malformed, 2);
	assert_false(trace_process_at(trace, 0)->self_sampled);
	trace_free(trace);
}

/* What the budget has no memory for is counted with what it stands for. */
static void test_budget(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = trace_process_at(trace, 0);
	const uint64_t count = 200000;

	trace_budget(trace, 4 << 20);
	for (uint64_t i = 1; i <= count; i++)
		assert_int_equal(feed_weighted(trace, i * 16, 16, 160), 0);
	assert_true(process->counters.blocks_dropped > 0);
	assert_int_equal(process->counters.bytes_dropped, process->counters.blocks_dropped * 160);
	assert_int_equal(native(trace)->live_blocks + process->counters.blocks_dropped, count);
	assert_int_equal(native(trace)->live_bytes, native(trace)->live_blocks * 160);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sums, begin, end),
		cmocka_unit_test_setup_teardown(test_malformed, begin, end),
		cmocka_unit_test_setup_teardown(test_malloc_ignored, begin, end),
		cmocka_unit_test_setup_teardown(test_snapshot, begin, end),
		cmocka_unit_test_setup_teardown(test_fork, begin, end),
		cmocka_unit_test(test_other_layer),
		cmocka_unit_test_setup_teardown(test_budget, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
