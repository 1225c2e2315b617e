/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of several processes: text, JSON, CSV and folded stacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/export/exporter.h"
#include "report/pprof/pprof.h"
#include "report/report.h"
#include "report/tracemalloc/snapshot_file.h"
#include "snapshot_parts.h"

/* The caller frees the result. */
static char *report(const struct snapshot *snapshot, enum group_by by, size_t top,
		    int (*write)(const struct snapshot *, const struct report_opts *, FILE *))
{
	const struct report_opts opts = {.by = by, .top = top};
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
		fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static void test_text(void **state)
{
	char *text = report(*state, GROUP_LINENO, 2, report_text);

	contains(text, "tracer: 3 processes, census mode, ");
	contains(text, "Top 2 processes of 3 by size\n");
	contains(text,
		 "       11  web               web-2                      1501 B           6  "
		 "census   killed by signal 9\n");
	contains(text, "  1 other: size=1200 B, count=3\n");
	contains(text, "  b.py:3: size=3003 B, count=3, average=1001 B, processes=3\n");
	contains(text, "  PID 10 (web): coverage 90.0 %\n");
	contains(text, "  PID 11 (web): its heap was not read\n");
	assert_null(strstr(text, "  PID 12 ("));
	assert_null(strchr(text, '\033'));
	free(text);
	text = report(*state, GROUP_COMM, 0, report_text);
	contains(text, "All 2 commands by size\n  web: size=2701 B, count=9, average=300 B, "
		       "processes=2\n");
	free(text);
	text = report(*state, GROUP_CONTAINER, 0, report_text);
	contains(text, "  (in no container): size=1202 B, count=3, average=401 B, processes=1\n");
	free(text);
}

/* What a forked process allocates before it has its probes is told by number. */
static void test_forked(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *web = &snapshot->processes[0], was;
	char *text;

	while (web->pid != 10)
		web++;
	was = *web;
	web->parent = 9;
	web->coverage.new_blocks = 900;
	web->coverage.seen_blocks = 817;
	text = report(snapshot, GROUP_LINENO, 2, report_text);
	contains(text, "  PID 10 (web): coverage 90.7 %: 83 small blocks are in no line, from "
		       "between the fork and its probes\n");
	free(text);
	*web = was;
}

static void test_json(void **state)
{
	char *text = report(*state, GROUP_PROCESS, 0, report_json);
	json_t *root = json_loads(text, 0, NULL), *entry, *process;

	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "by")), "process");
	assert_true(json_is_null(json_object_get(root, "pid")));
	entry = json_array_get(json_object_get(root, "statistics"), 0);
	assert_int_equal(json_integer_value(json_object_get(entry, "pid")), 11);
	assert_string_equal(json_string_value(json_object_get(entry, "comm")), "web");
	assert_string_equal(json_string_value(json_object_get(entry, "container")), "web-2");
	assert_int_equal(json_integer_value(json_object_get(entry, "size")), 1501);
	assert_int_equal(json_integer_value(json_object_get(entry, "count")), 6);
	assert_int_equal(json_array_size(json_object_get(root, "processes")), PARTS);
	process = json_array_get(json_object_get(root, "processes"), 0);
	assert_int_equal(json_integer_value(json_object_get(process, "wait_status")), 9);
	assert_int_equal(json_integer_value(json_object_get(process, "parent")), 10);
	assert_int_equal(json_integer_value(json_object_get(process, "size")), 1501);
	process = json_array_get(json_object_get(root, "processes"), 2);
	assert_true(json_is_null(json_object_get(process, "wait_status")));
	json_decref(root);
	free(text);
}

static void test_csv(void **state)
{
	char *text = report(*state, GROUP_PROCESS, 1, report_csv);

	assert_string_equal(text,
			    "pid,comm,container,size,count,processes\r\n11,web,web-2,1501,6,1\r\n");
	free(text);
	text = report(*state, GROUP_LINENO, 1, report_csv);
	assert_string_equal(text, "filename,lineno,size,count,processes\r\nb.py,3,3003,3,3\r\n");
	free(text);
}

static void test_folded(void **state)
{
	static const char expected[] = "web (10);h (b.py:3) 1000\n"
				       "web (10);g (m.py:2);f (a.py:1) 200\n"
				       "web (11);h (b.py:3) 1001\n"
				       "web (11);g (m.py:2);f (a.py:1) 500\n"
				       "job\\x1b[31m (12);h (b.py:3) 1002\n"
				       "job\\x1b[31m (12);g (m.py:2);f (a.py:1) 200\n";
	char path[] = "/tmp/test_processes.XXXXXX", text[1024] = "";
	int fd = mkstemp(path);
	struct outfile *file;

	assert_true(fd >= 0);
	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(
		exporter_write(&export_folded, *state, NULL, &(struct export_opts){0}, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	close(fd);
	FILE *in = fopen(path, "r");
	assert_non_null(in);
	assert_true(fread(text, 1, sizeof(text) - 1, in) > 0);
	fclose(in);
	unlink(path);
	assert_string_equal(text, expected);
}

/* The reasons of blocks at <unknown>, summed over the processes. */
static void test_unknown(void **state)
{
	struct snapshot *snapshot = *state;
	char *text = report(snapshot, GROUP_LINENO, 0, report_text);

	assert_non_null(strstr(
		text,
		"  at <unknown>: 2 blocks (7 B) without a Python frame (the interpreter's start, "
		"threads of C); 4 blocks (40 B) whose frame could not be read\n"));
	free(text);
	text = report(snapshot, GROUP_LINENO, 0, report_json);
	assert_non_null(strstr(text, "\"unknown\": {\"no_frame\": {\"size\": 7, \"count\": 2}, "
				     "\"no_code\": {\"size\": 40, \"count\": 4}}"));
	free(text);
}

/*
 * Blocks that the second process inherited from the first are reported for the total and for the
 * process, and can be left out.
 */
static void test_inherited(void **state)
{
	const struct filters none = {.no_inherited = 1};
	struct statistics statistics;
	struct snapshot *snapshot = *state, *chosen;
	char *text;

	text = report(snapshot, GROUP_LINENO, 0, report_json);
	assert_non_null(strstr(
		text, "\"total\": {\"size\": 3903, \"count\": 12, \"inherited\": {\"size\": 0, "
		      "\"count\": 0}}"));
	free(text);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].process == 1 && snapshot->traces[i].bytes == 100)
			snapshot->traces[i].flags = SNAPSHOT_INHERITED;
	text = report(snapshot, GROUP_LINENO, 0, report_text);
	assert_non_null(strstr(
		text, "Total: size=3903 B, count=12; inherited by forked processes: size=500 B, "
		      "count=5 (--no-inherited excludes it)\n"));
	assert_non_null(strstr(text, "killed by signal 9, 500 B inherited from PID 10\n"));
	free(text);
	text = report(snapshot, GROUP_LINENO, 0, report_json);
	assert_non_null(strstr(text, "\"inherited\": {\"size\": 500, \"count\": 5}}"));
	assert_non_null(strstr(
		text,
		"\"inherited\": {\"size\": 500, \"count\": 5}, \"state\": \"killed by signal 9\""));
	free(text);
	assert_int_equal(
		statistics_compute(snapshot,
				   &(struct statistics_opts){.by = GROUP_LINENO, .filters = &none},
				   &statistics),
		0);
	assert_int_equal(statistics.total_size, 3403);
	assert_int_equal(statistics.parts[PART_INHERITED].size, 0);
	statistics_free(&statistics);
	assert_int_equal(snapshot_select(snapshot, NULL, &none, NULL, 1, &chosen), 0);
	assert_int_equal(chosen->trace_count, snapshot->trace_count - 1);
	snapshot_free(chosen);
	/* In a sample it is an estimate, as the total is. */
	for (size_t i = 0; i < snapshot->process_count; i++)
		snapshot->processes[i].sample_bytes = 100;
	snapshot->meta.sample_bytes = 100;
	text = report(snapshot, GROUP_LINENO, 0, report_text);
	assert_non_null(strstr(text, "inherited by forked processes: size=~791 B"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_inherited), TEST(test_unknown), TEST(test_text),   TEST(test_forked),
		TEST(test_json),      TEST(test_csv),     TEST(test_folded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
