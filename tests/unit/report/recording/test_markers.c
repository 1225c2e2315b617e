/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "report/recording/markers.h"

#define SECOND 1000000000ull
#define BEGIN  (1700000000 * SECOND)

static struct snapshot_meta process(uint32_t pid, uint64_t began, uint64_t until)
{
	struct snapshot_meta meta = {.pid = pid,
				     .start_ticks = pid,
				     .name = "python3",
				     .taken_realtime_ns = BEGIN + until * SECOND,
				     .duration_ns = (until - began) * SECOND};

	return meta;
}

static void take(struct markers *markers, const struct snapshot *snapshot, uint64_t at)
{
	const struct recording_moment moment = {.since_ns = at * SECOND,
						.realtime_ns = BEGIN + at * SECOND};

	assert_int_equal(markers_take(markers, snapshot, &moment), 0);
}

static void check(const struct markers *markers, size_t at, enum marker_kind kind, uint64_t second)
{
	assert_true(at < markers->count);
	assert_int_equal(markers->items[at].kind, kind);
	assert_int_equal(markers->items[at].since_ns, second * SECOND);
}

/* Each is told once, at its time. */
static void test_kinds(void **state)
{
	struct markers markers = {0};
	struct snapshot snapshot = {.meta = process(1, 0, 10)};

	(void)state;
	snapshot.meta.collections = (struct snapshot_collections){1, 4, 90, 1000};
	take(&markers, &snapshot, 10);
	assert_int_equal(markers.count, 0); /* who was there at the beginning did not come */
	snapshot.meta = process(1, 0, 20);
	snapshot.meta.loss[0] = 3;
	snapshot.meta.blocks_dropped = 2;
	snapshot.meta.emptied = 1;
	snapshot.meta.collections = (struct snapshot_collections){1, 6, 99, 1500};
	snapshot.meta.change_count = 2;
	snapshot.meta.changes[1] =
		(struct snapshot_change){.since_ns = 15 * SECOND, .mode = EVENT_MODE_CENSUS};
	take(&markers, &snapshot, 20);
	take(&markers, &snapshot, 20);

	struct snapshot_meta several[] = {process(1, 0, 30), process(2, 22, 25),
					  process(3, 24, 30)};
	/* no full one */
	several[0].collections = (struct snapshot_collections){1, 6, 120, 1700};
	several[0].change_count = 2;
	several[0].changes[1] = snapshot.meta.changes[1];
	several[1].parent = 1;
	several[1].has_exited = 1;
	several[1].wait_status = 9;
	several[1].oom_killed = 1;
	several[1].collections = (struct snapshot_collections){1, 8, 200, 1700};
	snapshot.processes = several;
	snapshot.process_count = 3;
	take(&markers, &snapshot, 30);
	take(&markers, &snapshot, 31);
	markers_sort(&markers);
	assert_int_equal(markers.count, 7);
	check(&markers, 0, MARKER_MODE, 15);
	assert_int_equal(markers.items[0].mode, EVENT_MODE_CENSUS);
	check(&markers, 1, MARKER_LOSS, 20);
	assert_int_equal(markers.items[1].lost, 3);
	assert_int_equal(markers.items[1].dropped, 2);
	check(&markers, 2, MARKER_EMPTIED, 20);
	check(&markers, 3, MARKER_COLLECTION, 20);
	assert_int_equal(markers.items[3].collections.full, 2);
	assert_int_equal(markers.items[3].collections.all, 9);
	assert_int_equal(markers.items[3].collections.collected, 500);
	check(&markers, 4, MARKER_FORK, 22);
	assert_int_equal(markers.items[4].parent, 1);
	check(&markers, 5, MARKER_PROCESS, 24);
	check(&markers, 6, MARKER_EXIT, 25);
	assert_int_equal(markers.items[6].pid, 2);
	assert_int_equal(markers.items[6].wait_status, 9);
	assert_true(markers.items[6].oom_killed);
	markers_free(&markers);
}

/* One in each snapshot leaves room for what happens once. */
static void test_many_collections(void **state)
{
	struct markers markers = {0};
	struct snapshot snapshot = {0};
	const uint32_t snapshots = 2 * COLLECTIONS_MAX;

	(void)state;
	for (uint32_t i = 0; i <= snapshots; i++) {
		snapshot.meta = process(1, 0, i + 1);
		snapshot.meta.collections = (struct snapshot_collections){1, i, i, 0};
		snapshot.meta.has_exited = i == snapshots;
		take(&markers, &snapshot, i + 1);
	}
	assert_int_equal(markers.count, COLLECTIONS_MAX + 1);
	assert_int_equal(markers.left_out, snapshots - COLLECTIONS_MAX);
	markers_sort(&markers);
	check(&markers, COLLECTIONS_MAX, MARKER_EXIT, snapshots + 1);
	markers_free(&markers);
}

/* A file that makes more of them than can be shown, at times that are not in it. */
static void test_hostile(void **state)
{
	struct snapshot_meta *many = calloc(2 * MARKERS_MAX, sizeof(*many));
	struct snapshot snapshot = {.processes = many, .process_count = 2 * MARKERS_MAX};
	struct markers markers = {0};

	(void)state;
	assert_non_null(many);
	for (uint32_t i = 0; i < 2 * MARKERS_MAX; i++) {
		many[i] = process(i + 1, 0, 5);
		many[i].parent = 1;
		many[i].duration_ns = i % 2 ? UINT64_MAX : 0;
		many[i].taken_realtime_ns = i % 3 ? UINT64_MAX : 0;
	}
	take(&markers, &snapshot, 7);
	take(&markers, &snapshot, 7);
	assert_int_equal(markers.count, MARKERS_MAX);
	assert_int_equal(markers.left_out, MARKERS_MAX);
	for (size_t i = 0; i < markers.count; i++)
		assert_true(markers.items[i].since_ns <= 7 * SECOND);
	markers_free(&markers);
	free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_many_collections),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
