/* SPDX-License-Identifier: Apache-2.0 */
/* EVENT_MODE_CHANGE in the middle of a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "records.h"
#include "report/caveats/modes.h"
#include "snapshot/estimate.h"

static int feed_priced(struct trace *trace, uint32_t mode, uint64_t time_ns, uint64_t sample_bytes,
		       uint32_t cost_permille, uint32_t budget_permille)
{
	struct event_mode_change event = {
		.header = header_of(EVENT_MODE_CHANGE, sizeof(event)),
		.mode = mode,
		.cost_permille = cost_permille,
		.budget_permille = budget_permille,
		.sample_bytes = sample_bytes,
	};

	event.header.time_ns = time_ns;
	return trace_feed(trace, &event, sizeof(event));
}

static int feed_change(struct trace *trace, uint32_t mode, uint64_t time_ns, uint64_t sample_bytes)
{
	return feed_priced(trace, mode, time_ns, sample_bytes, 310, 50);
}

static struct trace *trace_begin(void)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process(trace, 0x030d00f0), 0);
	return trace;
}

static struct snapshot *snapshot_now(struct trace *trace)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	return snapshot;
}

/* The table is kept from exact to census mode; pools have a separate table. */
static void test_tables(void **state)
{
	struct trace *trace = trace_begin();
	const struct trace_process *process = trace_process_at(trace, 0);
	struct snapshot *snapshot;
	(void)state;

	feed_alloc(trace, 0x1000, 100, 0);
	assert_int_equal(process->reuse_unseen, 0);
	assert_int_equal(process->ends_unseen, 0);
	assert_int_equal(feed_change(trace,
				     EVENT_MODE_CENSUS | EVENT_MODE_NO_REUSE | EVENT_MODE_NO_ENDS,
				     2000000000, 0),
			 0);
	assert_int_equal(process->mode, EVENT_MODE_CENSUS);
	assert_int_equal(process->reuse_unseen, 1);
	assert_int_equal(process->ends_unseen, 1);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 1);
	assert_int_equal(feed_change(trace, EVENT_MODE_GROWTH | EVENT_MODE_MAPPED, 3000000000, 0),
			 0);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	assert_int_equal(process->layers, 1u << EVENT_LAYER_PYTHON | 1u << EVENT_LAYER_MMAP);
	assert_int_equal(process->large_skipped, 1);
	assert_int_equal(feed_change(trace, EVENT_MODE_OFF, 4000000000, 0), 0);
	assert_int_equal(process->off, 1);
	snapshot = snapshot_now(trace);
	assert_string_equal(snapshot->meta.mode, "growth");
	assert_int_equal(snapshot->meta.change_count, 4);
	assert_int_equal(snapshot->meta.changes[0].mode, EVENT_MODE_EXACT);
	assert_int_equal(snapshot->meta.changes[0].since_ns, 0);
	assert_int_equal(snapshot->meta.changes[3].mode, EVENT_MODE_OFF);
	assert_int_equal(snapshot->meta.changes[3].cost_permille, 310);
	snapshot_free(snapshot);
	trace_free(trace);
}

/* Census mode without a readable heap: it is unknown which blocks of the table have died. */
static void test_unreadable(void **state)
{
	struct trace *trace = trace_begin();
	const struct trace_process *process = trace_process_at(trace, 0);
	(void)state;

	feed_alloc(trace, 0x1000, 100, 0);
	assert_int_equal(feed_change(trace, EVENT_MODE_CENSUS, 2000000000, 0), 0);
	assert_int_equal(feed_change(trace, EVENT_MODE_EXACT, 3000000000, 0), 0);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 1);
	assert_int_equal(feed_change(trace, EVENT_MODE_CENSUS, 4000000000, 0), 0);
	assert_int_equal(feed_priced(trace, EVENT_MODE_EXACT, 5000000000, 0, 0, 0), 0);
	assert_int_equal(process->mode, EVENT_MODE_EXACT);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	trace_free(trace);
}

static void test_malformed(void **state)
{
	struct trace *trace = trace_begin();
	(void)state;

	assert_int_equal(feed_change(trace, 0, 2, 0), -EBADMSG);
	assert_int_equal(feed_change(trace, EVENT_MODE_WINDOWS + 1, 2, 0), -EBADMSG);
	/* before its process */
	assert_int_equal(feed_change(trace, EVENT_MODE_CENSUS, 0, 0), -EBADMSG);
	assert_int_equal(feed_change(trace, EVENT_MODE_CENSUS, 2, SAMPLE_MEAN_MAX + 1ull),
			 -EBADMSG);
	assert_int_equal(trace_process_at(trace, 0)->mode, EVENT_MODE_EXACT);
	assert_int_equal(trace_process_at(trace, 0)->change_count, 0);
	trace_free(trace);
}

/* More changes than the limit: the first one and the last ones are kept, the others are counted. */
static void test_many(void **state)
{
	struct trace *trace = trace_begin();
	struct snapshot *snapshot;
	(void)state;

	for (uint32_t i = 1; i <= 100; i++)
		assert_int_equal(
			feed_change(trace, i % 2 ? EVENT_MODE_CENSUS : EVENT_MODE_EXACT, 1 + i, 0),
			0);
	snapshot = snapshot_now(trace);
	assert_int_equal(snapshot->meta.change_count, SNAPSHOT_CHANGES);
	assert_int_equal(snapshot->meta.changes_dropped, 101 - SNAPSHOT_CHANGES);
	assert_int_equal(snapshot->meta.changes[0].since_ns, 0);
	assert_int_equal(snapshot->meta.changes[1].since_ns, 100 - (SNAPSHOT_CHANGES - 1) + 1);
	assert_int_equal(snapshot->meta.changes[SNAPSHOT_CHANGES - 1].since_ns, 100);
	snapshot_free(snapshot);
	trace_free(trace);
}

/*
 * A table of all blocks is thinned to a sample, and that to a smaller one. Each represents all
 * blocks within 5 standard errors (the selection depends on the addresses, so it is always the
 * same). A block that dies later subtracts what it represents.
 */
static void test_thinned(void **state)
{
	static const uint64_t means[] = {4096, 65536};
	enum { COUNT = 100000, BYTES = 100 };
	struct trace *trace = trace_begin();
	const struct trace_process *process = trace_process_at(trace, 0);
	(void)state;

	for (uint64_t i = 0; i < COUNT; i++)
		feed_alloc(trace, 0x100000 + i * 112, BYTES, 0);
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		double chance = estimate_chance(means[i], BYTES);
		double error = sqrt(COUNT * (1 - chance) / chance);

		assert_int_equal(feed_change(trace, EVENT_MODE_EXACT, 2 + i, means[i]), 0);
		assert_true(fabs((double)trace_live(trace, 0, EVENT_LAYER_PYTHON).live_blocks -
				 COUNT) <= 5 * error);
		assert_true(process->tables[EVENT_LAYER_PYTHON].live_blocks < COUNT / 2);
	}
	for (uint64_t i = 0; i < COUNT; i++)
		feed_free(trace, 0x100000 + i * 112);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_bytes, 0);
	/*
	 * Blocks that are in no sample any more do not come back: the table of a larger sample
	 * begins empty.
	 */
	feed_alloc(trace, 0x1000, BYTES, 0);
	assert_int_equal(feed_change(trace, EVENT_MODE_EXACT, 10, 4096), 0);
	assert_int_equal(process->tables[EVENT_LAYER_PYTHON].live_blocks, 0);
	trace_free(trace);
}

/* A process that shuts down is shown in its state at that time: a later change has no effect. */
static void test_late(void **state)
{
	struct trace *trace = trace_begin();
	struct snapshot *snapshot;
	(void)state;

	feed_alloc(trace, 0x1000, 100, 0);
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(feed_change(trace, EVENT_MODE_GROWTH, 2, 0), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_string_equal(snapshot->meta.mode, "exact");
	assert_int_equal(snapshot->trace_count, 1);
	snapshot_free(snapshot);
	trace_free(trace);
}

static void test_report(void **state)
{
	struct snapshot_meta meta = {
		.duration_ns = 20000000000,
		.change_count = 3,
		.changes = {{.mode = EVENT_MODE_EXACT},
			    {.since_ns = 12300000000,
			     .mode = EVENT_MODE_CENSUS,
			     .cost_permille = 310,
			     .budget_permille = 50},
			    {.since_ns = 15000000000,
			     .mode = EVENT_MODE_OFF,
			     .cost_permille = 60,
			     .budget_permille = 50}},
	};
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	(void)state;

	modes_print(out, &meta);
	meta.changes[2] =
		(struct snapshot_change){.since_ns = 15000000000, .mode = EVENT_MODE_GROWTH};
	modes_print(out, &meta);
	meta.change_count = 2;
	meta.changes[0] = (struct snapshot_change){.mode = EVENT_MODE_WINDOWS};
	meta.changes[1] = (struct snapshot_change){.since_ns = 15000000000,
						   .mode = EVENT_MODE_WINDOWS,
						   .large = SNAPSHOT_LARGE_WINDOWS};
	modes_print(out, &meta);
	meta.change_count = 0;
	modes_print(out, &meta);
	fclose(out);
	assert_string_equal(
		text,
		"Modes: exact 0.0-12.3 s; census 12.3-15.0 s (probes took 31.0 % of "
		"its CPU time just before, the budget is 5.0 %); off 15.0-20.0 s (probes took "
		"6.0 % of its CPU time just before, the budget is 5.0 %)\n"
		"Nothing is traced since 15.0 s: later allocations are not in the report, "
		"later frees are not seen\n"
		"Modes: exact 0.0-12.3 s; census 12.3-15.0 s (probes took 31.0 % of "
		"its CPU time just before, the budget is 5.0 %); growth 15.0-20.0 s\n"
		"Figures cover the time since 15.0 s, when growth mode began\n"
		"Modes: windows 0.0-15.0 s; windows of large blocks, too 15.0-20.0 s\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unreadable), cmocka_unit_test(test_tables),
		cmocka_unit_test(test_malformed),  cmocka_unit_test(test_many),
		cmocka_unit_test(test_thinned),    cmocka_unit_test(test_report),
		cmocka_unit_test(test_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
