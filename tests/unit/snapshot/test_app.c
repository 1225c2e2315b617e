/* SPDX-License-Identifier: Apache-2.0 */
/* Which frames belong to the application, and what is charged to them. */
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
#include "snapshot/group/filter.h"
#include "snapshot/group/group.h"
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

#define JSON_PY  "/usr/lib/python3.11/json/decoder.py"
#define FLASK_PY "/srv/venv/lib/python3.11/site-packages/flask/app.py"
#define APP_PY   "/srv/shop/app.py"

static const struct app app_default = {.asked = 1};

static void rank_is(const struct app *app, const char *name, int rank)
{
	struct snapshot *snapshot;
	struct builder builder;
	struct app_run run;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({name, "f", 1}), 0, 0, 1, 1), 0);
	snapshot = builder_finish(&builder);
	assert_int_equal(app_run_begin(&run, app, snapshot), 0);
	for (int twice = 0; twice < 2; twice++)
		if (app_run_rank(&run, &snapshot->frames[0]) != rank)
			fail_msg("%s is not of rank %d", name, rank);
	app_run_end(&run);
	snapshot_free(snapshot);
}

static void test_ranks(void **state)
{
	static const struct {
		const char *name;
		int rank;
	} cases[] = {
		{"/usr/lib/python3.11/json/decoder.py", APP_NOT},
		{"/usr/lib/python3/dist-packages/apt/cache.py", APP_NOT},
		{"/usr/local/lib/python3.12/asyncio/events.py", APP_NOT},
		{"/usr/lib64/python3.9/os.py", APP_NOT},
		{"/home/web/.pyenv/versions/3.13.0/lib/python3.13/re/__init__.py", APP_NOT},
		{"/opt/py/lib/python3.13t/threading.py", APP_NOT},
		{"/usr/lib/python311.zip/json/decoder.py", APP_NOT},
		{FLASK_PY, APP_NOT},
		{"venv/lib/python3.11/site-packages/x.py", APP_NOT},
		{"<frozen importlib._bootstrap>", APP_NOT},
		{"<unknown>", APP_NOT},
		{APP_PY, APP_FILE},
		{"app.py", APP_FILE},
		{"./app.py", APP_FILE},
		{"/usr/bin/hg", APP_FILE},
		{"/usr/src/app/main.py", APP_FILE},
		{"/usr/lib/calibre/calibre/main.py", APP_FILE},
		{"/srv/lib/pythonic/main.py", APP_FILE},
		{"/srv/lib/python3.py", APP_FILE},
		{"/srv/templates/index.html", APP_FILE},
		{"/tmp/ipykernel_12/345.py", APP_FILE},
		{"<ipython-input-1-c0ffee>", APP_FILE},
		{"<command-4711>", APP_FILE},
		{"", APP_FILE},
		{"<string>", APP_NO_FILE},
		{"<attrs generated init shop.Order>", APP_NO_FILE},
		{"<stdin>", APP_NO_FILE},
		{"/usr/bin/python3.11", APP_NOT},
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", APP_NOT},
		{"/srv/shop/_fast.cpython-311-x86_64-linux-gnu.so", APP_NOT},
		{"[vdso]", APP_NOT},
		{"/usr/include/c++/12/bits/new_allocator.h", APP_NOT},
		{"./malloc/malloc.c", APP_NOT},
		{"../../../glib/gmem.c", APP_NOT},
		{"/rustc/90b35a6239c3/library/alloc/src/alloc.rs", APP_NOT},
		{"/srv/shop/fast.c", APP_NATIVE},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		rank_is(&app_default, cases[i].name, cases[i].rank);
}

/*
 * A file named by the user belongs to the application, whatever and wherever it is; no other does.
 */
static void test_mine(void **state)
{
	struct app app = {0};
	(void)state;

	assert_int_equal(app_add(&app, "*/flask/*"), 0);
	assert_int_equal(app_add(&app, "<string>"), 0);
	rank_is(&app, FLASK_PY, APP_FILE);
	rank_is(&app, "<string>", APP_FILE);
	rank_is(&app, "/srv/shop/fast.c", APP_NOT);
	rank_is(&app, APP_PY, APP_NOT);
	app_free(&app);
}

/* Blocks of 1, 2, 4 ... bytes: a sum shows which blocks it contains. */
static int setup(void **state)
{
	struct builder builder;

	if (builder_begin(&builder))
		return -1;
	builder.snapshot->meta = (struct snapshot_meta){.pid = 1,
							.name = "shop",
							.traceback_limit = 3,
							.mode = "exact",
							.moment = "running"};
	/* Two library calls from one line; a recursion of the application. */
	snapshot_add(&builder, FRAMES({JSON_PY, "d", 9}, {APP_PY, "get", 7}, {FLASK_PY, "run", 3}),
		     0, 0, 1, 1);
	snapshot_add(&builder, FRAMES({FLASK_PY, "g", 5}, {APP_PY, "get", 7}, {FLASK_PY, "run", 3}),
		     9, 0, 2, 1);
	snapshot_add(&builder, FRAMES({APP_PY, "f", 8}, {APP_PY, "f", 8}, {APP_PY, "get", 7}), 0, 0,
		     4, 1);
	/* Generated for a class of the application by a library; for a class of a library. */
	snapshot_add(&builder, FRAMES({"<string>", "__init__", 2}, {APP_PY, "get", 7}), 0, 0, 8, 1);
	snapshot_add(&builder, FRAMES({"<string>", "__init__", 2}, {FLASK_PY, "run", 3}), 0, 0, 16,
		     1);
	/* Tracebacks without an application frame: one complete, one truncated. */
	snapshot_add(&builder, FRAMES({JSON_PY, "d", 9}, {FLASK_PY, "run", 3}), 0, 0, 32, 1);
	snapshot_add(&builder,
		     FRAMES({JSON_PY, "d", 9}, {FLASK_PY, "run", 3}, {FLASK_PY, "run", 3}), 4, 0,
		     64, 1);
	*state = builder_finish(&builder);
	return 0;
}

static int teardown(void **state)
{
	snapshot_free(*state);
	return 0;
}

/*
 * Compares the sizes of the entries, and whether they are outside. where[] is their file and line:
 * "name:line".
 */
static void charged(const struct snapshot *snapshot, const struct statistics_opts *opts,
		    const char *wanted)
{
	struct statistics statistics;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(statistics_compute(snapshot, opts, &statistics), 0);
	for (size_t i = 0; i < statistics.count; i++) {
		const struct statistic *entry = &statistics.entries[i];
		uint32_t nframe;
		const struct snapshot_frame *frames = statistic_frames(entry, opts->by, &nframe);
		const char *name = strings_get(snapshot->strings, frames->filename);
		const char *base = strrchr(name, '/');

		fprintf(out, "%s%s:%u/%u=%u%s", i ? " " : "", base ? base + 1 : name, frames->line,
			nframe, (unsigned)entry->size, entry->outside ? "!" : "");
	}
	fprintf(out, "; %u outside, %u cut, %u", (unsigned)statistics.parts[PART_OUTSIDE].size,
		(unsigned)statistics.parts[PART_OUTSIDE_CUT].size, (unsigned)statistics.total_size);
	statistics_free(&statistics);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
}

static void test_charged(void **state)
{
	struct filters filters = {0};

	charged(*state, &(struct statistics_opts){.by = GROUP_LINENO},
		"decoder.py:9/1=97 <string>:2/1=24 app.py:8/1=4 app.py:5/1=2; 0 outside, 0 cut, "
		"127");
	charged(*state, &(struct statistics_opts){.by = GROUP_LINENO, .app = &app_default},
		"decoder.py:9/1=96! <string>:2/1=16! app.py:7/1=11 app.py:8/1=4; 112 outside, 64 "
		"cut, 127");
	charged(*state, &(struct statistics_opts){.by = GROUP_FILENAME, .app = &app_default},
		"decoder.py:0/1=96! <string>:0/1=16! app.py:0/1=15; 112 outside, 64 cut, 127");
	/* Tracebacks that are the same from the first application frame on are merged. */
	charged(*state, &(struct statistics_opts){.by = GROUP_TRACEBACK, .app = &app_default},
		"decoder.py:9/3=64! decoder.py:9/2=32! <string>:2/2=16! app.py:7/1=8 app.py:8/3=4 "
		"app.py:7/2=3; 112 outside, 64 cut, 127");
	/* Filters match the same frames as without an application. */
	assert_int_equal(filters_add_file(&filters, 1, "*/json/*"), 0);
	charged(*state,
		&(struct statistics_opts){
			.by = GROUP_LINENO, .app = &app_default, .filters = &filters},
		"decoder.py:9/1=96! app.py:7/1=1; 96 outside, 64 cut, 97");
	filters_free(&filters);
	charged(*state,
		&(struct statistics_opts){
			.by = GROUP_FILENAME, .app = &app_default, .cumulative = 1},
		"decoder.py:0/1=96! app.py:0/1=23 <string>:0/1=16!; 112 outside, 64 cut, 127");
}

/* A program that is not a file is the application, provided that the traceback is complete. */
static void test_without_file(void **state)
{
	const struct frame_text *frames =
		FRAMES({JSON_PY, "d", 9}, {"<string>", "f", 3}, {"<string>", "<module>", 4});
	struct snapshot *snapshot;
	struct builder builder;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	snapshot_add(&builder, frames, 0, 0, 10, 1);
	snapshot_add(&builder, frames, 9, 0, 1, 1); /* its callers were not kept */
	snapshot = builder_finish(&builder);
	charged(snapshot, &(struct statistics_opts){.by = GROUP_LINENO, .app = &app_default},
		"<string>:3/1=10 decoder.py:9/1=1!; 1 outside, 1 cut, 11");
	charged(snapshot,
		&(struct statistics_opts){.by = GROUP_LINENO, .app = &app_default, .cumulative = 1},
		"<string>:4/1=10 <string>:3/1=10 decoder.py:9/1=1!; 1 outside, 1 cut, 11");
	snapshot_free(snapshot);
}

/* The old snapshot's strings have other ids; its application is determined with those ids. */
static void test_compare(void **state)
{
	const struct statistics_opts opts = {.by = GROUP_LINENO, .app = &app_default};
	struct statistics statistics;
	struct snapshot *old;
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	snapshot_add(&builder, FRAMES({FLASK_PY, "g", 5}, {APP_PY, "get", 7}), 0, 0, 10, 1);
	snapshot_add(&builder, FRAMES({JSON_PY, "d", 9}), 0, 0, 1000, 1);
	old = builder_finish(&builder);
	assert_int_equal(statistics_compare(*state, old, &opts, &statistics), 0);
	assert_int_equal(statistics.count, 4);
	assert_int_equal(statistics.entries[0].old_size, 1000); /* decoder.py */
	assert_int_equal(statistics.entries[0].outside, 1);
	assert_int_equal(statistics.entries[3].size, 11); /* app.py:7 */
	assert_int_equal(statistics.entries[3].old_size, 10);
	assert_int_equal(statistics.parts[PART_OUTSIDE].size, 112);
	assert_int_equal(statistics.old_parts[PART_OUTSIDE].size, 1000);
	assert_int_equal(statistics.old_parts[PART_OUTSIDE_CUT].size, 0);
	statistics_free(&statistics);
	snapshot_free(old);
}

/* The parts of a sample are estimates, as the totals are. */
static void test_sampled(void **state)
{
	const struct statistics_opts opts = {.by = GROUP_LINENO, .app = &app_default};
	struct statistics statistics;
	struct snapshot *snapshot = *state;
	uint64_t sum = 0;

	snapshot->meta.sample_bytes = 64;
	assert_int_equal(statistics_compute(snapshot, &opts, &statistics), 0);
	for (size_t i = 0; i < statistics.count; i++)
		sum += statistics.entries[i].outside ? statistics.entries[i].size : 0;
	assert_int_equal(statistics.parts[PART_OUTSIDE].size, sum);
	assert_true(sum > 112);
	assert_true(statistics.parts[PART_OUTSIDE].error.size > 0);
	statistics_free(&statistics);
}

/* For the other formats: tracebacks begin at the application's frame. */
static void test_select(void **state)
{
	struct snapshot *chosen;

	assert_int_equal(snapshot_select(*state, NULL, NULL, &app_default, 1, &chosen), 0);
	charged(chosen, &(struct statistics_opts){.by = GROUP_TRACEBACK},
		"decoder.py:9/3=64 decoder.py:9/2=32 <string>:2/2=16 app.py:7/1=8 app.py:8/3=4 "
		"app.py:7/2=3; 0 outside, 0 cut, 127");
	for (size_t i = 0; i < chosen->traceback_count; i++) {
		const struct snapshot_traceback *traceback = &chosen->tracebacks[i];

		/* Of 9 frames 3 were kept, and 2 of these remain. */
		assert_int_equal(traceback->total - traceback->nframe,
				 chosen->traces[i].bytes == 2    ? 6
				 : chosen->traces[i].bytes == 64 ? 1
								 : 0);
	}
	snapshot_free(chosen);
}

/* The caller frees the result. */
static char *report(const struct snapshot *snapshot, const struct report_opts *opts,
		    int (*write)(const struct snapshot *, const struct report_opts *, FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(write(snapshot, opts, out), 0);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void test_text(void **state)
{
	struct snapshot *snapshot = *state;
	char *text =
		report(snapshot, &(struct report_opts){.by = GROUP_LINENO, .app = &app_default},
		       report_text);

	contains(text, "All 4 lines by size, at the most recent frame of the application\n");
	contains(text, "decoder.py:9: size=96 B, count=2, average=48 B, outside the application\n");
	contains(text, "app.py:7: size=11 B, count=3, average=4 B\n");
	contains(text,
		 "Without a frame of the application: size=112 B, count=3; of these size=64 B, "
		 "count=1 in tracebacks of more than the 3 frames kept (tracer -n N keeps more)\n");
	free(text);
	text = report(snapshot, &(struct report_opts){.by = GROUP_TRACEBACK, .app = &app_default},
		      report_text);
	contains(text, APP_PY ":7: size=3 B, count=2, average=2 B\n    " APP_PY
			      ":7 in get\n    " FLASK_PY ":3 in run\n");
	free(text);
	snapshot->meta.traceback_limit = 1;
	text = report(snapshot, &(struct report_opts){.by = GROUP_LINENO, .app = &app_default},
		      report_text);
	contains(text,
		 "Only one frame of each traceback is kept: a block is charged to the application "
		 "only if that frame is the application's (tracer -n N keeps more)\n");
	free(text);
}

static void test_json(void **state)
{
	char *text = report(*state, &(struct report_opts){.by = GROUP_LINENO, .app = &app_default},
			    report_json);
	json_t *root = json_loads(text, 0, NULL), *app = json_object_get(root, "app"), *entry;
	size_t i;

	assert_non_null(app);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(app, "outside"), "size")), 112);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(app, "outside_cut"), "count")),
		1);
	json_array_foreach(json_object_get(root, "statistics"), i, entry)
		assert_int_equal(json_is_true(json_object_get(entry, "app")), i > 1);
	json_decref(root);
	free(text);
	text = report(*state, &(struct report_opts){.by = GROUP_LINENO}, report_json);
	assert_null(strstr(text, "\"app\""));
	free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_mine),
		TEST(test_charged),
		TEST(test_compare),
		cmocka_unit_test(test_without_file),
		TEST(test_sampled),
		TEST(test_select),
		TEST(test_text),
		TEST(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
