/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of metrics and pages: whatever processes are called, a scraper can read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/agent/metrics.h"
#include "ranges.h"
#include "util/utf8.h"

static char *written(void (*write)(FILE *out, const struct figures *figures),
		     const struct figures *figures)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	write(out, figures);
	fclose(out);
	return text;
}

static void openmetrics(FILE *out, const struct figures *figures)
{
	metrics_write(out, figures, true);
}

static void prometheus(FILE *out, const struct figures *figures)
{
	metrics_write(out, figures, false);
}

static void test_texts(void **state)
{
	char out[FIGURE_TEXT + 1], name[10001];

	(void)state;
	for (int kind = 0; kind < 4; kind++)
		for (int tail = 0; tail < 2; tail++) {
			memset(name, kind == 0 ? 'a' : kind == 1 ? 0xff : 0x01, sizeof(name));
			for (size_t i = 0; kind == 3 && i < sizeof(name) - 3; i += 3)
				memcpy(name + i, "\xe2\x82\xac", 3);
			name[sizeof(name) - 1] = '\0';
			figure_text(name, tail, out);
			assert_uint_in_range(strlen(out), FIGURE_TEXT - 8, FIGURE_TEXT);
			assert_true(utf8_valid(out, strlen(out)));
			assert_null(strpbrk(out, "\x01\n\r"));
		}
	figure_text("/srv/app/main.py:12", true, out);
	assert_string_equal(out, "/srv/app/main.py:12");
	/* The end of a long path says more than its begin. */
	memset(name, 'd', sizeof(name));
	strcpy(name + sizeof(name) - 12, "/main.py:12");
	figure_text(name, true, out);
	assert_string_equal(out + strlen(out) - 11, "/main.py:12");
}

static void test_labels(void **state)
{
	struct figure_process process = {.pid = 7,
					 .is_traced = true,
					 .flags = SUMS_ALLOCATED,
					 .live_size = 12345678901.3,
					 .allocated = 20000000000};
	struct figure_line line = {.text = "a\"b\\c:1", .size = 5, .count = 1};
	struct figures figures = {.processes = &process,
				  .process_count = 1,
				  .lines = &line,
				  .line_count = 1,
				  .other_size = 9,
				  .other_lines = 3};

	(void)state;
	strcpy(process.name, "<i>\"x\"\\");
	char *text = written(prometheus, &figures);
	assert_non_null(strstr(text,
			       "tracer_process_live_bytes{pid=\"7\",name=\"<i>\\\"x\\\"\\\\\","
			       "layer=\"python\"} 12345678901\n"));
	assert_non_null(strstr(text, "\n# TYPE tracer_process_allocated_bytes_total counter\n"));
	assert_non_null(strstr(text, "tracer_line_live_bytes{line=\"a\\\"b\\\\c:1\"} 5\n"));
	assert_non_null(strstr(text, "tracer_line_live_bytes{line=\"other\"} 9\n"));
	assert_non_null(strstr(text, "tracer_other_lines 3\n"));
	assert_null(strstr(text, "# EOF"));
	free(text);
	text = written(openmetrics, &figures);
	assert_non_null(strstr(text, "\n# TYPE tracer_process_allocated_bytes counter\n"));
	assert_non_null(strstr(text, "layer=\"python\"} 20000000000\n"));
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	free(text);
	/* Estimates are too low until the heap was read once. */
	process.flags = SUMS_WINDOWS;
	text = written(prometheus, &figures);
	assert_null(strstr(text, "tracer_process_live_bytes{"));
	assert_null(strstr(text, "tracer_process_live_blocks{"));
	assert_non_null(strstr(text, "tracer_process_memory_bytes{pid"));
	free(text);
	process.flags = SUMS_WINDOWS | SUMS_WALKED;
	text = written(prometheus, &figures);
	assert_non_null(strstr(text, "layer=\"python\"} 12345678901\n"));
	free(text);
	text = written(index_write, &figures);
	assert_null(strstr(text, "<i>"));
	assert_non_null(strstr(text, "&lt;i&gt;&quot;x&quot;"));
	free(text);
}

/* Sums of each generation; what an interpreter does not count is missing. */
static void test_collectors(void **state)
{
	struct figure_process processes[2] = {
		{.pid = 7,
		 .is_traced = true,
		 .name = "a",
		 .collections = {.time_ns = 1,
				 .collectors = 1,
				 .flags = COLLECTIONS_TIMED,
				 .sums = {{10, 2, 1}, {5, 0, 0}, {0, 0, 3}, {1500000000, 0, 0}}}},
		{.pid = 8,
		 .is_traced = true,
		 .name = "b",
		 .collections = {.time_ns = 1, .collectors = 1, .off = 1, .sums = {{4, 0, 0}}}},
	};
	const struct figures figures = {.processes = processes, .process_count = 2};
	(void)state;
	char *text = written(prometheus, &figures);

	assert_non_null(strstr(text, "# TYPE tracer_process_gc_collections_total counter\n"
				     "tracer_process_gc_collections_total{pid=\"7\",name=\"a\","
				     "generation=\"0\"} 10\n"));
	assert_non_null(strstr(text, "tracer_process_gc_freed_objects_total{pid=\"7\",name=\"a\","
				     "generation=\"0\"} 5\n"));
	assert_non_null(strstr(text, "tracer_process_gc_uncollectable_objects_total{pid=\"7\","
				     "name=\"a\",generation=\"2\"} 3\n"));
	assert_non_null(strstr(text, "tracer_process_gc_seconds_total{pid=\"7\",name=\"a\","
				     "generation=\"0\"} 1.5\n"));
	assert_null(strstr(text, "tracer_process_gc_seconds_total{pid=\"8\""));
	assert_non_null(strstr(text, "tracer_process_gc_enabled{pid=\"7\",name=\"a\"} 1\n"));
	assert_non_null(strstr(text, "tracer_process_gc_enabled{pid=\"8\",name=\"b\"} 0\n"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_collectors),
		cmocka_unit_test(test_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
