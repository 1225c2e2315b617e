/* SPDX-License-Identifier: Apache-2.0 */
/* Growth mode's records: pools that a census confirms or sweeps, and memory that is mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "records.h"
#include "snapshot/snapshot.h"

#define PY311  0x030b00f0u
#define POOL   16384u
#define HEADER 48u
#define STACK  77u

static int setup_mode(void **state, uint32_t mode)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = PY311,
				     .nframe = 16,
				     .mode = mode,
				     .name = "python3"};
	struct trace *trace;

	if (trace_new(&trace, NULL) || trace_feed(trace, &event, sizeof(event)))
		return -1;
	*state = trace;
	return 0;
}

static int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_GROWTH | EVENT_MODE_MAPPED);
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

static void pool_made(struct trace *trace, uint64_t pool)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = pool + HEADER,
				    .bytes = POOL,
				    .stack_id = STACK,
				    .api = EVENT_API_POOL};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void census(struct trace *trace, uint32_t type, uint32_t baseline)
{
	struct event_census event = {.header = header_of(type, sizeof(event)),
				     .baseline = baseline};

	/* Long after the threads' last events. */
	event.header.time_ns = 1ull << 40;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void pool_seen(struct trace *trace, uint64_t pool, uint32_t block_bytes, uint64_t live)
{
	struct {
		struct event_census_pool record;
		__u64 live[1];
	} event = {.record = {.header = header_of(EVENT_CENSUS_POOL, sizeof(event)),
			      .address = pool + HEADER,
			      .block_bytes = block_bytes,
			      .count = 60},
		   .live = {live}};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static int mapping(struct trace *trace, struct event_map event, uint32_t type)
{
	event.header = header_of(type, sizeof(event));
	event.stack_id = type == EVENT_UNMAP ? 0 : STACK;
	return trace_feed(trace, &event, sizeof(event));
}

static uint64_t mapped_bytes(struct trace *trace, size_t *count)
{
	struct snapshot *snapshot;
	uint64_t bytes = 0;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	*count = snapshot->layers[EVENT_LAYER_MMAP].trace_count;
	for (size_t i = 0; i < snapshot->layers[EVENT_LAYER_MMAP].trace_count; i++)
		bytes += snapshot->layers[EVENT_LAYER_MMAP].traces[i].bytes *
			 snapshot->layers[EVENT_LAYER_MMAP].traces[i].count;
	/* The layers are separate. */
	assert_int_equal(snapshot->trace_count, 0);
	snapshot_free(snapshot);
	return bytes;
}

static void test_pools(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = trace_process_at(trace, 0);

	census(trace, EVENT_CENSUS, 1);
	pool_seen(trace, 0x100000, 32, 7);
	pool_seen(trace, 0x104000, 512, 1); /* created during the heap walk: not old */
	pool_made(trace, 0x104000);
	census(trace, EVENT_CENSUS_DONE, 1);
	pool_made(trace, 0x108000);
	pool_made(trace, 0x10c000);
	assert_int_equal(process->tables[0].live_bytes, 3 * POOL);
	census(trace, EVENT_CENSUS, 0);
	pool_seen(trace, 0x100000, 32, 3);
	pool_seen(trace, 0x104000, 512, 1);
	pool_seen(trace, 0x108000, 48, 0); /* unused */
	pool_seen(trace, 0x10c000, 16, UINT32_MAX);
	pool_seen(trace, 0x110000, 16, 2); /* no event was emitted for it */
	census(trace, EVENT_CENSUS_DONE, 0);
	assert_int_equal(process->tables[0].live_blocks, 2);
	assert_int_equal(process->tables[0].live_bytes, 2 * POOL);
	assert_int_equal(process->tables[0].peak_bytes, 2 * POOL);
	assert_int_equal(process->coverage.live_blocks, 4);
	assert_int_equal(process->coverage.live_bytes, 4 * POOL);
	assert_int_equal(process->coverage.old_blocks, 1);
	assert_int_equal(process->coverage.old_bytes, POOL);
	assert_int_equal(process->coverage.new_blocks, 3);
	assert_int_equal(process->coverage.seen_blocks, 2);
	assert_int_equal(process->coverage.seen_bytes, 2 * POOL);
	assert_int_equal(process->coverage.dead_blocks, 1);
	/* A pool that is allocated again while the last walk still shows it. */
	pool_made(trace, 0x104000);
	assert_int_equal(process->tables[0].live_blocks, 2);
	assert_int_equal(process->tables[0].replaced, 0);
}

/* A pool that cannot be read is kept. */
static void test_unreadable_pool(void **state)
{
	struct trace *trace = *state;

	pool_made(trace, 0x104000);
	census(trace, EVENT_CENSUS, 0);
	pool_seen(trace, 0x104000, 0, 0);
	census(trace, EVENT_CENSUS_DONE, 0);
	assert_int_equal(trace_process_at(trace, 0)->tables[0].live_blocks, 1);
}

static void test_mapped(void **state)
{
	struct trace *trace = *state;
	size_t count;

	assert_int_equal(
		mapping(trace,
			(struct event_map){.address = 0x10000, .bytes = 0x4000, .protection = 3},
			EVENT_MAP),
		0);
	assert_int_equal(
		mapping(trace, (struct event_map){.address = 0x20000, .bytes = 0x8000}, EVENT_MAP),
		0);
	/* memory that is only reserved does not count */
	assert_int_equal(mapped_bytes(trace, &count), 0x4000);
	assert_int_equal(
		mapping(trace,
			(struct event_map){.address = 0x20000, .bytes = 0x1000, .protection = 3},
			EVENT_PROTECT),
		0);
	assert_int_equal(mapped_bytes(trace, &count), 0x5000);
	assert_int_equal(count, 2);
	assert_int_equal(mapping(trace, (struct event_map){.address = 0x11000, .bytes = 0x1000},
				 EVENT_UNMAP),
			 0);
	assert_int_equal(mapped_bytes(trace, &count), 0x4000);
	assert_int_equal(count, 3);
	assert_int_equal(mapping(trace,
				 (struct event_map){.address = 0x40000,
						    .bytes = 0x9000,
						    .old_address = 0x12000,
						    .old_bytes = 0x2000},
				 EVENT_REMAP),
			 0);
	assert_int_equal(mapped_bytes(trace, &count), 0x1000 + 0x1000 + 0x9000);
	/* The old mapping is of a file, or older than the trace. */
	assert_int_equal(mapping(trace,
				 (struct event_map){.address = 0x80000,
						    .bytes = 0x9000,
						    .old_address = 0x70000,
						    .old_bytes = 0x1000},
				 EVENT_REMAP),
			 0);
	assert_int_equal(mapped_bytes(trace, &count), 0x1000 + 0x1000 + 0x9000);
}

static void test_mapped_malformed(void **state)
{
	static const struct event_map bad[] = {
		{.address = 0x1000, .bytes = 0},
		{.address = UINT64_MAX - 0xfff, .bytes = 0x1000},
		{.address = 0x1000, .bytes = UINT64_MAX - 0xfff},
	};
	struct trace *trace = *state;
	size_t count;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (uint32_t type = EVENT_MAP; type <= EVENT_PROTECT; type++)
			assert_int_equal(mapping(trace, bad[i], type), -EBADMSG);
	assert_int_equal(trace_process_at(trace, 0)->counters.records_malformed, 12);
	assert_int_equal(mapped_bytes(trace, &count), 0);
}

static void test_meta(void **state)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(*state, 0, 0, &snapshot), 0);
	assert_true(snapshot_is_growth(snapshot));
	assert_true(snapshot_has_layer(snapshot, EVENT_LAYER_MMAP));
	assert_int_equal(snapshot->meta.large_skipped, 1);
	assert_int_equal(snapshot->meta.pool_bytes, POOL);
	snapshot_free(snapshot);
}

static void test_meta_exact(void **state)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(*state, 0, 0, &snapshot), 0);
	assert_false(snapshot_is_growth(snapshot));
	assert_false(snapshot_has_layer(snapshot, EVENT_LAYER_MMAP));
	assert_int_equal(snapshot->meta.large_skipped, 0);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	static const struct CMUnitTest tests[] = {
		TEST(test_pools),
		TEST(test_unreadable_pool),
		TEST(test_mapped),
		TEST(test_mapped_malformed),
		TEST(test_meta),
		cmocka_unit_test_setup_teardown(test_meta_exact, setup_exact, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
