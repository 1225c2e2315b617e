/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks that are traced in windows only, as records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "census_records.h"
#include "ranges.h"

#define LARGE 0x7d0000000010ull
#define BYTES 1000u
#define CHUNK 1008u
#define TYPE  77u
#define PRINT 5u

static int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE | EVENT_MODE_LARGE_WINDOWS);
}

/* Large blocks are traced all the time at first. */
static int setup_always(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static uint64_t large_at(unsigned int i)
{
	return LARGE + (uint64_t)i * 4096;
}

static void large_put(struct trace *trace, unsigned int i)
{
	put_by(trace, TGID, large_at(i), BYTES, EVENT_API_LARGE);
}

static void large_free(struct trace *trace, unsigned int i)
{
	struct event_free event = {.header = header_of(EVENT_FREE, sizeof(event)),
				   .address = large_at(i),
				   .api = EVENT_API_LARGE};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* A look at one block. */
static int look(struct trace *trace, unsigned int i, uint64_t bytes, uint32_t kind, uint32_t print)
{
	struct {
		struct event_census_large event;
		struct event_large_block block;
	} record = {.event = {.header = header_of(EVENT_CENSUS_LARGE, sizeof(record)), .count = 1},
		    .block = {large_at(i), bytes, {kind, print}}};

	return trace_feed(trace, &record, sizeof(record));
}

static size_t sighted(struct trace *trace, int fresh)
{
	uint64_t *addresses;
	size_t count;

	assert_int_equal(trace_sighted_large(trace, 0, fresh, &addresses, &count), 0);
	for (size_t i = 1; i < count; i++)
		assert_true(addresses[i - 1] < addresses[i]);
	free(addresses);
	return count;
}

static uint64_t live(struct trace *trace)
{
	return process_of(trace)->tables[EVENT_LAYER_PYTHON].live_blocks;
}

/* Only what is allocated in a window, and looked at in it, is kept; frees in it are exact. */
static void test_seen(void **state)
{
	struct trace *trace = *state;

	large_put(trace, 0);
	assert_int_equal(live(trace), 0);
	window(trace, S, 0);
	for (unsigned int i = 1; i <= 4; i++)
		large_put(trace, i);
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 4);
	assert_int_equal(look(trace, 1, CHUNK, TYPE, PRINT), 0);
	assert_int_equal(look(trace, 2, CHUNK, EVENT_KIND_OTHER, PRINT), 0);
	/* The last one may not be in place yet. */
	assert_int_equal(look(trace, 4, CHUNK, TYPE, PRINT), 0);
	assert_int_equal(sighted(trace, SIGHTED_FRESH), 2);
	large_free(trace, 2);
	assert_int_equal(live(trace), 3);
	window(trace, S, 2 * S);
	assert_int_equal(live(trace), 1);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 1);
	/* Between windows an allocation shows that the block there is dead. */
	large_put(trace, 1);
	assert_int_equal(live(trace), 0);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 0);
	assert_int_equal(process_of(trace)->tables[EVENT_LAYER_PYTHON].frees_unknown, 0);
}

/* Blocks from before are known for certain, and are compared only after the first recheck. */
static void test_certain(void **state)
{
	struct trace *trace = *state;
	struct event_mode_change change = {.header = header_of(EVENT_MODE_CHANGE, sizeof(change)),
					   .mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE |
						   EVENT_MODE_LARGE_WINDOWS};
	struct snapshot *snapshot;
	uint64_t count = 0;

	large_put(trace, 0);
	large_put(trace, 1);
	change.header.time_ns = S;
	assert_int_equal(trace_feed(trace, &change, sizeof(change)), 0);
	assert_int_equal(live(trace), 2);
	assert_int_equal(sighted(trace, SIGHTED_ALL), 2);
	/* They are in a snapshot that is taken before the first window. */
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		count += snapshot->traces[i].count;
	assert_int_equal(count, 2);
	assert_int_equal(snapshot->meta.windows.count, 0);
	snapshot_free(snapshot);
	window(trace, 2 * S, 0);
	window(trace, 2 * S, 3 * S);
	assert_int_equal(live(trace), 2);
	assert_int_equal(look(trace, 0, CHUNK, TYPE, PRINT), 0);
	assert_int_equal(look(trace, 0, CHUNK, TYPE, PRINT), 0);
	assert_int_equal(live(trace), 2);
	assert_int_equal(look(trace, 1, 0, EVENT_KIND_FREE, 0), 0);
	assert_int_equal(live(trace), 1);
}

/* After its window a block is the same only as long as its chunk and its content are. */
static void test_fingerprint(void **state)
{
	static const struct {
		uint64_t bytes;
		uint32_t kind, print;
		int alive;
	} cases[] = {{CHUNK, TYPE, PRINT, 1},     {CHUNK, TYPE + 1, PRINT, 0},
		     {CHUNK, TYPE, PRINT + 1, 0}, {0, EVENT_KIND_FREE, 0, 0},
		     {BYTES - 1, TYPE, PRINT, 0}, {CHUNK, EVENT_KIND_OTHER, PRINT, 0}};
	struct trace *trace = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		window(trace, (2 * i + 1) * S, 0);
		large_put(trace, 7);
		large_put(trace, 8);
		assert_int_equal(look(trace, 7, CHUNK, TYPE, PRINT), 0);
		window(trace, (2 * i + 1) * S, (2 * i + 2) * S);
		assert_int_equal(live(trace), 1);
		assert_int_equal(look(trace, 7, cases[i].bytes, cases[i].kind, cases[i].print), 0);
		assert_int_equal(live(trace), cases[i].alive);
		assert_int_equal(sighted(trace, SIGHTED_ALL), cases[i].alive);
	}
}

/*
 * A list that grows: a window has shown its latest items. There is one such block, while there may
 * be many of the others, of which two windows have shown some.
 */
static void test_huge(void **state)
{
	const uint64_t bytes = 300 << 10;
	struct trace *trace = *state;
	struct snapshot *snapshot;
	uint64_t huge = 0, others = 0;

	for (unsigned int i = 1; i <= 3; i++) {
		window(trace, i * 10 * S, 0);
		large_put(trace, i);
		if (i == 2)
			put_by(trace, TGID, large_at(100), bytes, EVENT_API_LARGE);
		put_by(trace, TGID, large_at(200), BYTES, EVENT_API_LARGE);
		assert_int_equal(look(trace, i, CHUNK, TYPE, PRINT), 0);
		assert_int_equal(look(trace, 100, bytes + 16, TYPE, PRINT), 0);
		window(trace, i * 10 * S, (i * 10 + 1) * S);
	}
	assert_int_equal(live(trace), 4);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].bytes == bytes)
			huge += snapshot->traces[i].count;
		else
			others += snapshot->traces[i].count;
	assert_int_equal(huge, 1);
	assert_uint_in_range(others, 20, 40);
	snapshot_free(snapshot);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	struct {
		struct event_census_large event;
		struct event_large_block block;
	} record = {.event = {.header = header_of(EVENT_CENSUS_LARGE, sizeof(record)), .count = 2},
		    .block = {LARGE, CHUNK, {TYPE, PRINT}}};

	assert_int_equal(trace_feed(trace, &record, sizeof(record)), -EBADMSG);
	record.event.count = 0;
	assert_int_equal(trace_feed(trace, &record, sizeof(record)), -EBADMSG);
	record.event.count = UINT64_MAX / 24 + 2;
	assert_int_equal(trace_feed(trace, &record, sizeof(record)), -EBADMSG);
	record.event.count = 1;
	record.block.address = 0;
	assert_int_equal(trace_feed(trace, &record, sizeof(record)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_certain, setup_always, teardown),
		cmocka_unit_test_setup_teardown(test_fingerprint, setup, teardown),
		cmocka_unit_test_setup_teardown(test_huge, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
