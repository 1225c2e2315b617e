/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of several processes: merged, reduced to some of them, written to pprof and read back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "report/export/exporter.h"
#include "report/pprof/pprof_format.h"
#include "report/report.h"
#include "snapshot/merge.h"
#include "snapshot_files.h"
#include "snapshot_parts.h"
#include "snapshots.h"
#include "util/error.h"

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
	assert_int_equal(whole->meta.loss[LOSS_STACK], 3); /* the session's, not multiplied by 3 */
	assert_int_equal(whole->meta.coverage.new_blocks, 15);
	assert_int_equal(whole->meta.coverage.seen_blocks, 14);
}

/* A program without Python and one with it: each is represented by its own first layer. */
static void test_layers_of_each(void **state)
{
	struct snapshot *parts[2] = {part_new(0), part_new(2)}, *whole;
	struct statistics statistics;
	struct snapshot view;
	(void)state;

	parts[1]->meta.layer = EVENT_LAYER_NATIVE;
	parts[1]->meta.python_version = 0;
	/*
	 * The native layer of the first one is traced, too: its blocks contain the Python blocks.
	 */
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

	/* A process picked from several equals the original snapshot. */
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
	assert_non_null(strstr(error_reason(-ESRCH), "no process 13 in the file, only 10, 11, 12"));
	assert_int_equal(snapshot_pick(whole, (const uint32_t[]){0}, 1, &picked), -ESRCH);
}

static void test_pprof(void **state)
{
	const struct snapshot *whole = *state;
	struct snapshot *back = snapshot_through_file(whole), *copy;

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

/* The metadata is longer than any other message or name may be. */
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
	back = snapshot_through_file(whole);
	assert_int_equal(back->process_count, count);
	assert_memory_equal(back->processes, whole->processes, count * sizeof(*whole->processes));
	snapshot_free(back);
	snapshot_free(whole);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_merge),   cmocka_unit_test(test_layers_of_each),
		TEST(test_pick),    TEST(test_pprof),
		TEST(test_many),    cmocka_unit_test(test_hostile_comments),
		TEST(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
