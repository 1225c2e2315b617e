/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of several processes: their order, compared with a brute-force computation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "report/export/exporter.h"
#include "report/pprof/pprof_format.h"
#include "report/report.h"
#include "snapshot/merge.h"
#include "snapshot_parts.h"
#include "snapshots.h"
#include "util/hash.h"

/* The traces of a file that another program rewrote come in any order. */
static void test_order(void **state)
{
	struct builder builder;
	struct snapshot_meta *meta;
	struct snapshot *snapshot;
	uint32_t traceback;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(builder_process(&builder, &meta), 0);
	assert_int_equal(builder_traceback(&builder, &(struct snapshot_frame){0}, 1, 1, &traceback),
			 0);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(
			builder_trace(&builder, &(struct snapshot_trace){.process = i * 7 % 3,
									 .bytes = i,
									 .count = 1}),
			0);
	assert_int_equal(builder_order(&builder), 0);
	snapshot = builder_finish(&builder);
	for (size_t i = 1; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *x = &snapshot->traces[i - 1],
					    *y = &snapshot->traces[i];

		assert_true(x->process < y->process ||
			    (x->process == y->process && x->bytes < y->bytes));
	}
	snapshot_free(snapshot);
}

static struct snapshot *random_whole(uint64_t seed)
{
	struct snapshot *parts[RANDOM_PARTS], *whole;

	for (size_t p = 0; p < RANDOM_PARTS; p++) {
		struct builder builder;

		assert_int_equal(builder_begin(&builder), 0);
		builder.snapshot->meta = (struct snapshot_meta){.pid = 100 + (uint32_t)p / 2};
		snprintf(builder.snapshot->meta.name, 8, "c%u",
			 (unsigned int)(hash_u64(seed + p) % 3));
		snprintf(builder.snapshot->meta.container, 8, "%.*s", (int)(p % 3), "xyz");
		for (uint64_t i = 0; i < RANDOM_TRACES; i++) {
			uint64_t dice = hash_u64(seed ^ (p << 32 | i));
			const struct frame_text frames[] = {
				{dice & 1 ? "a" : "b", "f", (uint32_t)(dice >> 8 & 63)},
				{dice & 2 ? "a" : "b", "f", (uint32_t)(dice >> 16 & 7)},
				{NULL, NULL, 0}};

			assert_int_equal(snapshot_add(&builder, frames, 2, 0, dice >> 32 & 255, 1),
					 0);
		}
		parts[p] = builder_finish(&builder);
	}
	assert_int_equal(
		snapshot_merge((const struct snapshot *const *)parts, RANDOM_PARTS, &whole), 0);
	for (size_t p = 0; p < RANDOM_PARTS; p++)
		snapshot_free(parts[p]);
	return whole;
}

static int same_owner(const struct snapshot_meta *a, const struct snapshot_meta *b,
		      enum group_by by)
{
	if (by == GROUP_CONTAINER)
		return !strcmp(a->container, b->container);
	return !strcmp(a->name, b->name) && (by == GROUP_COMM || a->pid == b->pid);
}

/* Returns how often the trace adds to the entry; 0: not at all. */
static uint64_t adds(const struct snapshot *snapshot, const struct snapshot_trace *trace,
		     const struct statistic *entry, const struct statistics_opts *opts)
{
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[trace->traceback];
	uint64_t times = 0;

	if (group_is_owner(opts->by))
		return same_owner(entry->process, snapshot_process(snapshot, trace->process),
				  opts->by);
	for (uint32_t i = 0; i < (opts->cumulative ? traceback->nframe : 1); i++) {
		const struct snapshot_frame *frame = &snapshot->frames[traceback->first + i];

		times += !strcmp(strings_get(snapshot->strings, frame->filename),
				 strings_get(entry->snapshot->strings, entry->frame.filename)) &&
			 (opts->by == GROUP_FILENAME || frame->line == entry->frame.line);
	}
	return opts->once ? times != 0 : times;
}

static void brute_force(const struct snapshot *snapshot, const struct statistic *entry,
			const struct statistics_opts *opts, struct statistic *out)
{
	char held[RANDOM_PARTS] = {0};

	*out = (struct statistic){0};
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		uint64_t times = adds(snapshot, trace, entry, opts);

		out->size += times * trace->bytes * trace->count;
		out->count += times * trace->count;
		out->once.size += (times != 0) * trace->bytes * trace->count;
		out->processes += times && !held[trace->process];
		held[trace->process] |= times != 0;
	}
}

static void test_statistics(void **state)
{
	static const struct statistics_opts kinds[] = {
		{.by = GROUP_PROCESS},
		{.by = GROUP_COMM},
		{.by = GROUP_CONTAINER},
		{.by = GROUP_LINENO},
		{.by = GROUP_FILENAME},
		{.by = GROUP_LINENO, .cumulative = 1},
		{.by = GROUP_FILENAME, .cumulative = 1, .once = 1},
	};
	(void)state;

	for (uint64_t seed = 1; seed < 8; seed++) {
		struct snapshot *new = random_whole(seed), *old = random_whole(seed + 100);

		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			struct statistics statistics;
			struct statistic now, before;
			uint64_t size = 0;

			assert_int_equal(statistics_compare(new, old, &kinds[k], &statistics), 0);
			for (size_t i = 0; i < statistics.count; i++) {
				const struct statistic *entry = &statistics.entries[i];

				brute_force(new, entry, &kinds[k], &now);
				brute_force(old, entry, &kinds[k], &before);
				assert_int_equal(entry->size, now.size);
				assert_int_equal(entry->count, now.count);
				assert_int_equal(entry->processes, now.processes);
				assert_int_equal(entry->old_size, before.size);
				assert_int_equal(entry->old_count, before.count);
				if (kinds[k].cumulative) {
					assert_int_equal(entry->once.size, now.once.size);
					assert_int_equal(entry->old_once.size, before.once.size);
				}
				size += entry->size;
			}
			if (!kinds[k].cumulative)
				assert_int_equal(size, statistics.total_size);
			statistics_free(&statistics);
		}
		snapshot_free(new);
		snapshot_free(old);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
