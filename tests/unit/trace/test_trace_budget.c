/* SPDX-License-Identifier: Apache-2.0 */
/* A trace whose budget is exhausted: by blocks, stacks, names, regions, threads or forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "budget_traces.h"
#include "ranges.h"
#include "records.h"
#include "sanitized.h"
#include "snapshot/builder.h"

static void flood_blocks(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY; i++)
		put(trace, TGID, i, 0);
}

static void flood_stacks(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY / 4; i++) {
		put(trace, TGID, 1, i);
		assert_int_equal(feed_stack(trace, i, i, 3), 0);
	}
}

static void flood_names(struct trace *trace)
{
	char name[64];

	for (uint32_t i = 1; i < MANY / 4; i++) {
		snprintf(name, sizeof(name), "a_function_with_a_name_that_is_its_own_%u", i);
		assert_int_equal(feed_code(trace, i, name, name + 1, 1, 0, 0), 0);
	}
}

static void flood_lines(struct trace *trace)
{
	static const char piece[2048];

	for (uint32_t i = 1; i < 400; i++) {
		assert_int_equal(feed_code(trace, i, "f.py", "f", 1, 0, 100 * sizeof(piece)), 0);
		for (uint32_t at = 0; at < 100 * sizeof(piece); at += sizeof(piece))
			assert_int_equal(feed_lines(trace, i, at, piece, sizeof(piece)), 0);
	}
}

static void flood_symbols(struct trace *trace)
{
	char name[32];

	for (uint32_t i = 1; i < MANY / 4; i++) {
		const char *text = name;

		snprintf(name, sizeof(name), "native_%u", i);
		assert_int_equal(feed_symbol(trace, i, &text, 1, "a.c"), 0);
	}
}

static void flood_regions(struct trace *trace)
{
	for (uint64_t i = 1; i < MANY / 2; i++) {
		struct event_map event = {.header = header_of(EVENT_MAP, sizeof(event)),
					  .address = i << 13,
					  .bytes = 4096,
					  .protection = 1};

		assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	}
}

static void flood_threads(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY / 4; i++)
		assert_int_equal(feed_put(trace, EVENT_ALLOC, i, 16, 10, 0), 0);
}

/* A heap that reports full pools without end. */
static void flood_reading(struct trace *trace)
{
	struct event_census census = {.header = header_of(EVENT_CENSUS, sizeof(census)), .id = 2};
	struct {
		struct event_census_pool event;
		uint64_t bits[EVENT_POOL_BLOCKS / 64];
	} pool = {.event = {.id = 2, .block_bytes = 16, .count = 1000}};

	assert_int_equal(trace_feed(trace, &census, sizeof(census)), 0);
	pool.event.header = header_of(EVENT_CENSUS_POOL, sizeof(pool.event) + (1000 + 63) / 64 * 8);
	memset(pool.event.live, 0xff, 1000 / 8);
	for (uint32_t i = 1; i < 4000; i++) {
		pool.event.address = (uint64_t)i << 14;
		assert_int_equal(trace_feed(trace, &pool, pool.event.header.size), 0);
	}
}

static const struct flood {
	const char *what;
	void (*run)(struct trace *trace);
	size_t counter; /* offset in struct trace_counters; 0: nothing is counted */
} floods[] = {
	{"blocks", flood_blocks, offsetof(struct trace_counters, blocks_dropped)},
	{"stacks", flood_stacks, offsetof(struct trace_counters, stacks_dropped)},
	{"names", flood_names, offsetof(struct trace_counters, codes_dropped)},
	{"lines", flood_lines, offsetof(struct trace_counters, codes_dropped)},
	{"symbols", flood_symbols, offsetof(struct trace_counters, symbols_dropped)},
	{"regions", flood_regions, offsetof(struct trace_counters, regions_dropped)},
	{"reading", flood_reading, offsetof(struct trace_counters, walks_dropped)},
	{"threads", flood_threads, 0},
};

static uint64_t counter_of(const struct trace *trace, const struct flood *flood)
{
	uint64_t count;

	memcpy(&count, (const char *)&trace_process_at(trace, 0)->counters + flood->counter,
	       sizeof(count));
	return count;
}

/*
 * The trace stays within its budget, reports what it did not keep, and continues. A discarded
 * process leaves nothing behind.
 */
static void test_floods(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		struct trace *trace = trace_begin(BUDGET);
		uint64_t before;
		struct snapshot *snapshot;

		before = trace_memory(trace);
		floods[i].run(trace);
		assert_uint_in_range(trace_memory(trace), before, BUDGET);
		if (floods[i].counter)
			assert_true(counter_of(trace, &floods[i]) > 0);
		assert_int_equal(trace_process_at(trace, 0)->counters.records_malformed, 0);
		assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
		if (floods[i].run == flood_stacks) /* one block at a time */
			assert_int_equal(snapshot->meta.unknown[UNKNOWN_NO_MEMORY].blocks, 1);
		assert_int_equal(snapshot->meta.unknown[UNKNOWN_NO_STACK].blocks, 0);
		snapshot_free(snapshot);
		assert_true(trace_memory(trace) <= BUDGET);
		/* Another process is traced meanwhile. */
		begin(trace, 2000, 0, EVENT_MODE_EXACT);
		for (uint64_t block = 1; block <= 1000; block++)
			put(trace, 2000, block, block);
		assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, 1000);
		assert_int_equal(trace_process_at(trace, 1)->counters.stacks_dropped, 0);
		assert_int_equal(feed_mark(trace, EVENT_DISCARD), 0);
		assert_true(trace_memory(trace) < BUDGET / 8);
		trace_free(trace);
	}
}

/* Returns the peak memory that the kernel reports for a process that does nothing else. */
static long peak_kilobytes(void (*run)(struct trace *trace), uint64_t budget)
{
	struct rusage usage;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct trace *trace = trace_begin(budget);
		struct snapshot *snapshot;

		run(trace);
		_exit(trace_snapshot_all(trace, 1, &snapshot) != 0);
	}
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	assert_int_equal(status, 0);
	return usage.ru_maxrss;
}

static void flood_nothing(struct trace *trace)
{
	(void)trace;
}

/* The memory charged is the memory held. */
static void test_peak(void **state)
{
	long nothing = peak_kilobytes(flood_nothing, BUDGET);
	(void)state;

	if (SANITIZED) {
		print_message("skipped: the sanitizer keeps what was freed\n");
		skip();
	}
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		long peak = peak_kilobytes(floods[i].run, BUDGET) - nothing;

		if (peak > 3 * (long)BUDGET / 2 / 1024)
			fail_msg("%s: %ld KiB with a budget of %u", floods[i].what, peak,
				 BUDGET >> 10);
	}
}

/*
 * Children begin with a copy of the table as long as there is memory for one, then without a copy;
 * after that they are not traced.
 */
static void test_forks(void **state)
{
	enum { BLOCKS = 10000, CHILDREN = 1000 };
	struct trace *trace = trace_begin(BUDGET);
	const struct trace_process *process;
	size_t inherited = 0, begun = 0, index;
	(void)state;

	for (uint64_t i = 1; i <= BLOCKS; i++)
		put(trace, TGID, i, i % 100);
	for (uint32_t i = 1; i <= CHILDREN; i++) {
		if (try_begin(trace, TGID + i, TGID, EVENT_MODE_CENSUS))
			continue;
		begun++;
		assert_int_equal(trace_process_find(trace, TGID + i, &index), 0);
		process = trace_process_at(trace, index);
		inherited += !process->not_inherited;
		assert_int_equal(process->counters.blocks_dropped,
				 process->not_inherited ? BLOCKS : 0);
	}
	assert_true(trace_memory(trace) <= BUDGET);
	assert_uint_in_range(inherited, 2, 50);
	assert_uint_in_range(begun, inherited + 1, CHILDREN - 1);
	assert_int_equal(trace_dropped(trace).processes, CHILDREN - begun);
	assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, BLOCKS);
	/* Records of an untracked process are ignored; they are not malformed. */
	put(trace, TGID + CHILDREN, 1, 0);
	assert_int_equal(trace_orphans(trace), 0);
	for (uint32_t i = 1; i <= begun; i++)
		end(trace, TGID + i);
	begin(trace, 1, TGID, EVENT_MODE_CENSUS);
	assert_true(trace_memory(trace) <= BUDGET);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_floods),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_forks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
