/* SPDX-License-Identifier: Apache-2.0 */
/* Censuses that are cut short, malformed or unreadable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "census_records.h"
#include "records.h"
#include "report/report.h"
#include "snapshot/snapshot.h"

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

static void text_write(const struct snapshot *snapshot, FILE *out)
{
	const struct report_opts opts = {.by = GROUP_LINENO};

	assert_int_equal(report_text(snapshot, &opts, out), 0);
}

/* Returns what is written for a snapshot; the caller frees it. */
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

/* The process ends some time after the last walk, or before any: the report says so. */
static void test_unread(void **state)
{
	struct trace *trace = *state;
	struct event_process end = {.header = header_of(EVENT_EXIT, sizeof(end))};
	struct snapshot *snapshot;
	char *text;

	put(trace, 1);
	walk(trace, 2, LIVE(1));
	end.header.time_ns = 2 * S + S / 200;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->meta.unread_ns, S / 200);
	text = text_of(snapshot, text_write);
	assert_non_null(strstr(
		text, "  the heap was last read 5.0 ms before the end: small blocks freed "));
	assert_non_null(strstr(
		text, "  heap: 1 blocks in pools: 1 traced, 0 older than the trace, 0 unseen; "));
	free(text);
	snapshot_free(snapshot);
}

#define ARENA_BYTES (1u << 20)
#define FAR         100000 /* number of a block in another arena */

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
 * The kernel's step limit was reached: blocks that are not shown are dead in the arenas that were
 * walked completely, and only there.
 */
static void test_cut(void **state)
{
	struct trace *trace = *state;

	put(trace, 1);
	put(trace, 2);
	put(trace, FAR);
	walk(trace, 2, LIVE(1, 2, 5));
	put(trace, FAR); /* that walk did not show it */
	begin(trace, 3);
	pool(trace, 3, LIVE(1, 9));
	assert_int_equal(arena(trace, 3, ARENA_BYTES), 0);
	cut(trace, 3);
	assert_true(knows(trace, 1) && knows(trace, FAR) && !knows(trace, 2));
	expect(trace, 2, 0, 1, 1); /* the result of the complete walk */
	assert_int_equal(process_of(trace)->ending.steps, 1234);
}

/* An arena that was walked in part counts as not walked. */
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
	assert_int_equal(arena(trace, 5, ARENA_BYTES), 0); /* of another walk */
	cut(trace, 3);
	assert_true(knows(trace, 2));
}

/* The report says how much was not walked, and how old the figures for it are. */
static void test_cut_said(void **state)
{
	struct trace *trace = *state;
	struct event_process end = {.header = header_of(EVENT_EXIT, sizeof(end))};
	struct snapshot *snapshot;
	char *text;

	put(trace, 1);
	walk(trace, 2, LIVE(1));
	begin(trace, 3);
	cut(trace, 3);
	end.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	text = text_of(snapshot, text_write);
	assert_non_null(strstr(
		text, "  of the heap's arenas, 1 were read at the end, at most 17 were not: "));
	assert_non_null(strstr(text, "  the heap was last read 2000.0 ms before the end: small "
				     "blocks "));
	free(text);
	text = text_of(snapshot, report_json_meta);
	assert_non_null(strstr(text, "\"ending\": {\"pieces\": 1, \"steps\": 1234, "));
	assert_non_null(strstr(text, "\"arenas_unread\": 17, \"whole\": false}"));
	free(text);
	snapshot_free(snapshot);
}

/* A capture from before steps were recorded. */
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
	event = pool_of(2, (1ull << 56) - 16, BLOCK, 2); /* beyond user-space addresses */
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 65);
	event.event.header.size -= 8; /* bits for 64 */
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 64);
	event.event.header.size += 8;
	malformed(trace, &event);
	event = pool_of(2, POOL, BLOCK, 0); /* empty, but well-formed */
	assert_int_equal(pool_feed(trace, &event), 0);
	/* The maximum number of blocks, and bits beyond the last block. */
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
	const struct CMUnitTest tests[] = {
		CENSUS(test_cut),          CENSUS(test_cut_within),
		CENSUS(test_cut_said),     CENSUS(test_arena_malformed),
		CENSUS(test_short_record), CENSUS(test_unreadable),
		CENSUS(test_unread),       CENSUS(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
