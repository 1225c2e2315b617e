/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace records about its process: metadata, duration, end; malformed records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "records.h"
#include "snapshot/snapshot.h"
#include "traces.h"

static void test_snapshot(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	/*
	 * Two stacks through two code objects that look the same, an unknown stack and the empty
	 * one.
	 */
	assert_int_equal(feed_code(trace, 1, "a.py", "f", 10, 0, 0), 0);
	assert_int_equal(feed_code(trace, 2, "a.py", "f", 10, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 101, 1, 1), 0);
	assert_int_equal(feed_stack(trace, 102, 2, 1), 0);
	assert_int_equal(feed_stack(trace, 103, 50, 1), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 101), 0);
	assert_int_equal(feed_alloc(trace, 32, 8, 102), 0);
	assert_int_equal(feed_alloc(trace, 48, 9, 102), 0);
	assert_int_equal(feed_alloc(trace, 64, 1, 103), 0);
	assert_int_equal(feed_alloc(trace, 80, 1, 0), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->traceback_count, 2);
	assert_int_equal(snapshot->trace_count, 3);
	assert_int_equal(snapshot->traces[0].count, 2); /* both <unknown> */
	assert_int_equal(snapshot->traces[1].bytes, 8);
	assert_int_equal(snapshot->traces[1].count, 2);
	assert_int_equal(snapshot->traces[2].bytes, 9);
	const struct snapshot_frame *frame =
		&snapshot->frames[snapshot->tracebacks[snapshot->traces[2].traceback].first];
	assert_string_equal(strings_get(snapshot->strings, frame->filename), "a.py");
	assert_int_equal(frame->line, 10);
	assert_int_equal(snapshot->meta.peak_bytes, 27);
	assert_string_equal(snapshot->meta.moment, "running");
	assert_string_equal(snapshot->meta.mode, "exact");
	assert_string_equal(snapshot->meta.name, "python3");
	snapshot_free(snapshot);
	assert_int_equal(trace_snapshot(trace, 1, 0, &snapshot), -ENOENT);
}

static void test_duration(void **state)
{
	struct trace *trace = *state;
	struct event_loss loss = {.header = header_of(EVENT_LOSS, sizeof(loss))};
	struct snapshot *snapshot;

	loss.header.time_ns += 5000;
	assert_int_equal(trace_feed(trace, &loss, sizeof(loss)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.duration_ns, 5000);
	snapshot_free(snapshot);
	assert_int_equal(feed_process_event(trace, EVENT_EXIT), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->meta.duration_ns, 0);
	snapshot_free(snapshot);
}

static void test_final_and_end(void **state)
{
	struct trace *trace = *state;
	struct event_loss loss = {.header = header_of(EVENT_LOSS, sizeof(loss))};
	struct snapshot *snapshot;

	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_process_event(trace, EVENT_EXIT), 0);
	loss.counts[LOSS_FREE] = 3;
	loss.counts[LOSS_ALLOC_BYTES] = 1000;
	assert_int_equal(trace_feed(trace, &loss, sizeof(loss)), 0);
	assert_int_equal(process_of(trace)->end, TRACE_EXITED);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
		assert_string_equal(snapshot->meta.moment, "finalizing");
		assert_int_equal(snapshot->trace_count, 1);
		assert_int_equal(snapshot->traces[0].bytes, 8);
		assert_int_equal(snapshot_lost_events(snapshot), 3); /* sent only after the end */
		snapshot_free(snapshot);
	}
	/* For an ended process only that snapshot is kept. */
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_string_equal(snapshot->meta.moment, "finalizing");
	assert_int_equal(snapshot->trace_count, 1);
	snapshot_free(snapshot);
	/* After the end: ignored, until a process with that PID is traced again. */
	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 0);
	assert_int_equal(feed_process(trace, PY38), 0);
	assert_int_equal(trace_process_count(trace), 2);
	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 0);
	assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, 1);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc alloc = {
		.header = header_of(EVENT_ALLOC, sizeof(alloc)), .address = 16, .bytes = 1};
	union {
		struct event_stack stack;
		unsigned char capacity[64];
	} stack = {.stack = {.header = header_of(EVENT_STACK, 64), .stack_id = 1, .nframe = 2}};

	assert_int_equal(trace_feed(trace, &alloc, 16), -EBADMSG);
	assert_int_equal(trace_orphans(trace), 1);
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc) - 8), -EBADMSG);
	alloc.header.size -= 8;
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc) - 8), -EBADMSG);
	alloc.header = header_of(99, sizeof(alloc));
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc)), -EBADMSG);
	assert_int_equal(trace_feed(trace, &stack, 64), -EBADMSG); /* room for one frame */
	stack.stack.nframe = EVENT_MAX_FRAMES + 1;
	assert_int_equal(trace_feed(trace, &stack, 64), -EBADMSG);
	assert_int_equal(feed_lines(trace, 1, 1u << 20, "x", 1), -EBADMSG);
	assert_int_equal(feed_code(trace, 1, "a", "b", 1, 0, (1u << 20) + 1), -EBADMSG);
	assert_int_equal(process->counters.records_malformed, 7);
	alloc.header = header_of(EVENT_ALLOC, sizeof(alloc));
	alloc.header.tgid = TGID + 1;
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc)), -EBADMSG);
	assert_int_equal(trace_orphans(trace), 2);
	assert_int_equal(process->tables[0].live_blocks, 0);
}

static void test_meta(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	struct snapshot *snapshot;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(trace_meta(trace, 1, &meta), -ENOENT);
	assert_int_equal(trace_meta(trace, 0, &meta), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_memory_equal(&meta, &snapshot->meta, sizeof(meta));
	assert_int_equal(meta.peak_bytes, 100);
	assert_string_equal(meta.moment, "running");
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_snapshot),  TEST(test_duration), TEST(test_final_and_end),
		TEST(test_malformed), TEST(test_meta),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
