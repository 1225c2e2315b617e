/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's blocks, or a task's, as a snapshot of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/group/thread_shares.h"
#include "snapshots.h"

#define FIRST  7u
#define SECOND 8u

static uint32_t interned(struct builder *builder, const char *text)
{
	uint32_t id;

	assert_int_equal(strings_intern(builder->snapshot->strings, text, strlen(text), &id), 0);
	return id;
}

/* Blocks of a thread and a task, at a line. */
static void add(struct builder *builder, uint32_t thread, const char *task, uint32_t line,
		uint64_t bytes, uint64_t count)
{
	const struct snapshot_frame frame = {.filename = interned(builder, "a.py"),
					     .function = interned(builder, "f"),
					     .line = line};
	struct snapshot_trace trace = {.bytes = bytes, .count = count};

	assert_int_equal(builder_traceback(builder, &frame, 1, 1, &trace.traceback), 0);
	assert_int_equal(builder_trace(builder, &trace), 0);
	trace.thread = thread;
	trace.task = interned(builder, task);
	assert_int_equal(
		builder_layer(builder, SNAPSHOT_EXTRA(EXTRA_THREAD, EVENT_LAYER_PYTHON), &trace),
		0);
}

static struct snapshot *two_threads(void)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	add(&builder, FIRST, "x", 1, 100, 3);
	add(&builder, FIRST, "y", 2, 10, 1);
	add(&builder, SECOND, "x", 1, 1000, 2);
	builder.snapshot->meta.extra[EXTRA_THREAD].known = 1u << EVENT_LAYER_PYTHON;
	builder.snapshot->meta.tasks = 1;
	builder.snapshot->meta.ages = 1;
	builder.snapshot->meta.pid = 5;
	return builder_finish(&builder);
}

/* Each row's snapshot, by line: {bytes, blocks} of line 1 and of line 2. */
static void row_is(const struct snapshot *snapshot, enum group_by by, size_t row,
		   const uint64_t expected[2][2])
{
	const struct thread_question question = {.by = by};
	const struct statistics_opts how = {.by = GROUP_LINENO};
	uint64_t found[2][2] = {{0}};
	struct statistics statistics;
	struct thread_rows rows;
	struct snapshot part;

	assert_int_equal(thread_shares_rows(snapshot, &question, &rows), 0);
	assert_int_equal(rows.count, 2);
	assert_int_equal(thread_row_snapshot(&rows, &rows.items[row], &part), 0);
	assert_int_equal(statistics_compute(&part, &how, &statistics), 0);
	assert_int_equal(statistics.total_size, rows.items[row].sums.size);
	assert_int_equal(statistics.total_count, rows.items[row].sums.count);
	for (size_t i = 0; i < statistics.count; i++) {
		found[statistics.entries[i].frame.line - 1][0] = statistics.entries[i].size;
		found[statistics.entries[i].frame.line - 1][1] = statistics.entries[i].count;
	}
	assert_memory_equal(found, expected, sizeof(found));
	/* Nothing else is said of it: no age is what a thread's number was. */
	assert_false(snapshot_knows(&part, EXTRA_THREAD));
	assert_false(part.meta.ages);
	for (size_t i = 0; i < part.trace_count; i++)
		assert_int_equal(part.traces[i].age, 0);
	statistics_free(&statistics);
	free(part.traces);
	thread_rows_free(&rows);
}

static void a_thread_has_its_blocks_alone(void **state)
{
	struct snapshot *snapshot = two_threads();

	(void)state;
	row_is(snapshot, GROUP_THREAD, 0, (const uint64_t[2][2]){{2000, 2}, {0, 0}});
	row_is(snapshot, GROUP_THREAD, 1, (const uint64_t[2][2]){{300, 3}, {10, 1}});
	snapshot_free(snapshot);
}

static void a_task_has_those_of_all_its_threads(void **state)
{
	struct snapshot *snapshot = two_threads();

	(void)state;
	row_is(snapshot, GROUP_TASK, 0, (const uint64_t[2][2]){{2300, 5}, {0, 0}});
	row_is(snapshot, GROUP_TASK, 1, (const uint64_t[2][2]){{0, 0}, {10, 1}});
	snapshot_free(snapshot);
}

/* One thread has allocated all: no layer lists it. */
static void a_sole_thread_has_all(void **state)
{
	const struct thread_question question = {.by = GROUP_THREAD};
	struct builder builder;
	struct thread_rows rows;
	struct snapshot part;

	(void)state;
	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(
		snapshot_add(&builder,
			     (const struct frame_text[]){{"a.py", "f", 1}, {NULL, NULL, 0}}, 1, 0,
			     64, 4),
		0);
	builder.snapshot->meta.extra[EXTRA_THREAD].known = 1u << EVENT_LAYER_PYTHON;
	builder.snapshot->meta.sole_thread[EVENT_LAYER_PYTHON] = FIRST;
	struct snapshot *snapshot = builder_finish(&builder);
	assert_int_equal(thread_shares_rows(snapshot, &question, &rows), 0);
	assert_int_equal(rows.count, 1);
	assert_int_equal(thread_row_snapshot(&rows, &rows.items[0], &part), 0);
	assert_int_equal(part.trace_count, 1);
	assert_int_equal(part.traces[0].bytes * part.traces[0].count, 256);
	free(part.traces);
	thread_rows_free(&rows);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_has_its_blocks_alone),
		cmocka_unit_test(a_task_has_those_of_all_its_threads),
		cmocka_unit_test(a_sole_thread_has_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
