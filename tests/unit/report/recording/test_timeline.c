/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>

#include "cmd/time/timeline_text.h"
#include "recordings.h"

#define HOSTILE "<script>alert(1)</script>\"&\x1b[31m\n.py"

static int64_t one(unsigned int line, unsigned int at)
{
	(void)line;
	(void)at;
	return 1;
}

/* Two lines at three moments; the first has a name that wants to be more than one. */
static char *printed(int (*print)(const void *, FILE *), int ascii)
{
	struct series_figures figures[2][3] = {{{1024, 1, 5000, 5, 0, NULL},
						{2048, 2, 6000, 6, 0, NULL},
						{4096, 4, 7000, 7, 0, NULL}},
					       {{0, 0, 10, 1, 0, NULL},
						{0, 0, 20, 2, 0, NULL},
						{1 << 20, 1, 1 << 20, 3, 0, NULL}}};
	struct series_line lines[] = {
		{.filename = (char *)HOSTILE, .function = (char *)"", .line = 7, .at = figures[0]},
		{.filename = (char *)"b.py", .function = (char *)"f", .at = figures[1]}};
	struct series_moment moments[3] = {0};
	struct series series = {.moments = moments,
				.moment_count = 3,
				.snapshots = 3,
				.lines = lines,
				.line_count = 2,
				.allocated_known = 1,
				.last = recording_state(one, 1, 0)};
	struct timeline timeline = {
		.series = &series, .name = "<i>.rec", .by = GROUP_LINENO, .ascii = ascii};
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	for (int i = 0; i < 3; i++) {
		moments[i].time = (struct recording_moment){.since_ns = (uint64_t)i * 1000000000,
							    .realtime_ns = RECORDING_BEGIN,
							    .memory_left = i ? 100 : UINT64_MAX};
		moments[i].total.size = figures[0][i].size + figures[1][i].size;
		moments[i].rss_bytes = 1 << 21;
	}
	strcpy(series.last->meta.name, "<b>&");
	assert_int_equal(print(&timeline, out), 0);
	fclose(out);
	snapshot_free(series.last);
	return text;
}

/* Names of the traced process are text: no element, no escape sequence. */
static void test_hostile_names(void **state)
{
	char *html = printed(timeline_html, 0), *text = printed(timeline_text, 0);

	(void)state;
	assert_null(strstr(html, "<script"));
	assert_null(strstr(html, "<i>"));
	assert_null(strstr(html, "<b>"));
	assert_null(strchr(html, '\x1b'));
	assert_non_null(strstr(html, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;\\x1b[31m"));
	assert_non_null(strstr(html, "default-src 'none'"));
	assert_null(strchr(text, '\x1b'));
	assert_non_null(strstr(text, "\\x1b[31m\\x0a.py:7\n"));
	free(html);
	free(text);
}

static void test_text(void **state)
{
	char *text = printed(timeline_text, 0), *plain = printed(timeline_text, 1);

	(void)state;
	assert_non_null(strstr(text, "  ▂▄█      4096 B (+3072 B; at most 4096 B)  <script>"));
	assert_non_null(
		strstr(text, "    █    1024 KiB (+1024 KiB; at most 1024 KiB)  b.py:0 in f\n"));
	/* The one that held more comes first. */
	assert_true(strstr(text, "b.py") < strstr(text, "<script>"));
	assert_non_null(strstr(plain, "  :=#      4096 B"));
	free(text);
	free(plain);
}

static void test_json(void **state)
{
	char *text = printed(timeline_json, 0);
	json_t *root = json_loads(text, 0, NULL), *line;

	(void)state;
	assert_non_null(root);
	line = json_array_get(json_object_get(root, "lines"), 1);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(line, "size"), 2)),
			 4096);
	assert_true(json_is_null(json_array_get(json_object_get(root, "memory_left"), 0)));
	assert_int_equal(
		json_integer_value(json_array_get(json_object_get(root, "memory_left"), 1)), 100);
	assert_string_equal(
		json_string_value(json_object_get(
			json_array_get(json_object_get(line, "traceback"), 0), "filename")),
		HOSTILE);
	json_decref(root);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
