/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of several processes: merged, picked from, grouped, written and read back, reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "export/exporter.h"
#include "export/pprof.h"
#include "export/pprof_format.h"
#include "export/snapshot_file.h"
#include "report/report.h"
#include "snapshot/merge.h"
#include "snapshots.h"

#define FRAMES(...)   ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})
#define PARTS         3
#define RANDOM_PARTS  9
#define RANDOM_TRACES 400

static const struct snapshot_meta metas[PARTS] = {
	{.pid = 10,
	 .python_version = 0x030b07f0,
	 .traceback_limit = 4,
	 .name = "web",
	 .container = "web-1",
	 .ns_pid = 7,
	 .mode = "census",
	 .moment = "running",
	 .taken_realtime_ns = 1000,
	 .duration_ns = 50,
	 .from_start = 1,
	 .peak_bytes = 5000,
	 .frees_unknown = 1,
	 .unknown = {[UNKNOWN_NO_CODE] = {1, 10}, [UNKNOWN_NO_FRAME] = {2, 7}},
	 .loss[LOSS_STACK] = 3,
	 .coverage_known = 1,
	 .coverage = {.new_blocks = 10, .seen_blocks = 9, .old_blocks = 4}},
	{.pid = 11,
	 .python_version = 0x030b07f0,
	 .traceback_limit = 4,
	 .name = "web",
	 .container = "web-2",
	 .parent = 10,
	 .mode = "census",
	 .moment = "exited",
	 .has_exited = 1,
	 .wait_status = 9,
	 .taken_realtime_ns = 900,
	 .duration_ns = 60,
	 .from_start = 1,
	 .frees_unknown = 2,
	 .unread_ns = 20000000,
	 .loss[LOSS_STACK] = 3},
	{.pid = 12,
	 .python_version = 0x030d00f0,
	 .traceback_limit = 8,
	 .name = "job\033[31m",
	 .mode = "census",
	 .moment = "running",
	 .taken_realtime_ns = 1000,
	 .duration_ns = 10,
	 .rounded_blocks = 2,
	 .unknown = {[UNKNOWN_NO_CODE] = {3, 30}},
	 .loss[LOSS_STACK] = 3,
	 .coverage_known = 1,
	 .coverage = {.new_blocks = 5, .seen_blocks = 5}},
};

static struct snapshot *part_new(size_t index)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta = metas[index];
	if (index != 1) /* the second has its strings in another order */
		assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "f", 1}, {"m.py", "g", 2}),
					      2, 0, 100, 2),
				 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"b.py", "h", 3}), 1, 0, 1000 + index, 1),
			 0);
	if (index == 1)
		assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "f", 1}, {"m.py", "g", 2}),
					      2, 0, 100, 5),
				 0);
	return builder_finish(&builder);
}

static int setup(void **state)
{
	struct snapshot *parts[PARTS], *whole = NULL;

	for (size_t i = 0; i < PARTS; i++)
		parts[i] = part_new(i);
	int err = snapshot_merge((const struct snapshot *const *)parts, PARTS, &whole);
	for (size_t i = 0; i < PARTS; i++)
		snapshot_free(parts[i]);
	*state = whole;
	return err;
}

static int teardown(void **state)
{
	snapshot_free(*state);
	return 0;
}

static const char *filename_of(const struct snapshot *snapshot, const struct snapshot_trace *trace)
{
	uint32_t first = snapshot->tracebacks[trace->traceback].first;

	return strings_get(snapshot->strings, snapshot->frames[first].filename);
}

static void traces_equal(const struct snapshot *a, const struct snapshot *b)
{
	assert_int_equal(a->trace_count, b->trace_count);
	for (size_t i = 0; i < a->trace_count; i++) {
		assert_int_equal(a->traces[i].process, b->traces[i].process);
		assert_int_equal(a->traces[i].bytes, b->traces[i].bytes);
		assert_int_equal(a->traces[i].count, b->traces[i].count);
		assert_string_equal(filename_of(a, &a->traces[i]), filename_of(b, &b->traces[i]));
	}
}

static void test_merge(void **state)
{
	const struct snapshot *whole = *state;

	assert_int_equal(whole->process_count, PARTS);
	assert_memory_equal(whole->processes, metas, sizeof(metas));
	assert_int_equal(whole->trace_count, 6);
	assert_int_equal(whole->traceback_count, 2);
	assert_int_equal(whole->frame_count, 3);
	assert_int_equal(whole->meta.pid, 0);
	assert_int_equal(whole->meta.traceback_limit, 8);
	assert_int_equal(whole->meta.python_version, 0);
	assert_string_equal(whole->meta.mode, "census");
	assert_string_equal(whole->meta.moment, SNAPSHOT_MIXED);
	assert_string_equal(whole->meta.name, "");
	assert_int_equal(whole->meta.duration_ns, 60);
	assert_int_equal(whole->meta.taken_realtime_ns, 1000);
	assert_int_equal(whole->meta.from_start, 0);
	assert_int_equal(whole->meta.peak_bytes, 0);
	assert_int_equal(whole->meta.frees_unknown, 3);
	assert_int_equal(whole->meta.loss[LOSS_STACK], 3); /* the session's, not three times that */
	assert_int_equal(whole->meta.coverage.new_blocks, 15);
	assert_int_equal(whole->meta.coverage.seen_blocks, 14);
}

/* A program without Python beside one with: each holds what is in its own first layer. */
static void test_layers_of_each(void **state)
{
	struct snapshot *parts[2] = {part_new(0), part_new(2)}, *whole;
	struct statistics statistics;
	struct snapshot view;
	(void)state;

	parts[1]->meta.layer = EVENT_LAYER_NATIVE;
	parts[1]->meta.python_version = 0;
	/* Of the first the native layer is traced, too: its blocks hold the others. */
	parts[0]->meta.layers = 1u << EVENT_LAYER_NATIVE;
	parts[0]->layers[EVENT_LAYER_NATIVE].traces = calloc(1, sizeof(struct snapshot_trace));
	assert_non_null(parts[0]->layers[EVENT_LAYER_NATIVE].traces);
	parts[0]->layers[EVENT_LAYER_NATIVE].traces[0] =
		(struct snapshot_trace){.bytes = 50000, .count = 1};
	parts[0]->layers[EVENT_LAYER_NATIVE].trace_count = 1;
	assert_int_equal(snapshot_merge((const struct snapshot *const *)parts, 2, &whole), 0);
	assert_int_equal(statistics_compute(whole, &(struct statistics_opts){.by = GROUP_PROCESS},
					    &statistics),
			 0);
	assert_int_equal(statistics.count, 2);
	assert_int_equal(statistics.entries[0].process->pid, 12);
	assert_int_equal(statistics.entries[0].size, 1202);
	assert_int_equal(statistics.entries[0].processes, 1);
	assert_int_equal(statistics.entries[1].process->pid, 10);
	assert_int_equal(statistics.entries[1].size, 1200);
	statistics_free(&statistics);
	view = snapshot_of_layer(whole, EVENT_LAYER_NATIVE);
	assert_int_equal(statistics_compute(&view, &(struct statistics_opts){.by = GROUP_PROCESS},
					    &statistics),
			 0);
	assert_int_equal(statistics.entries[0].process->pid, 10);
	assert_int_equal(statistics.entries[0].size, 50000);
	statistics_free(&statistics);
	snapshot_free(whole);
	snapshot_free(parts[0]);
	snapshot_free(parts[1]);
}

static void test_pick(void **state)
{
	const struct snapshot *whole = *state;
	struct snapshot *part = part_new(1), *picked;

	/* One of several is what it was alone. */
	assert_int_equal(snapshot_pick(whole, (const uint32_t[]){11}, 1, &picked), 0);
	assert_int_equal(picked->process_count, 0);
	assert_memory_equal(&picked->meta, &part->meta, sizeof(part->meta));
	traces_equal(picked, part);
	snapshot_free(picked);
	snapshot_free(part);

	assert_int_equal(snapshot_pick(whole, (const uint32_t[]){12, 10, 12}, 3, &picked), 0);
	assert_int_equal(picked->process_count, 2);
	assert_int_equal(picked->processes[0].pid, 10);
	assert_int_equal(picked->processes[1].pid, 12);
	assert_int_equal(picked->meta.frees_unknown, 1);
	assert_int_equal(picked->trace_count, 4);
	snapshot_free(picked);

	assert_int_equal(snapshot_pick(whole, (const uint32_t[]){10, 13}, 2, &picked), -ESRCH);
	assert_non_null(strstr(error_reason(-ESRCH), "no process 13 in it, but 10, 11, 12"));
	assert_int_equal(snapshot_pick(whole, (const uint32_t[]){0}, 1, &picked), -ESRCH);
}

static struct snapshot *through_file(const struct snapshot *snapshot)
{
	char path[] = "/tmp/test_processes.XXXXXX";
	int fd = mkstemp(path);
	struct snapshot *back;
	struct outfile *file;

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(outfile_open(&file, path), 0);
	assert_int_equal(pprof_write(snapshot, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_int_equal(snapshot_load(path, &back), 0);
	unlink(path);
	return back;
}

static void test_pprof(void **state)
{
	const struct snapshot *whole = *state;
	struct snapshot *back = through_file(whole), *copy;

	assert_memory_equal(&back->meta, &whole->meta, sizeof(whole->meta));
	assert_int_equal(back->process_count, PARTS);
	assert_memory_equal(back->processes, metas, sizeof(metas));
	traces_equal(whole, back);
	assert_int_equal(snapshot_copy(back, &copy), 0);
	assert_memory_equal(copy->processes, metas, sizeof(metas));
	snapshot_free(copy);
	snapshot_free(back);
}

static int comment(struct builder *builder, const char *text)
{
	return pprof_meta_parse_line(builder, text, strlen(text));
}

static void test_hostile_comments(void **state)
{
	struct builder builder;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(comment(&builder, "tracer:4294967296.pid=1"), -EBADMSG);
	assert_int_equal(comment(&builder, "tracer:0.pid=1"), -EBADMSG);
	assert_int_equal(comment(&builder, "tracer:2.pid=1"), -EBADMSG);
	assert_int_equal(comment(&builder, "tracer:1pid=1"), -EBADMSG);
	assert_int_equal(builder.snapshot->process_count, 0);
	assert_int_equal(comment(&builder, "tracer:1.pid=5"), 0);
	assert_int_equal(comment(&builder, "tracer:1.unheard=5"), 0);
	assert_int_equal(builder.snapshot->process_count, 1);
	assert_int_equal(pprof_meta_end(&builder), -EBADMSG);
	assert_int_equal(comment(&builder, "tracer:2.pid=6"), 0);
	assert_int_equal(pprof_meta_end(&builder), 0);
	assert_int_equal(builder.snapshot->processes[1].pid, 6);
	builder_abort(&builder);
}

/* The meta data is longer than any other message or name may be. */
static void test_many(void **state)
{
	const struct snapshot *part = ((const struct snapshot *)*state);
	const size_t count = 2000;
	struct builder builder;
	struct snapshot_meta *meta;
	struct snapshot *whole, *back;

	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta = part->meta;
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(builder_process(&builder, &meta), 0);
		*meta = metas[0];
		memcpy(meta->loss, part->meta.loss, sizeof(meta->loss));
		memset(meta->name, '\n', sizeof(meta->name) - 1);
		memset(meta->container, '\\', sizeof(meta->container) - 1);
		meta->pid = (uint32_t)i + 1;
	}
	whole = builder_finish(&builder);
	back = through_file(whole);
	assert_int_equal(back->process_count, count);
	assert_memory_equal(back->processes, whole->processes, count * sizeof(*whole->processes));
	snapshot_free(back);
	snapshot_free(whole);
}

/* Traces come in any order from a file that another program wrote again. */
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

/* Is the trace one that adds to the entry, and how often? */
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

static void test_refused(void **state)
{
	struct statistics statistics;

	assert_int_equal(
		statistics_compute(*state,
				   &(struct statistics_opts){.by = GROUP_COMM, .cumulative = 1},
				   &statistics),
		-EINVAL);
}

/* Caller frees. */
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
	contains(text, "  of PID 10 (web): coverage 90.0 %\n");
	contains(text, "  of PID 11 (web): its heap was not read\n");
	assert_null(strstr(text, "of PID 12"));
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
				       "job_[31m (12);h (b.py:3) 1002\n"
				       "job_[31m (12);g (m.py:2);f (a.py:1) 200\n";
	char path[] = "/tmp/test_processes.XXXXXX", text[1024] = "";
	int fd = mkstemp(path);
	struct outfile *file;

	assert_true(fd >= 0);
	assert_int_equal(outfile_open(&file, path), 0);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Why blocks are at <unknown>, summed up over the processes. */
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

/* What the second has of the first is said of the total and of the process, and can be left out. */
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
		text,
		"Total: size=3903 B, count=12; of it inherited by forked processes: size=500 B, "
		"count=5 (--no-inherited leaves it out)\n"));
	assert_non_null(strstr(text, "killed by signal 9, 500 B inherited of PID 10\n"));
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
	assert_int_equal(snapshot_select(snapshot, &none, NULL, 1, &chosen), 0);
	assert_int_equal(chosen->trace_count, snapshot->trace_count - 1);
	snapshot_free(chosen);
	/* Of a sample it is an estimate, as the total is. */
	for (size_t i = 0; i < snapshot->process_count; i++)
		snapshot->processes[i].sample_bytes = 100;
	snapshot->meta.sample_bytes = 100;
	text = report(snapshot, GROUP_LINENO, 0, report_text);
	assert_non_null(strstr(text, "of it inherited by forked processes: size=~791 B"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_merge),
		cmocka_unit_test(test_layers_of_each),
		TEST(test_pick),
		TEST(test_pprof),
		TEST(test_many),
		cmocka_unit_test(test_hostile_comments),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_statistics),
		TEST(test_refused),
		TEST(test_inherited),
		TEST(test_unknown),
		TEST(test_text),
		TEST(test_json),
		TEST(test_csv),
		TEST(test_folded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
