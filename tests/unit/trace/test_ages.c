/* SPDX-License-Identifier: Apache-2.0 */
/* How old blocks are: from records, in snapshots and files, and which ages are chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "allocated_records.h"
#include "snapshot/ages.h"

#define MS     1000000ull
#define SECOND 1000000000ull
#define BIRTH  (1700000000 * SECOND) /* when the trace began, by the clock */

static int aged_set(void **state)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = 0x030d0000,
				     .nframe = 16,
				     .mode = EVENT_MODE_EXACT,
				     .realtime_ns = BIRTH,
				     .name = "python3"};

	trace_set(state);
	trace_ages(*state);
	assert_int_equal(trace_feed(*state, &event, sizeof(event)), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		char name[] = "line_.py";

		name[4] = (char)('0' + i);
		assert_int_equal(feed_code(*state, i, name, "f", 1, 0, 0), 0);
		assert_int_equal(feed_stack(*state, i, i, 1), 0);
	}
	return 0;
}

/* The process is seen at that time, since its trace began. */
static void seen_at(struct trace *trace, uint64_t ms)
{
	free_at(trace, 9, ms, 0xdead000);
}

/* The snapshot of the process that is traced now, by way of a file. */
static struct snapshot *aged(struct trace *trace, uint32_t tgid)
{
	struct snapshot *snapshot, *back;
	size_t index;

	assert_int_equal(trace_process_find(trace, tgid, &index), 0);
	assert_int_equal(trace_snapshot(trace, index, 0, &snapshot), 0);
	back = snapshot_through_file(snapshot);
	snapshot_free(snapshot);
	return back;
}

/* Its report of the blocks of some ages. */
static void check_kept(struct trace *trace, const struct ages *ages, const char *expected)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct snapshot *snapshot = aged(trace, TGID);

	assert_int_equal(ages_keep(snapshot, ages), 0);
	assert_true(snapshot->meta.of_ages);
	check_report(snapshot, &how, expected);
	snapshot_free(snapshot);
}

#define HEAD "filename,lineno,size,count,age_oldest,age_median\r\n"

static void oldest_and_median(void **state)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct trace *trace = *state;
	struct snapshot *snapshot;

	put_at(trace, 1, 0, 0x1000, 1);
	put_at(trace, 1, 100000, 0x2000, 1);
	put_at(trace, 1, 199950, 0x3000, 1);
	put_at(trace, 1, 199950, 0x4000, 1);
	put_at(trace, 1, 199950, 0x5000, 2);
	put_at(trace, 1, 0, 0x6000, 3);
	/* a realloc: its block is a new one */
	feed_take(trace, EVENT_REALLOC, 1, 0x6000);
	seen_at(trace, 199950);
	feed_put(trace, EVENT_REALLOC_DONE, 1, 0x6000, 20, 3);
	seen_at(trace, 200000);
	snapshot = aged(trace, TGID);
	assert_true(snapshot->meta.ages);
	assert_int_equal(snapshot->meta.ages_error_ns, 10 * MS);
	check_report(snapshot, &how,
		     "filename,lineno,size,count,allocated_size,allocated_count,temporary_size,"
		     "temporary_count,age_oldest,age_median\r\n"
		     "line1.py,0,40,4,40,4,0,0,200.000,0.055\r\n"
		     "line3.py,0,20,1,30,2,10,1,200.000,200.000\r\n"
		     "line2.py,0,10,1,10,1,0,0,0.055,0.055\r\n");
	snapshot_free(snapshot);
}

static void chosen_ages(void **state)
{
	struct trace *trace = *state;
	struct ages ages = AGES_ALL;

	put_at(trace, 1, 0, 0x1000, 1);
	put_at(trace, 1, 60000, 0x2000, 2);
	put_at(trace, 1, 90000, 0x3000, 3);
	seen_at(trace, 100000);
	assert_false(ages_any(&ages));
	ages.least_ns = 50 * SECOND;
	assert_true(ages_any(&ages));
	check_kept(trace, &ages, HEAD "line1.py,0,10,1,100.000,100.000\r\n");
	ages.least_ns = 20 * SECOND;
	check_kept(trace, &ages,
		   HEAD "line2.py,0,10,1,40.000,40.000\r\nline1.py,0,10,1,100.000,100.000\r\n");
	ages.most_ns = 50 * SECOND;
	check_kept(trace, &ages, HEAD "line2.py,0,10,1,40.000,40.000\r\n");
	ages = (struct ages){.most_ns = UINT64_MAX,
			     .from_realtime_ns = BIRTH + 80 * SECOND,
			     .until_realtime_ns = UINT64_MAX};
	check_kept(trace, &ages, HEAD "line3.py,0,10,1,10.000,10.000\r\n");
	ages.from_realtime_ns = 0;
	ages.until_realtime_ns = BIRTH + 70 * SECOND;
	check_kept(trace, &ages,
		   HEAD "line2.py,0,10,1,40.000,40.000\r\nline1.py,0,10,1,100.000,100.000\r\n");
	ages.until_realtime_ns = BIRTH - 1;
	check_kept(trace, &ages, HEAD);
}

/* What an ended process held is as old as when its interpreter began to shut down. */
static void age_at_the_end(void **state)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct trace *trace = *state;
	struct snapshot *snapshot;
	struct ages ages = AGES_ALL;
	size_t index;

	ages.least_ns = 1;
	put_at(trace, 1, 0, 0x1000, 1);
	seen_at(trace, 1000);
	feed_process_event(trace, EVENT_FINALIZE);
	seen_at(trace, 50000);
	feed_process_event(trace, EVENT_EXIT);
	assert_int_equal(trace_process_find(trace, TGID, &index), 0);
	assert_int_equal(trace_snapshot(trace, index, 1, &snapshot), 0);
	assert_int_equal(ages_keep(snapshot, &ages), 0);
	check_report(snapshot, &how, HEAD "line1.py,0,10,1,1.000,1.000\r\n");
	snapshot_free(snapshot);
}

static size_t traced(const struct trace *trace)
{
	size_t index;

	assert_int_equal(trace_process_find(trace, TGID, &index), 0);
	return index;
}

struct drawn {
	struct trace_age_sum sums[16];
	size_t count;
};

static int drawn_add(void *context, const struct trace_age_sum *sum)
{
	struct drawn *drawn = context;

	assert_true(drawn->count < 16);
	drawn->sums[drawn->count++] = *sum;
	return 0;
}

static struct drawn drawn_of(struct trace *trace, const struct ages *ages)
{
	struct drawn drawn = {0};

	assert_int_equal(
		trace_age_sums(trace, traced(trace), EVENT_LAYER_PYTHON, ages, drawn_add, &drawn),
		0);
	return drawn;
}

/* What a live view draws: by stack and age, with the blocks of one age added up. */
static void sums_by_age(void **state)
{
	struct trace *trace = *state;
	struct ages ages = AGES_ALL;
	struct drawn drawn;

	put_at(trace, 1, 0, 0x1000, 1);
	put_at(trace, 1, 90000, 0x2000, 1);
	put_at(trace, 1, 90001, 0x3000, 1);
	put_at(trace, 1, 90001, 0x4000, 2);
	seen_at(trace, 100000);
	drawn = drawn_of(trace, NULL);
	assert_int_equal(drawn.count, 3);
	for (size_t i = 0; i < drawn.count; i++) {
		const struct trace_age_sum *sum = &drawn.sums[i];
		uint32_t exact = sum->age > 50000 ? 100000 : 10000;

		assert_true(sum->age >= exact * 0.96 && sum->age <= exact * 1.04);
		assert_true(sum->size == 10 * sum->count);
		assert_true(sum->count == (exact == 10000 && sum->stack == 2 ? 2 : 1));
	}
	ages.least_ns = 50 * SECOND;
	drawn = drawn_of(trace, &ages);
	assert_int_equal(drawn.count, 1);
	assert_true(drawn.sums[0].age <= 100000); /* not older than the trace */
	assert_int_equal(
		trace_age_sums(trace, traced(trace), EVENT_LAYER_MMAP, NULL, drawn_add, &drawn),
		-ENODATA);
	/* Of one block, and since when all are seen. */
	const struct block *block =
		trace_block_containing(trace, traced(trace), EVENT_LAYER_PYTHON, 0x2000);
	assert_true(trace_age_ns(trace, traced(trace), block) == 10 * SECOND);
	assert_true(trace_age_ns(trace, traced(trace), NULL) == 100 * SECOND);
}

/* A child's blocks are as old as its parent's. */
static void inherited_ages(void **state)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct event_target child = {.header = header_of(EVENT_PROCESS, sizeof(child)),
				     .python_version = 0x030d0000,
				     .nframe = 16,
				     .mode = EVENT_MODE_EXACT,
				     .parent = TGID,
				     .name = "python3"};
	struct trace *trace = *state;
	struct snapshot *snapshot;

	put_at(trace, 1, 0, 0x1000, 1);
	child.header.tgid = child.header.tid = TGID + 1;
	child.header.time_ns = 40 * SECOND;
	assert_int_equal(trace_feed(trace, &child, sizeof(child)), 0);
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 0x2000,
				    .bytes = 10,
				    .stack_id = 2,
				    .api = EVENT_API_OBJ};
	event.header.tgid = event.header.tid = TGID + 1;
	event.header.time_ns = 50 * SECOND;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	snapshot = aged(trace, TGID + 1);
	struct ages ages = AGES_ALL;
	ages.least_ns = 1;
	assert_int_equal(ages_keep(snapshot, &ages), 0);
	check_report(snapshot, &how,
		     HEAD "line2.py,0,10,1,0.005,0.005\r\nline1.py,0,10,1,49.999,49.999\r\n");
	snapshot_free(snapshot);
}

/* Not asked for, there are none; nor are traces more than they were. */
static void no_ages(void **state)
{
	const struct report_opts how = {.by = GROUP_FILENAME};
	struct ages ages = AGES_ALL;
	struct snapshot *snapshot;
	struct trace *trace = *state;

	for (uint64_t i = 0; i < 100; i++)
		put_at(trace, 1, i * 100, 0x1000 + 16 * i, 1);
	snapshot = taken(trace);
	assert_int_equal(snapshot->trace_count, 1);
	assert_int_equal(ages_keep(snapshot, &ages), -ENODATA);
	check_report(snapshot, &how,
		     "filename,lineno,size,count,allocated_size,allocated_count,temporary_size,"
		     "temporary_count\r\nline1.py,0,1000,100,1000,100,0,0\r\n");
	snapshot_free(snapshot);
}

static void rounding(void **state)
{
	(void)state;
	for (uint64_t ms = 1; ms < 1ull << 31; ms += 1 + ms / 1000) {
		double rounded = ages_round(ms * MS, UINT64_MAX), exact = (double)ms;
		double most =
			exact * AGE_ROUNDING > AGE_STEP_MS ? exact * AGE_ROUNDING : AGE_STEP_MS;

		assert_true(rounded >= exact - most && rounded <= exact + most);
		assert_true(ages_round(ms * MS, ms * MS) <= ms);
		rounded = ages_coarse(ms * MS, UINT64_MAX);
		most *= 2;
		assert_true(rounded >= exact - most && rounded <= exact + most);
	}
	assert_int_equal(ages_round(0, 0), 1);
	assert_int_equal(ages_round(UINT64_MAX, UINT64_MAX), AGE_BEFORE - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, aged_set, trace_end)
	const struct CMUnitTest tests[] = {
		TEST(oldest_and_median),
		TEST(chosen_ages),
		TEST(sums_by_age),
		TEST(age_at_the_end),
		TEST(inherited_ages),
		cmocka_unit_test_setup_teardown(no_ages, trace_set, trace_end),
		cmocka_unit_test(rounding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
