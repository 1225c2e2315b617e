/* SPDX-License-Identifier: Apache-2.0 */
/* What a view of a snapshot shows, and what formats and filters make of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "snapshot/frames/view.h"
#include "snapshot/group/filter.h"
#include "snapshot_files.h"
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

#define N      FRAME_NATIVE
#define PUSH   "std::vector<int, std::allocator<int> >::push_back(int&&)"
#define FILL   "double* fill<double>(std::vector<double, std::allocator<double> >&, double)"
#define SERVER "/usr/bin/server"
#define ZC     "/src/zmalloc.c"

static struct snapshot *snapshot_make(void)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	/* 0: a wrapper, own functions */
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({ZC, "zmalloc", 9 | N}, {ZC, "zcalloc", 8 | N},
					     {SERVER, "object_new", N}, {SERVER, "zmalloc", N}),
				      7, 0, 1, 1),
			 0);
	/* 1: C++ */
	assert_int_equal(
		snapshot_add(&builder, FRAMES({SERVER, PUSH, N}, {SERVER, FILL, N}), 0, 0, 2, 1),
		0);
	/* 2: nothing but library */
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({ZC, "zmalloc", 9 | N}, {"libc.so.6", "init", N}), 0,
				      0, 4, 1),
			 0);
	/* 3: Python's frames are never the library's, whatever their names */
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({"/usr/bin/python3", "PyMem_RawMalloc", N},
					     {"app.py", "zmalloc", 4}, {"app.py", "<module>", 9}),
				      0, 0, 8, 1),
			 0);
	/* 4: begins with a frame of its own */
	assert_int_equal(snapshot_add(&builder, FRAMES({SERVER, "my_pool", N}, {SERVER, "main", N}),
				      0, 0, 16, 1),
			 0);
	/* 5: a static function of an allocator, stripped; 6, 7: one of somebody else */
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({SERVER, "[server+0x12]", N}, {SERVER, "palloc", N},
					     {SERVER, "[server+0x34]", N}, {SERVER, "main", N}),
				      0, 0, 32, 1),
			 0);
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({SERVER, "[server+0x56]", N}, {"/lib.so", "palloc", N},
					     {SERVER, "main", N}),
				      0, 0, 64, 1),
			 0);
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({SERVER, "[server+0x56]", N}, {SERVER, PUSH, N},
					     {SERVER, "main", N}),
				      0, 0, 128, 1),
			 0);
	return builder_finish(&builder);
}

static void first_is(const struct snapshot *snapshot, uint32_t traceback, uint32_t nframe,
		     const char *function)
{
	const struct snapshot_traceback *at = &snapshot->tracebacks[traceback];

	assert_int_equal(at->nframe, nframe);
	assert_string_equal(strings_get(snapshot->strings, snapshot->frames[at->first].function),
			    function);
}

static void test_skipped(void **state)
{
	struct snapshot *snapshot = snapshot_make();
	struct view_choice view = {0};
	struct shown shown;
	(void)state;

	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	first_is(&shown.snapshot, 0, 2, "object_new");
	assert_int_equal(shown.snapshot.tracebacks[0].total, 5);
	first_is(&shown.snapshot, 1, 1, "fill");
	first_is(&shown.snapshot, 2, 2, "zmalloc");
	first_is(&shown.snapshot, 3, 2, "zmalloc");
	assert_false(shown.snapshot.frames[shown.snapshot.tracebacks[3].first].native);
	first_is(&shown.snapshot, 4, 2, "my_pool");
	first_is(&shown.snapshot, 5, 2, "[server+0x34]");
	first_is(&shown.snapshot, 6, 3, "[server+0x56]");
	first_is(&shown.snapshot, 7, 3, "[server+0x56]");
	shown_free(&shown);
	/* The snapshot is as it was. */
	first_is(snapshot, 0, 4, "zmalloc");
	snapshot_free(snapshot);
}

static void test_options(void **state)
{
	struct snapshot *snapshot = snapshot_make();
	struct view_choice view = {.full_names = 1};
	struct shown shown;
	(void)state;

	assert_int_equal(view_add_wrapper(&view, "my_*"), 0);
	assert_int_equal(view_add_wrapper(&view, "double[*] fill<*"), 0); /* a whole name */
	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	first_is(&shown.snapshot, 4, 1, "main");
	first_is(&shown.snapshot, 1, 2, PUSH); /* nothing would be left */
	shown_free(&shown);
	view.full_names = 0;
	view.no_skip = 1;
	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	first_is(&shown.snapshot, 0, 4, "zmalloc");
	first_is(&shown.snapshot, 1, 2, "std::vector::push_back");
	first_is(&shown.snapshot, 4, 2, "my_pool");
	shown_free(&shown);
	view.full_names = 1;
	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	assert_false(shown.is_changed);
	assert_ptr_equal(shown.snapshot.frames, snapshot->frames);
	shown_free(&shown);
	view_free(&view);
	snapshot_free(snapshot);
}

/* Filters judge what is shown; what they choose is whole. */
static void test_filters(void **state)
{
	struct snapshot *snapshot = snapshot_make(), *chosen;
	struct view_choice view = {0};
	struct filters filters = {0};
	const struct app app = {.asked = 1};
	struct shown shown;
	(void)state;

	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	assert_int_equal(filters_add_file(&filters, 0, ZC), 0);
	assert_int_equal(snapshot_select(snapshot, &shown.snapshot, &filters, NULL, 1, &chosen), 0);
	assert_int_equal(chosen->trace_count, 7); /* all but the one that has nothing else */
	first_is(chosen, 0, 4, "zmalloc");
	snapshot_free(chosen);
	assert_int_equal(snapshot_select(snapshot, NULL, &filters, NULL, 1, &chosen), 0);
	assert_int_equal(chosen->trace_count, 6);
	snapshot_free(chosen);
	/* The application begins at the frame that the view shows it to begin at. */
	assert_int_equal(snapshot_select(snapshot, &shown.snapshot, NULL, &app, 1, &chosen), 0);
	first_is(chosen, 0, 2, "object_new");
	first_is(chosen, 3, 2, "zmalloc");
	snapshot_free(chosen);
	filters_free(&filters);
	shown_free(&shown);
	snapshot_free(snapshot);
}

static void test_python_only(void **state)
{
	struct view_choice view = {0};
	struct builder builder;
	struct snapshot *snapshot;
	struct shown shown;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "std::f", 1}), 0, 0, 1, 1), 0);
	snapshot = builder_finish(&builder);
	assert_int_equal(view_apply(&view, snapshot, &shown), 0);
	assert_false(shown.is_changed);
	shown_free(&shown);
	snapshot_free(snapshot);
}

/* A file of tracer keeps whole stacks, and which frames are native. */
static void test_file(void **state)
{
	struct snapshot *snapshot = snapshot_make(), *read = snapshot_through_file(snapshot);
	(void)state;

	assert_int_equal(read->traceback_count, 8);
	for (uint32_t i = 0; i < 8; i++) {
		const struct snapshot_traceback *from = &snapshot->tracebacks[i],
						*to = &read->tracebacks[i];

		assert_int_equal(from->nframe, to->nframe);
		for (uint32_t j = 0; j < from->nframe; j++)
			assert_int_equal(snapshot->frames[from->first + j].native,
					 read->frames[to->first + j].native);
	}
	snapshot_free(read);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skipped), cmocka_unit_test(test_options),
		cmocka_unit_test(test_filters), cmocka_unit_test(test_python_only),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
