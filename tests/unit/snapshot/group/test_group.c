/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "snapshot/group/group.h"
#include "snapshots.h"
#include "util/hash.h"

static void snapshot_begin(struct builder *builder)
{
	assert_int_equal(builder_begin(builder), 0);
	builder->snapshot->meta.traceback_limit = 16;
}

static void add(struct builder *builder, uint64_t bytes, uint64_t count,
		const struct frame_text *frames)
{
	assert_int_equal(snapshot_add(builder, frames, 0, 0, bytes, count), 0);
}

static int compute(const struct snapshot *snapshot, enum group_by by, int cumulative,
		   struct statistics *out)
{
	return statistics_compute(
		snapshot, &(struct statistics_opts){.by = by, .cumulative = cumulative}, out);
}

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static void test_refused(void **state)
{
	struct builder builder;
	struct statistics statistics;
	struct snapshot *snapshot;
	(void)state;

	snapshot_begin(&builder);
	snapshot = builder_finish(&builder);
	assert_int_equal(compute(snapshot, GROUP_TRACEBACK, 1, &statistics), -EINVAL);
	assert_int_equal(compute(snapshot, GROUP_LINENO, 1, &statistics), 0);
	assert_int_equal(statistics.count, 0);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/* A recursive frame counts as often as it occurs, or once if that is requested. */
static void test_recursion(void **state)
{
	const struct statistics_opts once = {.by = GROUP_LINENO, .cumulative = 1, .once = 1};
	struct builder builder;
	struct statistics statistics;
	struct snapshot *snapshot;
	(void)state;

	snapshot_begin(&builder);
	add(&builder, 10, 2, FRAMES({"a", "f", 1}, {"a", "f", 1}, {"b", "m", 2}));
	snapshot = builder_finish(&builder);
	assert_int_equal(compute(snapshot, GROUP_LINENO, 1, &statistics), 0);
	assert_int_equal(statistics.count, 2);
	assert_int_equal(statistics.entries[0].size, 40);
	assert_int_equal(statistics.entries[0].count, 4);
	assert_int_equal(statistics.entries[0].once.size, 20);
	assert_int_equal(statistics.entries[0].once.count, 2);
	assert_int_equal(statistics.entries[1].size, 20);
	assert_int_equal(statistics.entries[1].once.size, 20);
	assert_int_equal(statistics.total_size, 20);
	statistics_free(&statistics);
	assert_int_equal(statistics_compute(snapshot, &once, &statistics), 0);
	assert_int_equal(statistics.count, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(statistics.entries[i].size, 20);
		assert_int_equal(statistics.entries[i].count, 2);
	}
	/* Among equal entries the greater name comes first. */
	assert_string_equal(strings_get(snapshot->strings, statistics.entries[0].frame.filename),
			    "b");
	statistics_free(&statistics);
	/* The old snapshot's rows are different ones with the same numbers. */
	assert_int_equal(statistics_compare(snapshot, snapshot, &once, &statistics), 0);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(statistics.entries[i].old_size, 20);
	statistics_free(&statistics);
	snapshot->meta.sample_bytes = 10; /* such a block represents 1.58 blocks */
	assert_int_equal(statistics_compute(snapshot, &once, &statistics), 0);
	assert_int_equal(statistics.entries[0].size, 32);
	assert_int_equal(statistics.entries[1].size, 32);
	assert_int_equal(statistics.entries[1].once.size, 32);
	assert_int_equal(statistics.entries[1].once.error.size, statistics.entries[1].error.size);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/* Tracebacks that differ only in function names or in total_nframe are merged. */
static void test_traceback_fingerprint(void **state)
{
	struct builder builder;
	struct statistics statistics;
	struct snapshot *snapshot;
	(void)state;

	snapshot_begin(&builder);
	add(&builder, 10, 1, FRAMES({"a", "f", 1}));
	add(&builder, 10, 1, FRAMES({"a", "g", 1}));
	assert_int_equal(snapshot_add(&builder, FRAMES({"a", "f", 1}), 9, 0, 10, 1), 0);
	snapshot = builder_finish(&builder);
	assert_int_equal(snapshot->traceback_count, 3);
	assert_int_equal(compute(snapshot, GROUP_TRACEBACK, 0, &statistics), 0);
	assert_int_equal(statistics.count, 1);
	assert_int_equal(statistics.entries[0].count, 3);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/*
 * Frames without a line are distinguished by their functions. Frames with a line are not, unless
 * that is requested.
 */
static void test_function(void **state)
{
	struct builder builder;
	struct statistics statistics;
	struct snapshot *old, *snapshot;
	(void)state;

	/* The same strings have other ids in the old snapshot. */
	snapshot_begin(&builder);
	add(&builder, 5, 1, FRAMES({"b", "g", 0}));
	add(&builder, 6, 1, FRAMES({"a", "g", 0}));
	old = builder_finish(&builder);
	snapshot_begin(&builder);
	add(&builder, 10, 1, FRAMES({"a", "f", 0}));
	add(&builder, 20, 1, FRAMES({"a", "g", 0}));
	add(&builder, 30, 1, FRAMES({"a", "g", 7}));
	add(&builder, 40, 1, FRAMES({"a", "f", 7}));
	snapshot = builder_finish(&builder);

	assert_int_equal(compute(snapshot, GROUP_LINENO, 0, &statistics), 0);
	assert_int_equal(statistics.count, 3);
	assert_int_equal(statistics.entries[0].size, 70);
	statistics_free(&statistics);
	assert_int_equal(compute(snapshot, GROUP_TRACEBACK, 0, &statistics), 0);
	assert_int_equal(statistics.count, 3);
	statistics_free(&statistics);
	assert_int_equal(compute(snapshot, GROUP_FUNCTION, 0, &statistics), 0);
	assert_int_equal(statistics.count, 2);
	/* f and g: the greater name comes first */
	assert_int_equal(statistics.entries[0].size, 50);
	assert_string_equal(strings_get(snapshot->strings, statistics.entries[0].frame.function),
			    "g");
	statistics_free(&statistics);

	assert_int_equal(statistics_compare(snapshot, old,
					    &(struct statistics_opts){.by = GROUP_FUNCTION},
					    &statistics),
			 0);
	assert_int_equal(statistics.count, 3);
	for (size_t i = 0; i < statistics.count; i++)
		assert_int_equal(statistics.entries[i].old_size,
				 statistics.entries[i].size == 0 ? 5
				 : statistics.entries[i].frame.function ==
						 statistics.entries[0].frame.function
					 ? 0
					 : 6);
	statistics_free(&statistics);
	assert_int_equal(statistics_compare(snapshot, old,
					    &(struct statistics_opts){.by = GROUP_FILENAME},
					    &statistics),
			 0);
	assert_int_equal(statistics.count, 2);
	assert_int_equal(statistics.entries[0].size, 100);
	assert_int_equal(statistics.entries[0].old_size, 6);
	statistics_free(&statistics);
	snapshot_free(snapshot);
	snapshot_free(old);
}

static void test_overflow(void **state)
{
	struct builder builder;
	struct statistics statistics;
	struct snapshot *snapshot;
	(void)state;

	snapshot_begin(&builder);
	add(&builder, INT64_MAX, 1, FRAMES({"a", "f", 1}, {"a", "f", 1}, {"a", "f", 1}));
	assert_int_equal(snapshot_add(&builder, FRAMES({"a", "f", 1}), 0, 0, 1, 1), -EOVERFLOW);
	snapshot = builder_finish(&builder);
	assert_int_equal(compute(snapshot, GROUP_LINENO, 1, &statistics), -EOVERFLOW);
	assert_int_equal(compute(snapshot, GROUP_LINENO, 0, &statistics), 0);
	assert_true(statistics.entries[0].size == INT64_MAX);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/* --- against Lib/tracemalloc.py itself --- */

static const char script[] =
	"import sys, tracemalloc\n"
	"traces = eval(sys.stdin.read())\n"
	"if sys.version_info < (3, 9): traces = [t[:3] for t in traces]\n"
	"s = tracemalloc.Snapshot(traces, 16)\n"
	"for by, cumulative in ('filename', 0), ('lineno', 0), ('traceback', 0), ('filename', 1), "
	"('lineno', 1):\n"
	"    for e in s.statistics(by, bool(cumulative)):\n"
	"        t = getattr(e.traceback, '_frames')\n"
	"        t = t[::-1] if sys.version_info >= (3, 7) else t\n"
	"        print(e.size, e.count, ' '.join('%s:%d' % f for f in t))\n";

static struct snapshot *snapshot_random(FILE *python)
{
	/* UTF-8 order differs from UTF-16's for the last two, and a prefix sorts first. */
	static const char *const names[] = {"a",        "ab",           "b",
					    "\xc3\xa9", "\xee\x80\x80", "\xf0\x9f\x90\x8d"};
	struct builder builder;
	uint64_t random = 7;

	snapshot_begin(&builder);
	fputs("[", python);
	for (int i = 0; i < 600; i++) {
		struct frame_text frames[6] = {0};
		uint32_t nframe = 1 + (uint32_t)((random = hash_u64(random + 1)) % 5);
		uint64_t bytes = 8 * ((random >> 20) % 3), count = 1 + (random >> 30) % 2;

		for (uint32_t f = 0; f < nframe; f++) {
			random = hash_u64(random + 1);
			frames[f] = (struct frame_text){names[random % 6], "f",
							(uint32_t)(random >> 40) % 3};
		}
		add(&builder, bytes, count, frames);
		for (uint64_t c = 0; c < count; c++) {
			fprintf(python, "(0, %" PRIu64 ", (", bytes);
			for (uint32_t f = 0; f < nframe; f++)
				fprintf(python, "('%s', %u), ", frames[f].filename, frames[f].line);
			fprintf(python, "), %u),\n", nframe);
		}
	}
	fputs("]", python);
	return builder_finish(&builder);
}

static void statistics_print(FILE *out, const struct snapshot *snapshot, enum group_by by,
			     int cumulative)
{
	struct statistics statistics;

	assert_int_equal(compute(snapshot, by, cumulative, &statistics), 0);
	for (size_t i = 0; i < statistics.count; i++) {
		const struct statistic *entry = &statistics.entries[i];
		const struct snapshot_frame *frames = &entry->frame;
		uint32_t nframe = 1;

		if (by == GROUP_TRACEBACK) {
			frames = snapshot->frames + snapshot->tracebacks[entry->traceback].first;
			nframe = snapshot->tracebacks[entry->traceback].nframe;
		}
		fprintf(out, "%" PRIu64 " %" PRIu64, entry->size, entry->count);
		for (uint32_t f = 0; f < nframe; f++)
			fprintf(out, " %s:%u", strings_get(snapshot->strings, frames[f].filename),
				frames[f].line);
		fputs("\n", out);
	}
	statistics_free(&statistics);
}

static void test_like_tracemalloc(void **state)
{
	char directory[] = "/tmp/test_group.XXXXXX", command[256], path[3][64];
	struct snapshot *snapshot;
	FILE *file;
	(void)state;

	if (system("python3 -c 'import tracemalloc' 2>/dev/null")) {
		print_message("no python3 with tracemalloc on PATH\n");
		skip();
	}
	assert_non_null(mkdtemp(directory));
	for (int i = 0; i < 3; i++)
		snprintf(path[i], sizeof(path[i]), "%s/%d", directory, i);
	assert_non_null(file = fopen(path[0], "w"));
	assert_true(fputs(script, file) >= 0 && !fclose(file));
	assert_non_null(file = fopen(path[1], "w"));
	snapshot = snapshot_random(file);
	assert_int_equal(fclose(file), 0);
	assert_non_null(file = fopen(path[2], "w"));
	statistics_print(file, snapshot, GROUP_FILENAME, 0);
	statistics_print(file, snapshot, GROUP_LINENO, 0);
	statistics_print(file, snapshot, GROUP_TRACEBACK, 0);
	statistics_print(file, snapshot, GROUP_FILENAME, 1);
	statistics_print(file, snapshot, GROUP_LINENO, 1);
	assert_int_equal(fclose(file), 0);
	snprintf(command, sizeof(command),
		 "PYTHONIOENCODING=utf-8 PYTHONUTF8=1 python3 %s < %s | diff - %s", path[0],
		 path[1], path[2]);
	assert_int_equal(system(command), 0);
	snapshot_free(snapshot);
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
	rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_recursion),
		cmocka_unit_test(test_traceback_fingerprint),
		cmocka_unit_test(test_function),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_like_tracemalloc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
