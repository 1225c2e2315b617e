/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots with estimates from windows: the errors of lines and files, differences, reports in all
 * formats, files, merging. Two lines of one function allocate lists in turn, so that their sum is
 * better known than each of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <zlib.h>

#include "place.h"
#include "report/pprof/pprof.h"
#include "report/tracemalloc/snapshot_file.h"
#include "report_text.h"
#include "snapshot/estimate.h"
#include "snapshot/merge.h"
#include "snapshot/windowed.h"

#define WINDOWS        60
#define SECOND         1000000000ull
#define SAMPLED_BLOCKS 600
#define LISTS          6000
#define OLDER          400
#define UNSEEN         900
#define BYTES          56

/* Lists by three rows, in windows whose numbers differ; no window has shown any of the sets. */
static void calibrate_lists(struct calibrate_result *result)
{
	struct calibrate_stratum strata[] = {
		{.type = 1,
		 .class_bytes = 64,
		 .new_blocks = LISTS,
		 .new_bytes = LISTS * 64,
		 .old_blocks = OLDER,
		 .old_bytes = OLDER * 64},
		{.type = 2,
		 .class_bytes = 224,
		 .new_blocks = UNSEEN,
		 .new_bytes = UNSEEN * 224,
		 .old_blocks = 7,
		 .old_bytes = 7 * 224},
	};
	static struct calibrate_window windows[WINDOWS];
	static struct calibrate_sampled_block sampled_blocks[SAMPLED_BLOCKS];
	struct calibrate_input input = {.strata = strata,
					.stratum_count = 2,
					.windows = windows,
					.window_count = WINDOWS,
					.sampled_blocks = sampled_blocks,
					.row_count = 4};

	for (uint32_t i = 0; i < WINDOWS; i++) {
		windows[i] = (struct calibrate_window){.start_ns = i * SECOND,
						       .end_ns = i * SECOND + SECOND / 25,
						       .span_ns = SECOND};
		for (uint32_t k = 0; k < 4; k++)
			sampled_blocks[input.sampled_block_count++] =
				(struct calibrate_sampled_block){.window = i,
								 .row = k == 3 ? 2 : i % 7 < 4,
								 .alive = 1,
								 .inclusion = 0.04};
	}
	assert_int_equal(calibrate(&input, result), 0);
}

static struct snapshot *windowed_new(void)
{
	static const uint32_t lines[] = {12, 12, 30, 40};
	struct snapshot_trace rows[4] = {0};
	struct calibrate_result result;
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	calibrate_lists(&result);
	for (uint32_t i = 0; i < 4; i++) {
		/* Rows 0 and 1 are one line, called from two places. */
		struct snapshot_frame frames[2] = {{.line = lines[i]}, {.line = 50 + i}};
		struct strings *strings = builder.snapshot->strings;

		assert_int_equal(strings_intern(strings, "app.py", 6, &frames[0].filename), 0);
		assert_int_equal(strings_intern(strings, "f", 1, &frames[0].function), 0);
		frames[1].filename = frames[0].filename;
		frames[1].function = frames[0].function;
		assert_int_equal(builder_traceback(&builder, frames, 2, 2, &rows[i].traceback), 0);
		rows[i].bytes = BYTES;
	}
	assert_int_equal(windowed_add(&builder, rows, &result, 0), 0);
	calibrate_free(&result);
	struct snapshot_windows windows = builder.snapshot->meta.windows;
	builder.snapshot->meta = (struct snapshot_meta){.pid = 1234,
							.name = "python3",
							.python_version = 0x030b07f0,
							.traceback_limit = 2,
							.mode = "census",
							.moment = "running",
							.duration_ns = 60 * SECOND,
							.windows = windows};
	return builder_finish(&builder);
}

static struct statistics grouped(const struct snapshot *snapshot, enum group_by by)
{
	const struct statistics_opts opts = {.by = by};
	struct statistics out;

	assert_int_equal(statistics_compute(snapshot, &opts, &out), 0);
	return out;
}

static void test_errors(void **state)
{
	struct snapshot *snapshot = windowed_new();
	struct statistics tracebacks = grouped(snapshot, GROUP_TRACEBACK),
			  lines = grouped(snapshot, GROUP_LINENO);
	uint64_t sum = 0;
	(void)state;

	assert_true(lines.sampled);
	assert_int_equal(tracebacks.count, 3);
	assert_int_equal(lines.count, 2);
	assert_int_equal(lines.total_count, LISTS);
	assert_int_equal(lines.total_size, LISTS * BYTES);
	/* Line 12 has three quarters in each window; only its two tracebacks vary. */
	assert_int_equal(lines.entries[0].count, LISTS * 3 / 4);
	assert_int_equal(lines.entries[0].size, LISTS * 3 / 4 * BYTES);
	for (size_t i = 0; i < tracebacks.count; i++)
		sum += tracebacks.entries[i].count;
	assert_int_equal(sum, LISTS);
	assert_true(tracebacks.entries[0].error.count > 150);
	assert_true(tracebacks.entries[1].error.count > 150);
	/* Only what no window has shown is uncertain of it: 1 in 61 of what was not seen. */
	double unseen = LISTS * 0.75 * (1 - 240.0 / LISTS) / 61;
	assert_true(fabs((double)lines.entries[0].error.count - unseen) <= 2);
	assert_true(fabs((double)lines.entries[0].error.size - unseen * BYTES) <= 2 * BYTES);
	statistics_free(&tracebacks);
	statistics_free(&lines);
	snapshot_free(snapshot);
}

static void test_text(void **state)
{
	struct snapshot *snapshot = windowed_new();
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	(void)state;

	contains(text, "CPython 3.11.7, census mode, in windows, 60.0 s\n");
	contains(text, "  app.py:12: size=~246 KiB ± 3969 B, count=~4500 ± 71, average=56 B\n");
	contains(text, "Total: size=328 KiB, count=6000\n");
	contains(text,
		 "Windows: 60, probes on for 4.0 % of the time; they have shown 3.5 % of 6,900 "
		 "new blocks alive; the heap tells the total, windows how lines share it; ± is "
		 "one standard error; not seen in any window, and in "
		 "no line: 900 blocks (197 KiB)\n");
	contains(text,
		 "Older than the trace, by likeness, all 2 lines by size\n  app.py:12: size=~");
	contains(text, "Total older, by likeness: size=21.9 KiB, count=400; an assumption: ");
	contains(text, "; an assumption: such blocks are allocated there now; of a type that no "
		       "window has shown: 7 blocks (1568 B)\n");
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO, .top = 1}, report_text);
	contains(text, "  1 other: size=~82.0 KiB ± 3969 B, count=~1500 ± 71, average=56 B\n");
	free(text);
	/* Nothing is older: there is no section for it, unless something older was not seen. */
	size_t older = snapshot->layers[SNAPSHOT_OLDER].trace_count;
	snapshot->layers[SNAPSHOT_OLDER].trace_count = 0;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	contains(text, "of a type that no window has shown: 7 blocks (1568 B)\n");
	free(text);
	snapshot->meta.windows.old_unseen_blocks = 0;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	lacks(text, "likeness, all");
	free(text);
	snapshot->layers[SNAPSHOT_OLDER].trace_count = older;
	snapshot->meta.windows.old_unseen_blocks = 7;
	snapshot->meta.windows.count = 11;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	contains(text, "; ± is one standard error, too small with so few windows for a line");
	free(text);
	/* Of one that is nearly idle the budget is not of its own time. */
	snapshot->meta.budget_permille = 50;
	snapshot->meta.cpu_ns = 10000000;
	snapshot->meta.probes_ns = 3900000;
	snapshot->meta.coverage_known = 1;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	contains(text, "the probes took 39 % of its CPU time, 0.0039 s of 0.0100 s, the budget is "
		       "5 % of a fifth of a CPU, since it took less\n");
	contains(text, " small blocks (");
	contains(text, " on the heap, and large ones, are not in the statistics: attributed by");
	free(text);
	snapshot->meta.budget_permille = 0;
	snapshot->meta.cpu_ns = snapshot->meta.probes_ns = 0;
	snapshot->meta.coverage_known = 0;
	snapshot->meta.windows.count = 0;
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);
	lacks(text, "indow");
	lacks(text, "likeness");
	free(text);
	snapshot_free(snapshot);
}

static double number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		fail_msg("no number %s", key);
	return json_number_value(value);
}

static void test_json(void **state)
{
	struct snapshot *snapshot = windowed_new();
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	json_t *root = json_loads(text, 0, NULL), *windows, *entry, *older;
	(void)state;

	assert_non_null(root);
	windows = json_object_get(root, "windows");
	assert_int_equal(number(windows, "count"), 60);
	assert_true(fabs(number(windows, "time_share") - 0.04) < 1e-6);
	assert_true(fabs(number(windows, "blocks_share") - 240.0 / 6900) < 1e-6);
	assert_int_equal(number(json_object_get(windows, "unseen"), "count"), UNSEEN);
	assert_int_equal(number(json_object_get(windows, "unseen"), "size"), UNSEEN * 224);
	entry = json_array_get(json_object_get(root, "statistics"), 0);
	assert_int_equal(number(entry, "count"), 4500);
	assert_int_equal(number(entry, "count_error"), 71);
	older = json_object_get(root, "older");
	assert_int_equal(number(json_object_get(older, "total"), "count"), OLDER);
	assert_int_equal(number(json_object_get(older, "unseen"), "count"), 7);
	entry = json_array_get(json_object_get(older, "statistics"), 0);
	assert_int_equal(number(entry, "count"), OLDER * 3 / 4);
	assert_true(number(entry, "size_error") > 0);
	/* What is older is never part of the statistics. */
	assert_int_equal(number(json_object_get(root, "total"), "count"), LISTS);
	json_decref(root);
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_csv);
	contains(text,
		 "filename,lineno,size,count,size_error,count_error\r\napp.py,12,252000,4500,");
	contains(text, ",71\r\n");
	free(text);
	snapshot_free(snapshot);
}

/* Errors of both snapshots are in that of their difference. */
static void test_difference(void **state)
{
	struct snapshot *new = windowed_new(), *old = windowed_new();
	struct report_opts opts = {.by = GROUP_LINENO, .old = old};
	char *text = report(new, opts, report_text);
	(void)state;

	contains(text, "app.py:12: size=~246 KiB (+0 B ± 5614 B), count=~4500 (+0 ± 101)");
	contains(text, "\nWindows: 60,");
	contains(text, "\nWindows of the old one: 60,");
	contains(text, "\nOlder than the trace, by likeness, all 2 lines by size difference\n");
	free(text);
	snapshot_free(old);
	/* Against an exact snapshot there is only one error, and nothing older. */
	assert_int_equal(estimate_snapshot(new, &old), 0);
	opts.old = old;
	text = report(new, opts, report_text);
	contains(text, "app.py:12: size=~246 KiB (+0 B ± 3969 B), count=~4500 (+0 ± 71)");
	lacks(text, "\nOlder than the trace, by likeness");
	free(text);
	snapshot_free(old);
	snapshot_free(new);
}

static int snapshot_store(const struct snapshot *snapshot, const char *path)
{
	struct outfile *file;
	int err = outfile_open(&file, path, OUTFILE_ANY);

	if (!err)
		err = pprof_write(snapshot, file);
	return err ? err : outfile_commit(file);
}

static void traces_equal(const struct snapshot *a, const struct snapshot_trace *x,
			 const struct snapshot *b, const struct snapshot_trace *y, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(x[i].count, y[i].count);
		assert_int_equal(x[i].bytes, y[i].bytes);
		assert_int_equal(!x[i].estimate, !y[i].estimate);
		if (x[i].estimate)
			assert_memory_equal(&a->estimates[x[i].estimate - 1],
					    &b->estimates[y[i].estimate - 1],
					    sizeof(*a->estimates));
	}
}

static void windowed_equal(const struct snapshot *a, const struct snapshot *b)
{
	const struct snapshot_layer *older = &a->layers[SNAPSHOT_OLDER],
				    *others = &b->layers[SNAPSHOT_OLDER];

	assert_int_equal(a->trace_count, b->trace_count);
	assert_int_equal(older->trace_count, others->trace_count);
	assert_true(a->trace_count == 3 && older->trace_count == 3);
	traces_equal(a, a->traces, b, b->traces, a->trace_count);
	traces_equal(a, older->traces, b, others->traces, older->trace_count);
	assert_memory_equal(&a->meta.windows, &b->meta.windows, sizeof(a->meta.windows));
}

static void test_file(void **state)
{
	struct place *place = *state;
	struct snapshot *snapshot = windowed_new(), *back, *copy;

	assert_int_equal(snapshot_store(snapshot, place->path), 0);
	assert_int_equal(snapshot_load(place->path, &back), 0);
	windowed_equal(snapshot, back);
	assert_int_equal(snapshot_copy(back, &copy), 0);
	snapshot_free(back);
	windowed_equal(snapshot, copy);
	snapshot_free(copy);
	snapshot_free(snapshot);
}

/* The files' text, unpacked; the caller frees it. */
static unsigned char *unpacked(const char *path, size_t *size)
{
	unsigned char *data = malloc(1 << 20);
	gzFile file = gzopen(path, "rb");

	assert_non_null(data);
	assert_non_null(file);
	int got = gzread(file, data, 1 << 20);
	assert_true(got > 0);
	assert_int_equal(gzclose(file), Z_OK);
	*size = (size_t)got;
	return data;
}

static void test_file_hostile(void **state)
{
	static const char *const lies[] = {"x", "n", " ", "1e", "-"};
	struct place *place = *state;
	struct snapshot *snapshot = windowed_new(), *back;
	char wanted[32];
	size_t size;

	snprintf(wanted, sizeof(wanted), "%.0f %.0f",
		 (double)snapshot->estimates[0].deviations[0] * 8,
		 (double)snapshot->estimates[0].deviations[1] * 8);
	assert_int_equal(snapshot_store(snapshot, place->path), 0);
	unsigned char *data = unpacked(place->path, &size);
	unsigned char *at = memmem(data, size, wanted, strlen(wanted));
	assert_non_null(at);
	assert_int_equal(pprof_parse(data, size, &back), 0);
	snapshot_free(back);
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		unsigned char first[2] = {at[strlen(wanted) - 2], at[strlen(wanted) - 1]};

		memcpy(at + strlen(wanted) - 2, "xx", 2);
		memcpy(at + strlen(wanted) - 2, lies[i], strlen(lies[i]));
		assert_int_equal(pprof_parse(data, size, &back), -EBADMSG);
		memcpy(at + strlen(wanted) - 2, first, 2);
	}
	/* A number too many, in place of a longer one. */
	at = memchr(at, ' ', 32);
	assert_non_null(at);
	at[2] = ' ';
	assert_int_equal(pprof_parse(data, size, &back), -EBADMSG);
	free(data);
	snapshot_free(snapshot);
}

/* Processes keep their windows; the whole has their sums. */
static void test_merge(void **state)
{
	struct snapshot *parts[2] = {windowed_new(), windowed_new()}, *whole, *one;
	const uint32_t pid = 1235;
	(void)state;

	parts[1]->meta.pid = pid;
	assert_int_equal(snapshot_merge((const struct snapshot *const *)parts, 2, &whole), 0);
	assert_int_equal(whole->meta.windows.count, 60);
	assert_int_equal(whole->meta.windows.new_blocks, 13800);
	assert_int_equal(whole->layers[SNAPSHOT_OLDER].trace_count, 6);
	struct statistics lines = grouped(whole, GROUP_LINENO);
	assert_int_equal(lines.entries[0].count, 9000);
	assert_true(lines.entries[0].error.count >= 25);
	statistics_free(&lines);
	assert_int_equal(snapshot_pick(whole, &pid, 1, &one), 0);
	windowed_equal(parts[0], one);
	snapshot_free(one);
	snapshot_free(whole);
	snapshot_free(parts[0]);
	snapshot_free(parts[1]);
}

/* Filters and --app keep estimates, and what is older. */
static void test_select(void **state)
{
	struct snapshot *snapshot = windowed_new(), *some;
	(void)state;

	assert_int_equal(snapshot_select(snapshot, NULL, NULL, NULL, 1, &some), 0);
	windowed_equal(snapshot, some);
	snapshot_free(some);
	snapshot_free(snapshot);
}

/* The error of the same row in so many processes; rows: so many like it in each of them. */
static double error_of_processes(const struct snapshot_estimate *estimate, uint32_t processes,
				 uint32_t rows)
{
	const struct snapshot snapshot = {.estimates = (struct snapshot_estimate *)estimate,
					  .estimate_count = 1};
	struct estimate sum = {0};

	for (uint32_t process = 0; process < processes; process++)
		for (uint32_t row = 0; row < rows; row++) {
			const struct snapshot_trace trace = {
				.process = process, .count = 1000, .bytes = 100, .estimate = 1};

			estimate_add_trace(&sum, &snapshot, &trace);
		}
	return (double)estimate_size_error(&sum);
}

/*
 * Workers are one larger sample: their errors add up as squares, those of one process as they are.
 * So it is with few windows, with many, and with what no window has shown, even if all workers
 * deviate in the same way.
 */
static void test_workers(void **state)
{
	struct snapshot_estimate few = {{30, -20, -10}}, many = {{0}}, unseen = {{0}};

	(void)state;
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		many.deviations[i] = 10;
	unseen.deviations[CALIBRATE_GROUPS] = -50;
	for (uint32_t count = 4; count <= 64; count *= 4) {
		double root = sqrt(count);

		/* of a few windows it is known less exactly how large the error of one is */
		assert_true(error_of_processes(&few, count, 1) <=
			    1.2 * root * error_of_processes(&few, 1, 1));
		assert_true(fabs(error_of_processes(&many, count, 1) /
					 (root * error_of_processes(&many, 1, 1)) -
				 1) < 0.35);
		assert_true(fabs(error_of_processes(&unseen, count, 1) /
					 (root * error_of_processes(&unseen, 1, 1)) -
				 1) < 0.35);
	}
	assert_float_equal(error_of_processes(&many, 1, 3), 3 * error_of_processes(&many, 1, 1), 3);
	assert_float_equal(error_of_processes(&unseen, 1, 3), 3 * error_of_processes(&unseen, 1, 1),
			   3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_difference),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_workers),
		cmocka_unit_test_setup_teardown(test_file, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_file_hostile, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
