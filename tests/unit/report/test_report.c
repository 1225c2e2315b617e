/* SPDX-License-Identifier: Apache-2.0 */
/* Reports as text and JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"
#include "report_text.h"
#include "snapshots.h"
#include "util/size.h"

/* Values from tracemalloc._format_size(size, False). */
static void test_sizes(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{99, "99 B"},
		{10239, "10239 B"},
		{10240, "10.0 KiB"},
		{102348, "99.9 KiB"},
		{102400, "100 KiB"},
		{10485759, "10240 KiB"},
		{10485760, "10.0 MiB"},
		{1ull << 40, "1024 GiB"},
		{1ull << 62, "4194304 TiB"},
	};
	char out[32];
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(size_text(out, cases[i].bytes), cases[i].text);
}

static void test_text(void **state)
{
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text = report(*state, opts, report_text);

	contains(text, "tracer: py\\x1b[31m (PID 1234), CPython 3.11.7, exact mode, 12.3 s\n");
	contains(text, "Top 1 lines of 3 by size\n");
	contains(text, "  app.py:12: size=1024 KiB, count=1000, average=1049 B\n");
	contains(text, "  2 other: size=15 B, count=2, average=8 B\n");
	contains(text, "Total: size=1024 KiB, count=1002 (peak size=2048 KiB)\n");
	contains(text, "  lost events: none\n");
	lacks(text, "\033");
	free(text);
	snprintf(((struct snapshot *)*state)->meta.mode,
		 sizeof(((struct snapshot *)*state)->meta.mode), "census");
	text = report(*state, opts, report_text);
	contains(text, "(peak size at least 2048 KiB)\n");
	free(text);
	snprintf(((struct snapshot *)*state)->meta.mode,
		 sizeof(((struct snapshot *)*state)->meta.mode), "exact");
	opts.top = 0;
	text = report(*state, opts, report_text);
	contains(text, "  b\\x0aad.py:1: size=10 B");
	contains(text, "All 3 lines by size\n");
	lacks(text, " other");
	free(text);
	opts.color = 1;
	text = report(*state, opts, report_text);
	contains(text, "\033[1mAll 3 lines");
	free(text);
}

/* A line reports how many of its blocks have rounded sizes, in every format. */
static void test_rounded(void **state)
{
	struct report_opts opts = {.by = GROUP_LINENO};
	struct snapshot *snapshot = *state;
	char *text;

	snapshot->meta.rounded_blocks = 1000;
	text = report(snapshot, opts, report_csv); /* a file without the number of rounded blocks */
	lacks(text, "rounded");
	free(text);
	snapshot->traces[0].flags = SNAPSHOT_ROUNDED;
	text = report(snapshot, opts, report_text);
	contains(text, "  app.py:12: size=1024 KiB, count=1000, average=1049 B, rounded=1000\n");
	contains(text, "average=10 B\n");
	contains(text,
		 "sizes rounded up by the allocator, by at most 15 bytes: those of 1,000 blocks "
		 "(rounded=... in their lines)\n");
	free(text);
	text = report(snapshot, opts, report_json);
	contains(text, "\"size\": 1049000, \"count\": 1000, \"rounded\": 1000}");
	contains(text, "\"size\": 10, \"count\": 1}");
	free(text);
	text = report(snapshot, opts, report_csv);
	contains(text, "filename,lineno,size,count,rounded\r\napp.py,12,1049000,1000,1000\r\n");
	free(text);
	opts.by = GROUP_FILENAME;
	opts.cumulative = 1;
	text = report(snapshot, opts, report_csv);
	contains(text, "main.py,0,1049000,1000,1049000,1000,1000\r\n");
	free(text);
	opts.old = snapshot;
	text = report(snapshot, opts, report_csv);
	contains(text, "filename,lineno,size,size_diff,count,count_diff,once_size,once_size_diff,"
		       "once_count,once_count_diff,rounded\r\n");
	contains(text, "main.py,0,1049000,0,1000,0,1049000,0,1000,0,1000\r\n");
	free(text);
	opts.old = NULL;
	snapshot->meta.sample_bytes = 1049; /* a block represents 1.58 blocks */
	text = report(snapshot, opts, report_text);
	contains(text, "rounded=~1582\n");
	free(text);
}

static void test_text_groups(void **state)
{
	struct report_opts opts = {.by = GROUP_TRACEBACK, .top = 1};
	char *text = report(*state, opts, report_text);

	contains(text, "most recent frame first");
	contains(text, "  app.py:12: size=1024 KiB, count=1000, average=1049 B\n"
		       "    app.py:12 in f\n"
		       "    main.py:3 in <module>\n"
		       "    … 3 older frames not kept\n");
	free(text);
	opts = (struct report_opts){.by = GROUP_FILENAME, .cumulative = 1, .top = 2};
	text = report(*state, opts, report_text);
	contains(text, "cumulative (a block counts once for every file of its traceback)\n");
	contains(text, "  main.py:0: size=1024 KiB");
	contains(text, "  2 other\n"); /* their sum would count blocks twice */
	free(text);
	opts = (struct report_opts){.by = GROUP_TRACEBACK, .cumulative = 1};
	assert_int_equal(report_text(*state, &opts, stdout), -EINVAL);
	assert_int_equal(report_json(*state, &opts, stdout), -EINVAL);
}

static void test_json(void **state)
{
	struct report_opts opts = {.by = GROUP_TRACEBACK, .top = 1};
	struct snapshot *snapshot = *state;
	char *text = report(snapshot, opts, report_json);
	json_t *root = json_loads(text, 0, NULL), *entries, *frames;

	assert_non_null(root);
	assert_int_equal(json_integer_value(json_object_get(root, "traceback_limit")), 16);
	assert_string_equal(json_string_value(json_object_get(root, "group_by")), "traceback");
	assert_true(json_is_false(json_object_get(root, "cumulative")));
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(root, "total"), "size")),
		1049015);
	assert_int_equal(json_integer_value(json_object_get(root, "lost_events")), 0);
	assert_int_equal(json_integer_value(json_object_get(root, "pid")), 1234);
	assert_string_equal(json_string_value(json_object_get(root, "name")), "py\033[31m");
	assert_string_equal(json_string_value(json_object_get(root, "python")), "3.11.7");
	assert_true(json_is_null(json_object_get(root, "coverage")));
	assert_true(
		json_is_integer(json_object_get(json_object_get(root, "not_seen"), "lost_frees")));
	entries = json_object_get(root, "statistics");
	assert_int_equal(json_array_size(entries), 1);
	frames = json_object_get(json_array_get(entries, 0), "traceback");
	assert_int_equal(json_array_size(frames), 2);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(frames, 0), "filename")),
		"app.py");
	assert_int_equal(json_integer_value(json_object_get(json_array_get(frames, 1), "lineno")),
			 3);
	json_decref(root);
	free(text);
	snapshot->meta.coverage_known = 1;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	contains(text, "\"coverage\": {\"live_blocks\": 0");
	/* As json.dumps("c\udcff\udcff.py"): a lone surrogate, and a byte that is not UTF-8. */
	contains(text, "{\"filename\": \"c\\udcff\\udcff.py\", \"lineno\": 2}");
	contains(text, "\"b\\nad.py\"");
	free(text);
}

/* Reuse from free lists may be unseen: the report says so, and only then. */
static void test_reuse(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {.by = GROUP_LINENO};
	char *text = report(snapshot, opts, report_text);

	lacks(text, "free lists");
	free(text);
	text = report(snapshot, opts, report_json);
	lacks(text, "\"reuse\"");
	free(text);
	snapshot->meta.reuse_unseen = 1;
	text = report(snapshot, opts, report_text);
	contains(text, "Warning: not all objects that are taken from free lists are seen");
	free(text);
	text = report(snapshot, opts, report_json);
	contains(text, "\"reuse\": true");
	free(text);
}

/*
 * Pools are not objects, and mapped memory is not added to the blocks within it: the report says
 * both.
 */
static void test_growth(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {.by = GROUP_LINENO};
	char *text;

	snprintf(snapshot->meta.mode, sizeof(snapshot->meta.mode), "growth");
	snapshot->meta.layers = 1u << EVENT_LAYER_MMAP;
	snapshot->meta.large_skipped = 1;
	snapshot->meta.frames_slow = 3;
	snapshot->meta.pool_bytes = 16384;
	snapshot->meta.coverage_known = 1;
	snapshot->meta.coverage.new_blocks = snapshot->meta.coverage.live_blocks = 8;
	snapshot->meta.coverage.seen_blocks = 4;
	snapshot->meta.coverage.large_new = 1234;
	snapshot->layers[EVENT_LAYER_MMAP].traces =
		calloc(1, sizeof(*snapshot->layers[EVENT_LAYER_MMAP].traces));
	assert_non_null(snapshot->layers[EVENT_LAYER_MMAP].traces);
	snapshot->layers[EVENT_LAYER_MMAP].traces[0] =
		(struct snapshot_trace){.traceback = 0, .bytes = 8192, .count = 1};
	snapshot->layers[EVENT_LAYER_MMAP].trace_count = 1;
	text = report(snapshot, opts, report_text);
	contains(text, "growth mode");
	contains(text, "sizes are of whole pools (16.0 KiB each)");
	contains(text, "Total: size=1024 KiB, count=1002");
	contains(text, "Memory mapped (mmap, brk), all 1 lines by size\n");
	contains(text, "Total mapped: size=8192 B, count=1");
	contains(text, "do not add up the totals");
	contains(text, "native frames whose files took too long to read: 3\n");
	contains(text,
		 "blocks of more than 512 bytes are not traced individually (--large-blocks), "
		 "their "
		 "number grew by 1,234");
	contains(text, "50.0 % of the 8 pools");
	contains(text, "heap: 8 pools in use: 4 traced");
	free(text);
	text = report(snapshot, opts, report_json);
	contains(text, "\"total\": {\"size\": 1049015, \"count\": 1002}");
	contains(text, "\"mapped\": {\"total\": {\"size\": 8192, \"count\": 1}");
	contains(text, "\"pool_size\": 16384, \"large_blocks_traced\": false");
	free(text);
	snapshot->meta.layers = 0;
	text = report(snapshot, opts, report_text);
	contains(text, "mapped memory: not traced");
	lacks(text, "Total mapped");
	free(text);
	text = report(snapshot, opts, report_json);
	contains(text, "\"mapped\": null");
	free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		TEST(test_text),
		TEST(test_rounded),
		TEST(test_text_groups),
		TEST(test_json),
		TEST(test_growth),
		TEST(test_reuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
