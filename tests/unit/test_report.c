/* SPDX-License-Identifier: Apache-2.0 */
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
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static int setup(void **state)
{
	struct builder builder;

	if (builder_begin(&builder))
		return -1;
	builder.snapshot->meta = (struct snapshot_meta){.pid = 1234,
							.name = "py\033[31m",
							.python_version = 0x030b07f0,
							.traceback_limit = 16,
							.mode = "exact",
							.moment = "running",
							.duration_ns = 12345678901,
							.peak_bytes = 2097152};
	snapshot_add(&builder, FRAMES({"app.py", "f", 12}, {"main.py", "<module>", 3}), 5, 0, 1049,
		     1000);
	snapshot_add(&builder, FRAMES({"b\nad.py", "g", 1}), 1, 0, 10, 1);
	snapshot_add(&builder, FRAMES({"c\xed\xb3\xbf\xff.py", "h", 2}), 1, 0, 5, 1);
	*state = builder_finish(&builder);
	return 0;
}

static int teardown(void **state)
{
	snapshot_free(*state);
	return 0;
}

/* Caller frees. */
static char *report(const struct snapshot *snapshot, struct report_opts opts,
		    int (*write)(const struct snapshot *, const struct report_opts *, FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(write(snapshot, &opts, out), 0);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in:\n%s", part, text);
}

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
		assert_string_equal(report_size(out, cases[i].bytes), cases[i].text);
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

/* A line says how many of its blocks are of rounded sizes, in every format. */
static void test_rounded(void **state)
{
	struct report_opts opts = {.by = GROUP_LINENO};
	struct snapshot *snapshot = *state;
	char *text;

	snapshot->meta.rounded_blocks = 1000;
	text = report(snapshot, opts, report_csv); /* a file that does not say which they are */
	lacks(text, "rounded");
	free(text);
	snapshot->traces[0].flags = SNAPSHOT_ROUNDED;
	text = report(snapshot, opts, report_text);
	contains(text, "  app.py:12: size=1024 KiB, count=1000, average=1049 B, rounded=1000\n");
	contains(text, "average=10 B\n");
	contains(text,
		 "sizes known only as rounded up by the allocator, by at most 15 bytes: of 1,000 "
		 "blocks (rounded=... in their lines)\n");
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
	snapshot->meta.sample_bytes = 1049; /* a block stands for 1.58 */
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

/* The report with one kind of loss. */
static char *report_lost(struct snapshot *snapshot, enum event_loss_kind kind, uint64_t count)
{
	memset(snapshot->meta.loss, 0, sizeof(snapshot->meta.loss));
	snapshot->meta.loss[kind] = count;
	return report(snapshot, (struct report_opts){.by = GROUP_LINENO, .top = 1}, report_text);
}

static void test_losses(void **state)
{
	struct snapshot *snapshot = *state;
	char *text = report_lost(snapshot, LOSS_FREE, 1234);

	contains(
		text,
		"lost events: 1,234: 1,234 frees (ring buffer full); live figures are upper bounds "
		"of what they count: ");
	free(text);
	text = report_lost(snapshot, LOSS_ALLOC, 1);
	contains(text,
		 "1 allocation of 0 B (ring buffer full); blocks of lost allocations are in no "
		 "line");
	lacks(text, "upper");
	contains(text, "; --sample or --overhead makes fewer events\n");
	free(text);
	snapshot->meta.sample_bytes = 4096;
	text = report_lost(snapshot, LOSS_ALLOC, 1);
	lacks(text, "--overhead");
	snapshot->meta.sample_bytes = 0;
	free(text);
	text = report_lost(snapshot, LOSS_REALLOC, 2);
	contains(
		text,
		"live figures are upper bounds of what they count: some blocks may be dead; blocks "
		"of lost");
	free(text);
	snapshot->meta.coverage_known = 1;
	text = report_lost(snapshot, LOSS_FREE, 1234);
	contains(text, "(ring buffer full); of small blocks only what the heap shows is live");
	lacks(text, "upper");
	snapshot->meta.coverage_known = 0;
	free(text);
	text = report_lost(snapshot, LOSS_REUSE, 1);
	contains(text,
		 "lost events: 1: 1 reuse of a dead object (ring buffer full); some objects stand "
		 "at the line");
	lacks(text, "bounds");
	free(text);
	text = report_lost(snapshot, LOSS_FRAME_FAULT, 2);
	contains(text, "lost events: none");
	contains(text, "tracebacks cut short by a page that was not resident: 2\n");
	lacks(text, "bounds");
	lacks(text, "ring buffer");
	free(text);
}

static void test_coverage(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text = report(snapshot, opts, report_text);

	contains(text, "coverage: not measured");
	contains(text, "older than the trace: blocks from before the attach are in no line (not "
		       "measured)");
	free(text);
	snapshot->meta.coverage_known = 1;
	snapshot->meta.coverage.new_blocks = 123456;
	snapshot->meta.coverage.seen_blocks = 123455;
	snapshot->meta.coverage.new_bytes = snapshot->meta.coverage.seen_bytes = 1000;
	snapshot->meta.coverage.old_blocks = 12;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "Not seen: 12 blocks (0 B) older than the trace; no event lost, 99.9 % of 123,456 "
		 "new small blocks traced\n");
	free(text);
	snapshot->meta.coverage.seen_blocks = 98 * 1234;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "\n  coverage: 97.9 % of the 123,456 small blocks (100.0 % of bytes) that are new "
		 "on the heap since the attach\n");
	contains(text, "\n  older than the trace: 12 blocks (0 B) on the heap are in no line\n");
	free(text);
}

/*
 * What is wrong with a trace is told in full, whatever it is; where nothing is, one line tells
 * that.
 */
static void test_well(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta, well;
	uint64_t *const faults[] = {
		&meta->loss[LOSS_FREE],
		&meta->loss[LOSS_NO_THREAD],
		&meta->coverage.pools_unreadable,
		&meta->coverage.large_new,
		&meta->frames_unknown,
		&meta->stacks_unknown,
		&meta->replaced,
		&meta->blocks_dropped,
		&meta->records_malformed,
		&meta->coverage.frozen_ns,
		&meta->readings_dropped,
		&meta->native.replaced,
	};
	const struct report_opts opts = {.by = GROUP_LINENO, .top = 1};

	meta->coverage_known = meta->from_start = 1;
	well = *meta;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		char *text = report(snapshot, opts, report_text);

		contains(text, "\nNot seen: no event lost\n");
		free(text);
		*faults[i] = 5;
		text = report(snapshot, opts, report_text);
		contains(text, "\nNot seen:\n  lost events: ");
		free(text);
		*meta = well;
	}
	meta->unread_ns = 200000000; /* there was no time for a last reading */
	char *text = report(snapshot, opts, report_text);

	contains(
		text,
		"\n  the heap was last read 200.0 ms before: small blocks that died since stand as "
		"live\n");
	free(text);
}

static void test_rss(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text = report(snapshot, opts, report_json);

	lacks(text, "rss");
	free(text);
	meta->rss_bytes = 352 << 20;
	text = report(snapshot, opts, report_json);
	contains(text, "\"rss\": 369098752, \"explained\": 1049015, \"");
	free(text);
	text = report(snapshot, opts, report_text);
	contains(text, "  RSS 352 MiB: 1024 KiB in this report; --layer all tells more\n");
	free(text);
	meta->coverage_known = meta->from_start = 1;
	meta->rss_age_ns = 510000000;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "no event lost; RSS 352 MiB, read 0.5 s before: 1024 KiB in this report; --layer");
	free(text);
	/* Blocks that nobody has touched take no memory. */
	meta->rss_bytes = 4096;
	meta->layers = 1u << EVENT_LAYER_NATIVE | 1u << EVENT_LAYER_MMAP;
	text = report(snapshot, opts, report_text);
	contains(text, "RSS 4096 B, read 0.5 s before: 4096 B in this report\n");
	free(text);
	/* What is left out is in no such sum. */
	opts.filters = &(struct filters){.no_inherited = 1};
	text = report(snapshot, opts, report_text);
	lacks(text, "RSS");
	free(text);
}

static void warns(const struct snapshot *snapshot, const char *sentence)
{
	char expected[400];
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);

	snprintf(expected, sizeof(expected), "Warning: %s\ntracer: ", sentence);
	if (strncmp(text, expected, strlen(expected)) != 0)
		fail_msg("\"%s\" is not the first line of:\n%s", sentence, text);
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	snprintf(expected, sizeof(expected), "\"warnings\": [\"%s\"], ", sentence);
	contains(text, expected);
	free(text);
}

static void warns_not(const struct snapshot *snapshot)
{
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);

	lacks(text, "Warning");
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	lacks(text, "warnings");
	free(text);
}

/*
 * What the interpreter itself says of its heap, and the trace does not have so, is said before the
 * figures.
 */
static void test_contradictions(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_coverage *counts = &snapshot->meta.coverage;

	snapshot->meta.coverage_known = 1;
	*counts = (struct snapshot_coverage){
		.large_seen = 1300, .large_new = 300, .large_blocks = 1300};
	counts->new_blocks = 10000;
	counts->seen_blocks = 9900;
	warns_not(snapshot);
	counts->large_seen = 25840;
	warns(snapshot,
	      "25840 blocks of more than 512 bytes stand as live, but the interpreter counts 1300 "
	      "in all: the others are dead, and their sizes too much");
	snprintf(snapshot->meta.mode, sizeof(snapshot->meta.mode), "census");
	warns(snapshot,
	      "25840 blocks of more than 512 bytes stand as live, but the interpreter counts 1300 "
	      "in all: the others are dead, and their sizes too much; --mode exact follows every "
	      "free");
	counts->large_seen = 2;
	warns(snapshot,
	      "the interpreter counts 300 blocks of more than 512 bytes more than at the start of "
	      "the trace, but only 2 are known to be of them: the others may be in no line");
	snapshot->meta.large_skipped = 1;
	warns_not(snapshot);
	counts->seen_blocks = 1000;
	warns(snapshot,
	      "of 10000 small blocks that are new on the heap only 1000 were seen: the others are "
	      "in no line");
	counts->seen_blocks = counts->new_blocks;
	counts->typed_blocks = 1000;
	counts->mistyped_blocks = 36;
	warns_not(snapshot);
	counts->mistyped_blocks = 37;
	warns(snapshot,
	      "of 1000 objects whose types tell their sizes 37 are of another size than was seen: "
	      "their blocks may stand at the lines of earlier ones");
	snapshot->meta.sample_bytes = 4096;
	warns_not(snapshot);
	snapshot->meta.ends_unseen = 1;
	warns(snapshot,
	      "the code of an allocator that the interpreter exports leads to no place that is "
	      "probed (--dry-run names it): what is allocated or freed through it may not be seen");
	snapshot->meta.ends_unseen = 0;
	snapshot->meta.reuse_unseen = 1;
	warns(snapshot,
	      "objects that are taken from free lists are not all seen: blocks may stand at the "
	      "lines of their earlier lives");
}

/* Nor is a figure reported without a word that rests on a heap which was not read. */
static void test_unread_warned(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;

	snprintf(meta->mode, sizeof(meta->mode), "census");
	meta->unread_ns = 20000000;
	warns_not(snapshot); /* it runs, and was read lately */
	meta->unread_ns = 412300000;
	snprintf(meta->moment, sizeof(meta->moment), "exited");
	warns(snapshot,
	      "the heap was not read before the end: small blocks that died since stand as live; "
	      "--mode exact follows every free");
	meta->coverage_known = 1;
	warns(snapshot,
	      "the heap was last read 412.3 ms before the end: small blocks that died since stand "
	      "as live; --mode exact follows every free");
	snprintf(meta->mode, sizeof(meta->mode), "growth");
	warns(snapshot,
	      "the heap was last read 412.3 ms before the end: pools that were given back since "
	      "stand as in use");
	meta->unread_ns = 20;
	warns_not(snapshot);
	snprintf(meta->mode, sizeof(meta->mode), "census");
	snprintf(meta->moment, sizeof(meta->moment), "running");
	meta->coverage_known = 0;
	meta->readings_dropped = 3;
	warns(snapshot,
	      "there was no memory to read the heap (--budget): small blocks that died since stand "
	      "as live; --mode exact follows every free");
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

/* What free lists hand out again may be unseen: the report says so, and only then. */
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
	contains(text, "Warning: objects that are taken from free lists are not all seen");
	free(text);
	text = report(snapshot, opts, report_json);
	contains(text, "\"reuse\": true");
	free(text);
}

/*
 * Pools are not objects, and memory that is mapped is not added to what lies in it: the report says
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
	contains(text, "not to be added up");
	contains(text,
		 "blocks of more than 512 bytes are not traced one by one (--large-blocks), their "
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
	contains(text, "mapped memory: not followed");
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
		TEST(test_losses),
		TEST(test_coverage),
		TEST(test_well),
		TEST(test_rss),
		TEST(test_contradictions),
		TEST(test_unread_warned),
		TEST(test_json),
		TEST(test_growth),
		TEST(test_reuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
