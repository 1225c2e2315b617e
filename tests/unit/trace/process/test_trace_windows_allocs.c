/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of probes, as records: what was allocated, alive or not, as estimates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "ranges.h"
#include "window_records.h"

#define MS 1000000ull

static void alloc_at(struct trace *trace, uint64_t time_ns, uint64_t bytes, uint32_t api)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = at(1),
				    .bytes = bytes,
				    .api = api};

	event.header.time_ns = time_ns;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void window_at(struct trace *trace, uint64_t start_ns, uint64_t end_ns, uint64_t told_ns,
		      uint64_t busy_ns)
{
	struct event_window event = {.header = header_of(EVENT_WINDOW, sizeof(event)),
				     .start_ns = start_ns,
				     .end_ns = end_ns,
				     .busy_ns = busy_ns};

	event.header.time_ns = told_ns;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* Of 1 s, the last 10 ms; busy for that part of it. */
#define LENGTH (10 * MS)

static void window_of(struct trace *trace, uint64_t second, unsigned int blocks, uint64_t busy_ns)
{
	uint64_t end_ns = second * S, start_ns = end_ns - LENGTH;

	window_at(trace, start_ns, 0, start_ns, 0);
	for (unsigned int i = 0; i < blocks; i++)
		alloc_at(trace, start_ns + i + 1, 40, EVENT_API_OBJ);
	/* The end is told later: what came until then is of no window. */
	alloc_at(trace, end_ns + 1, 40, EVENT_API_OBJ);
	window_at(trace, start_ns, end_ns, end_ns + MS, busy_ns);
}

static struct snapshot_meta meta_of(struct trace *trace, uint64_t *size, uint64_t *count,
				    bool *has_error)
{
	struct snapshot_meta meta;
	struct snapshot *snapshot;

	*size = *count = 0;
	*has_error = 0;
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	const struct snapshot_layer *layer =
		&snapshot->layers[SNAPSHOT_EXTRA(EXTRA_ALLOCATED, EVENT_LAYER_PYTHON)];
	for (size_t i = 0; i < layer->trace_count; i++) {
		*size += layer->traces[i].bytes * layer->traces[i].count;
		*count += layer->traces[i].count;
		*has_error |= layer->traces[i].estimate != 0;
	}
	meta = snapshot->meta;
	snapshot_free(snapshot);
	return meta;
}

static bool knows_allocated(const struct snapshot_meta *meta)
{
	const struct snapshot_extra *extra = &meta->extra[EXTRA_ALLOCATED];

	/* Its columns are there in any case: profiles of two moments can be compared. */
	assert_true(extra->known >> EVENT_LAYER_PYTHON & 1);
	return !(extra->gaps >> EVENT_LAYER_PYTHON & 1);
}

/* A window counts for the time since the one before; of idle windows there is an upper bound. */
static void test_by_time(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	uint64_t size, count;
	struct trace_rate rate;
	bool has_error;

	window_of(trace, 1, 5, 0);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_false(knows_allocated(&meta));
	assert_int_equal(count, 0);
	for (uint64_t second = 2; second <= 16; second++)
		window_of(trace, second, second % 2 ? 5 : 15, 0);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_true(knows_allocated(&meta) && has_error);
	assert_int_equal(meta.windows.allocated_by_work, 0);
	/* Each stands for 100 times its length. */
	assert_int_equal(count, 16 * 10 * 100);
	assert_int_equal(size, 16 * 10 * 100 * 40);
	assert_int_equal(meta.windows.allocated_bytes, size);
	assert_true(meta.windows.allocated_low < size && meta.windows.allocated_high > size);
	trace_rate(trace, 0, &rate);
	assert_true(rate.bytes.estimate > 39990 && rate.bytes.estimate < 40010);
	assert_true(rate.bytes.low < 40000 && rate.bytes.high > 40000);
	assert_true(rate.blocks.estimate > 999 && rate.blocks.estimate < 1001);
	assert_uint_in_range(rate.span_ns, 16 * S - MS, 16 * S);
}

/* Of busy ones there is none. */
static void test_busy(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	uint64_t size, count;
	bool has_error;

	for (uint64_t second = 1; second <= 16; second++)
		window_of(trace, second, 5, LENGTH);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_int_equal(count, 16 * 5 * 100);
	assert_int_equal(meta.windows.allocated_high, 0);
}

/* Large blocks are seen all the time: they say how slow windows are, and are not estimates. */
static void test_by_work(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	uint64_t size, count;
	bool has_error;

	for (uint64_t second = 1; second <= 16; second++) {
		for (uint64_t i = 0; i < 100; i++)
			alloc_at(trace, (second - 1) * S + 2 * MS + i, 1000, EVENT_API_LARGE);
		window_at(trace, second * S - LENGTH, 0, second * S - LENGTH, 0);
		for (uint64_t i = 1; i <= 4; i++) {
			alloc_at(trace, second * S - LENGTH + i, 40, EVENT_API_OBJ);
			alloc_at(trace, second * S - LENGTH + i, 1000, EVENT_API_LARGE);
		}
		window_at(trace, second * S - LENGTH, second * S, second * S + MS, LENGTH);
	}
	meta = meta_of(trace, &size, &count, &has_error);
	assert_int_equal(meta.windows.allocated_by_work, 1);
	/* A small block came with each large one, in windows: so it is between them. */
	assert_int_equal(count, 2 * 16 * 104);
	assert_int_equal(size, 16 * 104 * 1040);
}

/* Another table begins another estimate. */
static void test_clear(void **state)
{
	struct trace *trace = *state;
	struct event_mark clear = {.header = header_of(EVENT_CLEAR, sizeof(clear))};
	struct snapshot_meta meta;
	uint64_t size, count;
	bool has_error;

	for (uint64_t second = 1; second <= 16; second++)
		window_of(trace, second, 5, 0);
	clear.header.time_ns = 17 * S;
	assert_int_equal(trace_feed(trace, &clear, sizeof(clear)), 0);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_false(knows_allocated(&meta));
	for (uint64_t second = 18; second <= 33; second++)
		window_of(trace, second, 5, 0);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_int_equal(count, 16 * 5 * 100);
}

/* However many records a window has, memory is bounded. */
static void test_many(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	uint64_t size, count;
	bool has_error;

	for (uint64_t second = 1; second <= 4; second++)
		window_of(trace, second, 200000, 0);
	meta = meta_of(trace, &size, &count, &has_error);
	assert_int_equal(count, 4 * 200000 * 100);
	assert_true(knows_allocated(&meta));
	assert_true(trace->processes[0]->allocs->kept_capacity <= 2 * WINDOW_ALLOCS_KEPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_by_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_by_work, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
