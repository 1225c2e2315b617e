/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of several processes. */
#pragma once

#include "report/export/exporter.h"
#include "report/pprof/pprof_format.h"
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

static inline struct snapshot *part_new(size_t index)
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

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
	snapshot_free(*state);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
