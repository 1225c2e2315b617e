/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of the native layer, as records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "census_records.h"

#define HEAP  0x55550000010ull
#define BYTES 100u
#define UNITS 7u /* of its chunk */

static int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE | EVENT_MODE_NATIVE);
}

static int setup_exact(void **state)
{
	return setup_mode(state, EVENT_MODE_EXACT | EVENT_MODE_NATIVE);
}

static uint64_t chunk_at(unsigned int i)
{
	return HEAP + i * 0x100ull;
}

static void allocate(struct trace *trace, unsigned int i)
{
	put_by(trace, TGID, chunk_at(i), BYTES, EVENT_API_NATIVE);
}

static void release(struct trace *trace, unsigned int i)
{
	struct event_free event = {.header = header_of(EVENT_FREE, sizeof(event)),
				   .address = chunk_at(i),
				   .api = EVENT_API_NATIVE};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* A record with chunks [from, to). */
static int chunks(struct trace *trace, unsigned int from, unsigned int to, uint32_t units,
		  uint32_t flags, uint64_t time_ns)
{
	struct {
		struct event_census_chunks event;
		struct event_chunk chunks[EVENT_CHUNKS_MAX];
	} record = {.event = {.flags = flags, .count = to - from}};

	record.event.header = header_of(
		EVENT_CENSUS_CHUNKS, sizeof(record.event) + (to - from) * sizeof(record.chunks[0]));
	record.event.header.time_ns = time_ns;
	for (unsigned int i = from; i < to; i++)
		record.chunks[i - from] = (struct event_chunk){chunk_at(i), units, 0};
	return trace_feed(trace, &record, record.event.header.size);
}

static void heap(struct trace *trace, unsigned int from, unsigned int to, uint64_t time_ns)
{
	assert_int_equal(
		chunks(trace, from, to, UNITS, EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST, time_ns), 0);
}

static uint64_t live(struct trace *trace)
{
	return process_of(trace)->tables[EVENT_LAYER_NATIVE].live_blocks;
}

static uint64_t sum_of(const struct snapshot_trace *traces, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += traces[i].count;
	return sum;
}

static struct snapshot *snapshot_of(struct trace *trace)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	return snapshot;
}

static uint64_t new_blocks(struct trace *trace)
{
	struct snapshot *snapshot = snapshot_of(trace);
	uint64_t sum = sum_of(snapshot->traces, snapshot->trace_count) +
		       snapshot->meta.windows.unseen_blocks;

	snapshot_free(snapshot);
	return sum;
}

static uint64_t old_blocks(struct trace *trace)
{
	struct snapshot *snapshot = snapshot_of(trace);
	uint64_t sum = sum_of(snapshot->layers[SNAPSHOT_OLDER].traces,
			      snapshot->layers[SNAPSHOT_OLDER].trace_count) +
		       snapshot->meta.windows.old_unseen_blocks;

	snapshot_free(snapshot);
	return sum;
}

/* Only what is allocated in a window is kept, as long as walks show it; they give the totals. */
static void test_seen(void **state)
{
	struct trace *trace = *state;

	heap(trace, 0, 10, S);
	allocate(trace, 10);
	assert_int_equal(live(trace), 0);
	window(trace, 2 * S, 0);
	for (unsigned int i = 11; i < 21; i++)
		allocate(trace, i);
	release(trace, 20);
	release(trace, 3);
	window(trace, 2 * S, 3 * S);
	assert_int_equal(live(trace), 9);
	/* Of what was seen, 15 to 19 have died; from 30 on are blocks that no window has shown. */
	assert_int_equal(chunks(trace, 0, 15, UNITS, EVENT_CHUNKS_FIRST, 4 * S), 0);
	assert_int_equal(live(trace), 9);
	assert_int_equal(chunks(trace, 30, 45, UNITS, EVENT_CHUNKS_LAST, 4 * S), 0);
	assert_int_equal(live(trace), 4);
	assert_int_equal(new_blocks(trace), 5 + 15);
	assert_int_equal(old_blocks(trace), 10);
}

/* The chunk at its address has another size, or the address was given out again. */
static void test_another(void **state)
{
	struct trace *trace = *state;

	heap(trace, 0, 10, S);
	window(trace, 2 * S, 0);
	for (unsigned int i = 5; i < 15; i++)
		allocate(trace, i);
	window(trace, 2 * S, 3 * S);
	heap(trace, 0, 15, 4 * S);
	/* The first five of those replaced older ones. */
	assert_int_equal(live(trace), 10);
	assert_int_equal(new_blocks(trace), 10);
	assert_int_equal(old_blocks(trace), 5);
	assert_int_equal(
		chunks(trace, 0, 15, UNITS + 1, EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST, 5 * S), 0);
	assert_int_equal(live(trace), 0);
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_NATIVE].frees_unknown, 0);
}

/* Probes go one by one: what was allocated after the window's last moment is not kept. */
static void test_late(void **state)
{
	struct trace *trace = *state;
	struct event_alloc late = {.header = header_of(EVENT_ALLOC, sizeof(late)),
				   .address = chunk_at(11),
				   .bytes = BYTES,
				   .api = EVENT_API_NATIVE};

	heap(trace, 0, 10, S);
	window(trace, 2 * S, 0);
	allocate(trace, 10);
	late.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &late, sizeof(late)), 0);
	assert_int_equal(live(trace), 2);
	window(trace, 2 * S, 3 * S);
	assert_int_equal(live(trace), 1);
	heap(trace, 0, 12, 5 * S);
	assert_int_equal(new_blocks(trace), 2);
}

/* From exact mode: all that is in the table was seen, and the rest of the heap is older. */
static void test_from_exact(void **state)
{
	struct trace *trace = *state;
	struct event_mode_change change = {.header = header_of(EVENT_MODE_CHANGE, sizeof(change)),
					   .mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE |
						   EVENT_MODE_NATIVE};

	for (unsigned int i = 10; i < 20; i++)
		allocate(trace, i);
	change.header.time_ns = 2 * S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	/* Blocks of all sizes are traced in windows only, and the name of the mode is short. */
	assert_int_equal(process_of(trace)->changes[0].large, SNAPSHOT_LARGE_ALWAYS);
	assert_int_equal(process_of(trace)->changes[1].large, SNAPSHOT_LARGE_NATIVE);
	assert_string_equal(snapshot_large_name(SNAPSHOT_LARGE_NATIVE), "");
	window(trace, 2 * S, 2 * S);
	heap(trace, 0, 20, 3 * S);
	assert_int_equal(new_blocks(trace), 10);
	heap(trace, 0, 30, 4 * S);
	assert_int_equal(live(trace), 10);
	assert_int_equal(new_blocks(trace), 20);
}

static void test_cleared(void **state)
{
	struct trace *trace = *state;
	struct event_mark clear = {.header = header_of(EVENT_CLEAR, sizeof(clear))};

	heap(trace, 0, 10, S);
	window(trace, 2 * S, 0);
	allocate(trace, 10);
	window(trace, 2 * S, 3 * S);
	clear.header.time_ns = 4 * S;
	assert_int_equal(trace_feed(trace, &clear, sizeof(clear)), 0);
	heap(trace, 0, 20, 5 * S);
	assert_int_equal(new_blocks(trace), 0);
}

static void window_with(struct trace *trace, uint64_t start_ns, unsigned int from, uint64_t bytes)
{
	window(trace, start_ns, 0);
	for (unsigned int i = from; i < from + 5; i++)
		put_by(trace, TGID, chunk_at(i), bytes, EVENT_API_NATIVE);
	window(trace, start_ns, start_ns + S / 50);
}

/* The first window after that stands for the time since then, not since the trace began. */
static void test_cleared_long_ago(void **state)
{
	struct trace *trace = *state;
	struct event_mark clear = {.header = header_of(EVENT_CLEAR, sizeof(clear))};
	uint64_t first = 0, second = 0;
	struct snapshot *snapshot;

	heap(trace, 0, 10, S);
	clear.header.time_ns = 1000 * S;
	assert_int_equal(trace_feed(trace, &clear, sizeof(clear)), 0);
	heap(trace, 0, 10, 1000 * S);
	window_with(trace, 1001 * S, 10, BYTES);
	window_with(trace, 1002 * S, 15, BYTES + 1);
	heap(trace, 0, 210, 1003 * S);
	snapshot = snapshot_of(trace);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		*(snapshot->traces[i].bytes == BYTES ? &first : &second) +=
			snapshot->traces[i].count;
	snapshot_free(snapshot);
	print_message("%u and %u blocks\n", (unsigned int)first, (unsigned int)second);
	assert_true(first < 2 * second && second < 2 * first);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	struct event_census_chunks record = {
		.header = header_of(EVENT_CENSUS_CHUNKS, sizeof(record)), .count = 1};

	assert_int_equal(trace_feed(trace, &record, sizeof(record)), -EBADMSG);
	heap(trace, 0, 10, S);
	/* Not in order: the walk is given up. */
	assert_int_equal(chunks(trace, 5, 10, UNITS, EVENT_CHUNKS_FIRST, 2 * S), 0);
	assert_int_equal(chunks(trace, 0, 5, UNITS, EVENT_CHUNKS_LAST, 2 * S), -EBADMSG);
	/* A walk without a beginning. */
	assert_int_equal(chunks(trace, 0, 5, UNITS, EVENT_CHUNKS_LAST, 3 * S), -EBADMSG);
	assert_int_equal(chunks(trace, 0, 5, 0, EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST, 3 * S),
			 -EBADMSG);
	heap(trace, 0, 10, 4 * S);
	assert_int_equal(new_blocks(trace), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_from_exact, setup_exact, teardown),
		cmocka_unit_test_setup_teardown(test_cleared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cleared_long_ago, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
