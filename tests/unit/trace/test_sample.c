/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample that bpf/ takes, tested with the same code, and the estimates from it. All random
 * numbers come from fixed seeds, so each run gives the same result. Bounds are 5 standard
 * deviations or more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "abi/sample.h"
#include "records.h"
#include "snapshot/estimate.h"
#include "snapshot/group/group.h"
#include "snapshots.h"
#include "util/hash.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static uint32_t random_next(uint64_t *seed)
{
	return (uint32_t)(hash_u64((*seed)++) >> 32);
}

static void log_check(uint64_t value)
{
	double exact = (32 - log2((double)value)) * 0x1p32, got = (double)sample_log2(value);

	/* The error stated in sample.h, and the rounding of a double near 2^37. */
	assert_true(got >= exact - 1e-3 && got <= exact + 4);
}

static void gap_check(uint32_t random, uint64_t mean)
{
	double exact = -log(((double)random + 1) / 0x1p32) * (double)mean;
	double capacity = 4e-9 * exact + 1e-9 * (double)mean,
	       got = (double)sample_gap(random, mean);

	assert_true(got <= exact + capacity && got + 1 >= exact - capacity);
	assert_true(got <= 22.2 * (double)mean);
}

static void test_logarithm(void **state)
{
	uint64_t seed = 1;
	(void)state;

	assert_int_equal(sample_log2(1ull << 32), 0);
	assert_int_equal(sample_log2(1), 32ull << 32);
	for (int bit = 0; bit < 32; bit++)
		for (uint64_t i = 0; i < 5; i++) {
			log_check((1ull << bit) + (i < (1ull << bit) ? i : 0));
			log_check((2ull << bit) - (i < (1ull << bit) ? i : 0));
		}
	for (int i = 0; i < 200000; i++)
		log_check((uint64_t)(random_next(&seed) >> i % 32) + 1);
}

static void test_gap(void **state)
{
	static const uint64_t means[] = {1, 16, 4096, 524288, SAMPLE_MEAN_MAX};
	uint64_t seed = 2;
	(void)state;

	assert_int_equal(sample_gap(UINT32_MAX, 1000), 0);
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		gap_check(0, means[i]);
		for (uint32_t j = 0; j < 1000; j++) {
			gap_check(UINT32_MAX - j, means[i]);
			gap_check(random_next(&seed), means[i]);
		}
	}
}

/*
 * Samples a sequence of count blocks whose sizes alternate; taken[] counts the sampled blocks by
 * size.
 */
static void sample_take(uint64_t mean, const uint64_t *sizes, size_t kinds, size_t count,
			uint64_t *taken, uint64_t *seed)
{
	__u64 gap = sample_gap(random_next(seed), mean);

	for (size_t i = 0; i < count; i++) {
		if (!sample_covers(&gap, sizes[i % kinds]))
			continue;
		taken[i % kinds]++;
		gap = sample_gap(random_next(seed), mean);
	}
}

/* Each size is sampled with its own probability, whatever is allocated in between. */
static void test_chance(void **state)
{
	static const uint64_t sizes[] = {16, 0, 512, 3000, 70000, 1};
	static const uint64_t means[] = {1, 64, 4096, 65536};
	enum { KINDS = sizeof(sizes) / sizeof(sizes[0]), EACH = 400000 };
	uint64_t seed = 3;
	(void)state;

	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		uint64_t taken[KINDS] = {0};

		sample_take(means[i], sizes, KINDS, KINDS * EACH, taken, &seed);
		for (size_t k = 0; k < KINDS; k++) {
			double chance = estimate_chance(means[i], sizes[k]);
			double deviation = sqrt(EACH * chance * (1 - chance));

			assert_true(fabs((double)taken[k] - EACH * chance) <= 5 * deviation + 1);
		}
	}
}

/*
 * Over many samples the mean is the true value, and the variance is on average the one that each
 * sample estimates.
 */
static void test_unbiased(void **state)
{
	static const uint64_t sizes[] = {16, 64, 500, 30, 5000, 48};
	static const uint64_t means[] = {1024, 16384, 100000};
	enum { KINDS = sizeof(sizes) / sizeof(sizes[0]), EACH = 2000, RUNS = 1000 };
	uint64_t seed = 4, all = 0;
	(void)state;

	for (size_t k = 0; k < KINDS; k++)
		all += sizes[k] * EACH;
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		double size = 0, count = 0, size_square = 0, said = 0;
		int within = 0;

		for (int run = 0; run < RUNS; run++) {
			uint64_t taken[KINDS] = {0};
			struct estimate sum = {0};

			sample_take(means[i], sizes, KINDS, KINDS * EACH, taken, &seed);
			for (size_t k = 0; k < KINDS; k++)
				estimate_add_sampled(&sum, estimate_chance(means[i], sizes[k]),
						     sizes[k], taken[k]);
			size += sum.size / RUNS;
			count += sum.count / RUNS;
			size_square += (sum.size - (double)all) * (sum.size - (double)all) / RUNS;
			said += sum.size_variance / RUNS;
			within += fabs(sum.size - (double)all) <= 2 * sqrt(sum.size_variance);
		}
		assert_true(fabs(size - (double)all) <= 5 * sqrt(said / RUNS));
		assert_true(fabs(count - KINDS * EACH) <= 0.05 * KINDS * EACH);
		/* A variance from 1000 samples is accurate to 4.5 %. */
		assert_true(size_square / said > 0.75 && size_square / said < 1.3);
		/* 95.4 % in a normal distribution. */
		assert_true(within > RUNS * 0.92 && within < RUNS * 0.98);
	}
}

static struct snapshot *snapshot_new(uint64_t mean, uint64_t count)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta.sample_bytes = mean;
	snapshot_add(&builder, FRAMES({"a.py", "f", 1}), 0, 0, 100, count);
	snapshot_add(&builder, FRAMES({"a.py", "f", 1}, {"b.py", "g", 2}), 0, 0, 3000, 7);
	snapshot_add(&builder, FRAMES({"b.py", "g", 3}), 0, 0, 100000, 1);
	return builder_finish(&builder);
}

static void near(uint64_t value, double wanted)
{
	assert_true(fabs((double)value - wanted) <= 1);
}

static void test_statistics(void **state)
{
	struct snapshot *snapshot = snapshot_new(1000, 5);
	struct statistics statistics;
	double p = 1 - exp(-0.1), q = 1 - exp(-3);
	(void)state;

	assert_int_equal(statistics_compute(snapshot, &(struct statistics_opts){.by = GROUP_LINENO},
					    &statistics),
			 0);
	assert_true(statistics.sampled);
	assert_int_equal(statistics.count, 2);
	/* The greatest block is in every sample: exact. */
	assert_int_equal(statistics.entries[0].size, 100000);
	assert_int_equal(statistics.entries[0].count, 1);
	assert_int_equal(statistics.entries[0].error.size, 0);
	near(statistics.entries[1].size, 500 / p + 21000 / q);
	near(statistics.entries[1].count, 5 / p + 7 / q);
	near(statistics.entries[1].error.size,
	     sqrt(5 * (1 - p) / (p * p) * 1e4 + 7 * (1 - q) / (q * q) * 9e6));
	near(statistics.entries[1].error.count,
	     sqrt(5 * (1 - p) / (p * p) + 7 * (1 - q) / (q * q)));
	near(statistics.total_size, 100000 + 500 / p + 21000 / q);
	assert_int_equal(statistics.total_error.size, statistics.entries[1].error.size);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/* A sample compared with all blocks, and with another sample that has another mean. */
static void test_compare(void **state)
{
	struct snapshot *sample = snapshot_new(1000, 5), *other = snapshot_new(2000, 9),
			*exact = snapshot_new(0, 50);
	const struct statistics_opts by_file = {.by = GROUP_FILENAME};
	struct statistics alone, statistics;
	(void)state;

	assert_int_equal(statistics_compute(sample, &by_file, &alone), 0);
	assert_int_equal(statistics_compare(sample, exact, &by_file, &statistics), 0);
	assert_true(statistics.sampled);
	assert_int_equal(statistics.old_total_size, 100000 + 21000 + 5000);
	assert_int_equal(statistics.old_total_error.size, 0);
	assert_int_equal(statistics.total_size, alone.total_size);
	assert_int_equal(statistics.total_error.size, alone.total_error.size);
	statistics_free(&statistics);
	assert_int_equal(statistics_compare(other, sample, &by_file, &statistics), 0);
	assert_int_equal(statistics.old_total_size, alone.total_size);
	assert_int_equal(statistics.old_total_error.count, alone.total_error.count);
	assert_true(statistics.total_error.size > alone.total_error.size);
	statistics_free(&statistics);
	statistics_free(&alone);
	snapshot_free(sample);
	snapshot_free(other);
	snapshot_free(exact);
}

/* A snapshot with the number of blocks that a sample represents, and a sum that overflows. */
static void test_whole(void **state)
{
	struct snapshot *sample = snapshot_new(1000, 5), *all;
	struct builder builder;
	double count = 0;
	(void)state;

	assert_int_equal(estimate_snapshot(sample, &all), 0);
	assert_int_equal(all->meta.sample_bytes, 0);
	for (size_t i = 0; i < all->trace_count; i++)
		count += (double)all->traces[i].count;
	near((uint64_t)count, 5 / (1 - exp(-0.1)) + 7 / (1 - exp(-3)) + 1);
	snapshot_free(all);
	snapshot_free(sample);

	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta.sample_bytes = SAMPLE_MEAN_MAX;
	snapshot_add(&builder, FRAMES({"a.py", "f", 1}), 0, 0, 1, 1ull << 50);
	sample = builder_finish(&builder);
	struct statistics statistics;
	assert_int_equal(estimate_snapshot(sample, &all), -EOVERFLOW);
	assert_int_equal(statistics_compute(sample, &(struct statistics_opts){.by = GROUP_LINENO},
					    &statistics),
			 -EOVERFLOW);
	snapshot_free(sample);
}

/* A number of blocks that a trace writes is read back unchanged. */
static void test_back(void **state)
{
	static const uint64_t means[] = {0, 1, 1000, 524288, SAMPLE_MEAN_MAX};
	uint64_t size, count;
	(void)state;

	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++)
		for (uint64_t bytes = 0; bytes < 1 << 22; bytes = bytes * 3 + 1)
			for (uint64_t n = 1; n < 1000000; n = n * 2 + 1) {
				const struct snapshot_trace trace = {.bytes = bytes, .count = n};

				assert_int_equal(
					estimate_trace_figures(estimate_chance(means[i], bytes),
							       &trace, &size, &count),
					0);
				assert_int_equal(estimate_sampled(means[i], bytes, count), n);
			}
}

static int feed_sampled_mode(struct trace *trace, uint32_t mode, uint64_t mean)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .nframe = 16,
				     .mode = mode,
				     .sample_bytes = mean,
				     .name = "python3"};

	return trace_feed(trace, &event, sizeof(event));
}

static int feed_sampled(struct trace *trace, uint64_t mean)
{
	return feed_sampled_mode(trace, EVENT_MODE_EXACT, mean);
}

static void expect_peak(uint32_t mode, uint32_t api, uint64_t mean)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)), .api = api};
	struct statistics statistics;
	struct snapshot *snapshot;
	struct trace_table live;
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_sampled_mode(trace, mode, mean), 0);
	/* Sizes whose estimate is rounded down, and no heap walk. */
	for (uint64_t i = 0; i < 100; i++) {
		event.address = 0x10000 + i * 0x1000;
		event.bytes = 4200 + i % 7;
		assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	}
	live = trace_live(trace, 0,
			  mode & EVENT_MODE_NATIVE ? EVENT_LAYER_NATIVE : EVENT_LAYER_PYTHON);
	assert_true(live.live_bytes && live.peak_bytes >= live.live_bytes);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(statistics_compute(snapshot, &(struct statistics_opts){.by = GROUP_LINENO},
					    &statistics),
			 0);
	assert_int_equal(statistics.count, 1);
	assert_true(statistics.total_size && snapshot->meta.peak_bytes >= statistics.total_size);
	statistics_free(&statistics);
	snapshot_free(snapshot);
	trace_free(trace);
}

/* A peak is never below the live figure: in every mode, for all blocks and for a sample. */
static void test_peak(void **state)
{
	static const uint64_t means[] = {0, 4096, 1 << 20};
	(void)state;

	for (size_t i = 0; i < 3; i++) {
		for (uint32_t mode = EVENT_MODE_EXACT; mode <= EVENT_MODE_GROWTH; mode++)
			expect_peak(mode, EVENT_API_OBJ, means[i]);
		expect_peak(EVENT_MODE_EXACT | EVENT_MODE_NATIVE, EVENT_API_NATIVE, means[i]);
	}
}

/* The peak is computed from the estimates; a freed block subtracts exactly what it added. */
static void test_trace(void **state)
{
	struct trace *trace;
	struct snapshot *snapshot;
	const struct trace_process *process;
	uint64_t each = estimate_bytes(4096, 100);
	(void)state;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_sampled(trace, SAMPLE_MEAN_MAX + 1ull), -EBADMSG);
	assert_int_equal(feed_sampled(trace, 4096), 0);
	process = trace_process_at(trace, 0);
	assert_true(each > 4096);
	assert_int_equal(feed_alloc(trace, 0x1000, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 0x2000, 100, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 2 * each);
	near(trace_live(trace, 0, EVENT_LAYER_PYTHON).live_blocks, 2 / estimate_chance(4096, 100));
	assert_int_equal(feed_free(trace, 0x1000), 0);
	assert_int_equal(process->tables[0].live_bytes, each);
	assert_int_equal(process->tables[0].peak_bytes, 2 * each);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.sample_bytes, 4096);
	assert_int_equal(snapshot->traces[0].count, 1);
	snapshot_free(snapshot);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logarithm),  cmocka_unit_test(test_gap),
		cmocka_unit_test(test_chance),     cmocka_unit_test(test_unbiased),
		cmocka_unit_test(test_statistics), cmocka_unit_test(test_compare),
		cmocka_unit_test(test_whole),      cmocka_unit_test(test_back),
		cmocka_unit_test(test_trace),      cmocka_unit_test(test_peak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
