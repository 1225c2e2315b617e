/* SPDX-License-Identifier: Apache-2.0 */
/* What a live view is told: running totals are those of the table, and changes add up to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "records.h"

#define STACKS  16u /* the first two indices are reserved */
#define CHANGES 20000u

/* What a client has of a process. */
struct reported {
	uint32_t number;
	unsigned int entries; /* in the last answer */
	struct trace_sum sums[STACKS];
};

static int feed_mode(struct trace *trace, uint32_t mode, uint64_t sample_bytes)
{
	struct event_mode_change event = {.header = header_of(EVENT_MODE_CHANGE, sizeof(event)),
					  .mode = mode,
					  .sample_bytes = sample_bytes};

	return trace_feed(trace, &event, sizeof(event));
}

static int trace_set(void **state)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process(trace, 0x030d0000), 0);
	assert_int_equal(feed_code(trace, 1, "a.py", "f", 1, 0, 0), 0);
	for (uint64_t i = 2; i < STACKS; i++)
		assert_int_equal(feed_stack(trace, i, 1, 1), 0);
	assert_int_equal(trace_stack_count(trace, 0), STACKS);
	*state = trace;
	return 0;
}

static int trace_end(void **state)
{
	trace_free(*state);
	return 0;
}

static int entry_take(void *context, uint32_t stack, const struct trace_sum *sum)
{
	struct reported *reported = context;

	assert_true(stack < STACKS);
	reported->entries++;
	reported->sums[stack] = *sum;
	return 0;
}

/* One answer. 0; -ENODATA: there were no changes to be told, but everything. */
static int tell(struct trace *trace, struct reported *reported)
{
	int err = trace_sums_changed(trace, 0, EVENT_LAYER_PYTHON, reported->number, entry_take,
				     (reported->entries = 0, reported));

	if (err == -ENODATA) {
		memset(reported->sums, 0, sizeof(reported->sums));
		trace_sums(trace, 0, EVENT_LAYER_PYTHON, NULL, reported->sums);
	}
	reported->number = trace_sums_reported(trace);
	return err;
}

/* The client has what is there, and that is what the table holds. */
static void check(struct trace *trace, const struct reported *reported)
{
	const struct blocks *blocks = trace_blocks(trace, 0, EVENT_LAYER_PYTHON);
	struct trace_sum all[STACKS] = {0}, held[STACKS] = {0};
	const struct block *block;
	size_t cursor = 0;

	trace_sums(trace, 0, EVENT_LAYER_PYTHON, NULL, all);
	while ((block = blocks_next(blocks, &cursor))) {
		held[block->stack].size += (double)block->bytes;
		held[block->stack].count++;
	}
	for (uint32_t i = 0; i < STACKS; i++) {
		assert_true(reported->sums[i].size == all[i].size);
		assert_true(reported->sums[i].count == all[i].count);
		assert_true(reported->sums[i].allocated == all[i].allocated);
		assert_true(held[i].size == all[i].size && held[i].count == all[i].count);
	}
}

static void changes_add_up(void **state)
{
	struct trace *trace = *state;
	struct reported often = {0}, seldom = {0};
	uint32_t random = 1;

	assert_int_equal(tell(trace, &often), -ENODATA);
	assert_int_equal(tell(trace, &seldom), -ENODATA);
	for (unsigned int i = 1; i <= CHANGES; i++) {
		random = random * 1664525 + 1013904223;
		uint64_t address = 0x10000 + (random >> 8 & 255) * 512;

		if (random >> 20 & 1)
			feed_alloc(trace, address, random >> 24, 2 + (random >> 16) % (STACKS - 2));
		else if (random >> 21 & 1)
			feed_free(trace, address);
		else if (feed_take(trace, EVENT_REALLOC, TGID, address) == 0)
			feed_put(trace, EVENT_REALLOC_DONE, TGID, address + 512, random >> 25,
				 2 + (random >> 16) % (STACKS - 2));
		if (i % 7 == 0) {
			assert_int_equal(tell(trace, &often), 0);
			check(trace, &often);
		}
		if (i % 1000 == 0) {
			assert_int_equal(tell(trace, &seldom), 0);
			check(trace, &seldom);
		}
	}
}

static void only_changes_are_reported(void **state)
{
	struct trace *trace = *state;
	struct reported reported = {0};

	for (uint64_t i = 2; i < STACKS; i++)
		feed_alloc(trace, i * 4096, 100, i);
	tell(trace, &reported);
	assert_int_equal(tell(trace, &reported), 0);
	assert_int_equal(reported.entries, 0);
	feed_alloc(trace, 0x100000, 7, 5);
	feed_alloc(trace, 0x101000, 8, 5);
	feed_free(trace, 6ul * 4096);
	assert_int_equal(tell(trace, &reported), 0);
	assert_int_equal(reported.entries, 2);
	check(trace, &reported);
	/* also that nothing is left */
	assert_true(reported.sums[6].size == 0 && reported.sums[6].allocated == 100);
	assert_true(reported.sums[5].size == 115 && reported.sums[5].count == 3);
}

/* What takes the counts away is followed by everything, to each client. */
static void everything_is_reported_anew(void **state)
{
	struct trace *trace = *state;
	struct reported reported = {0}, other = {0};

	feed_alloc(trace, 0x1000, 100, 5);
	tell(trace, &reported);
	tell(trace, &other);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	feed_alloc(trace, 0x2000, 10, 6);
	assert_int_equal(tell(trace, &reported), -ENODATA);
	check(trace, &reported);
	assert_true(reported.sums[5].count == 0);
	assert_int_equal(tell(trace, &reported), 0);
	assert_int_equal(tell(trace, &other), -ENODATA);
	check(trace, &other);
	assert_int_equal(feed_mode(trace, EVENT_MODE_CENSUS, 0), 0);
	assert_int_equal(tell(trace, &reported), -ENODATA);
	assert_int_equal(tell(trace, &reported), 0);
	/* an estimate is made of all blocks each time */
	assert_int_equal(feed_mode(trace, EVENT_MODE_EXACT, 4096), 0);
	feed_alloc(trace, 0x8000, 100000, 7);
	assert_int_equal(tell(trace, &reported), -ENODATA);
	assert_int_equal(tell(trace, &reported), -ENODATA);
	assert_true(reported.sums[7].size >= 100000);
	/* a layer without a table, a process that is not there */
	assert_int_equal(trace_sums_changed(trace, 0, EVENT_LAYER_MMAP, reported.number, entry_take,
					    &reported),
			 -ENODATA);
	assert_int_equal(trace_sums_changed(trace, 9, EVENT_LAYER_PYTHON, reported.number,
					    entry_take, &reported),
			 -ENODATA);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_set, trace_end)
	const struct CMUnitTest tests[] = {
		TEST(changes_add_up),
		TEST(only_changes_are_reported),
		TEST(everything_is_reported_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
