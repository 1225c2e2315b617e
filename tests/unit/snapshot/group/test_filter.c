/* SPDX-License-Identifier: Apache-2.0 */
/* Corner cases of patterns and filters; tests/oracle compares them with tracemalloc itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "snapshot/group/filter.h"
#include "snapshot/group/group.h"
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

/* Results of CPython 3.13's fnmatch.fnmatch(), except for .pyc, which tracemalloc treats as .py. */
static void test_patterns(void **state)
{
	static const struct {
		const char *pattern, *name;
		int matches;
	} cases[] = {
		{"", "", 1},
		{"", "a", 0},
		{"*", "", 1},
		{"a*b*c", "a/b/xbc", 1},
		{"a*b*c", "acb", 0},
		{"?", "\xc3\xa9", 1},
		{"?", "\xed\xb3\xbf", 1},
		{"?", "\xff", 1},
		{"??", "\xc3\xa9", 0},
		{"*.pyc", "x.py", 1},
		{"*.py", "x.pyc", 1},
		{"*.pyo", "x.py", 0},
		{"A", "a", 0},
		{"[!a]", "b", 1},
		{"[!a]", "a", 0},
		{"[a-c]", "b", 1},
		{"[]]", "]", 1},
		{"[!]]", "]", 0},
		{"[", "[", 1},
		{"[a", "[a", 1},
		{"[b-a]", "b", 0},
		{"[!b-a]", "b", 1},
		{"[b-a!x]", "y", 1}, /* the empty range is removed, and "[!x]" remains */
		{"[b-a!x]", "x", 0},
		{"[a-]", "-", 1},
		{"[--0]", ".", 1},
		{"[\\]", "\\", 1},
		{"[^a]", "^", 1},
		{"[^a]", "b", 0},
		{"[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", 1},
		{"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		 0},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pattern *pattern;

		assert_int_equal(pattern_new(&pattern, cases[i].pattern), 0);
		if (pattern_match(pattern, cases[i].name) != cases[i].matches)
			fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].name);
		pattern_free(pattern);
	}
}

/* Blocks of 1, 2, 4, 8 bytes: the sum shows which of them pass. */
static struct snapshot *snapshot_make(void)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(
		snapshot_add(&builder, FRAMES({"a.py", "f", 1}, {"m.py", "m", 9}), 0, 0, 1, 1), 0);
	assert_int_equal(
		snapshot_add(&builder, FRAMES({"b.py", "f", 2}, {"m.py", "m", 9}), 0, 0, 2, 1), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "f", 2}), 0, 7, 4, 1), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"c:12", "f", 3}), 0, 7, 8, 1), 0);
	return builder_finish(&builder);
}

static void passes(const struct filters *filters, uint64_t bytes)
{
	struct snapshot *snapshot = snapshot_make(), *chosen;
	const struct statistics_opts opts = {.by = GROUP_LINENO, .filters = filters},
				     all = {.by = GROUP_LINENO};
	struct statistics statistics;

	assert_int_equal(statistics_compute(snapshot, &opts, &statistics), 0);
	assert_int_equal(statistics.total_size, bytes);
	statistics_free(&statistics);
	assert_int_equal(snapshot_select(snapshot, NULL, filters, NULL, 1, &chosen), 0);
	snapshot_free(snapshot);
	assert_int_equal(statistics_compute(chosen, &all, &statistics), 0);
	assert_int_equal(statistics.total_size, bytes);
	statistics_free(&statistics);
	snapshot_free(chosen);
}

static void test_filters(void **state)
{
	struct filters filters = {0};
	(void)state;

	passes(NULL, 15);
	passes(&filters, 15);
	assert_int_equal(filters_add_file(&filters, 1, "a.py"), 0);
	passes(&filters, 1 + 4);
	assert_int_equal(filters_add_file(&filters, 1, "*.py:2"), 0);
	passes(&filters, 1 + 2 + 4);
	assert_int_equal(filters_add_domain(&filters, 1, 7), 0); /* one match is enough */
	passes(&filters, 15);
	assert_int_equal(filters_add_file(&filters, 0, "c[:]12"), 0);
	passes(&filters, 1 + 2 + 4);
	assert_int_equal(filters_add_file(&filters, 0, "m.py"), 0); /* no most recent frame */
	passes(&filters, 1 + 2 + 4);
	filters_all_frames(&filters);
	passes(&filters, 4);
	assert_int_equal(filters_add_domain(&filters, 0, 7), 0);
	passes(&filters, 0);
	filters_free(&filters);
	assert_int_equal(filters_add_file(&filters, 1, "a.py:99999999999999999999999"), 0);
	passes(&filters, 0);
	filters_free(&filters);
}

/* Tracebacks, frames and strings that are no longer used are not copied. */
static void test_select(void **state)
{
	struct snapshot *snapshot = snapshot_make(), *chosen;
	struct filters filters = {0};
	uint32_t id;
	(void)state;

	assert_int_equal(filters_add_file(&filters, 1, "b.py"), 0);
	assert_int_equal(snapshot_select(snapshot, NULL, &filters, NULL, 0, &chosen), 0);
	assert_int_equal(chosen->traceback_count, 1);
	assert_int_equal(chosen->frame_count, 2);
	assert_true(strings_find(chosen->strings, "b.py", &id));
	assert_false(strings_find(chosen->strings, "a.py", &id));
	snapshot_free(chosen);
	snapshot_free(snapshot);
	filters_free(&filters);
}

static void test_differences(void **state)
{
	struct snapshot *old = snapshot_make(), *new;
	struct builder builder;
	struct statistics statistics;
	const struct statistics_opts opts = {.by = GROUP_FILENAME};
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"z.py", "f", 1}), 0, 0, 3, 1), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "f", 1}), 0, 0, 5, 2), 0);
	new = builder_finish(&builder);
	assert_int_equal(statistics_compare(new, old, &opts, &statistics), 0);
	assert_int_equal(statistics.count, 4);
	/* -8, +5 (of 10), +3, -2 */
	static const char *const names[] = {"c:12", "a.py", "z.py", "b.py"};
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(strings_get(statistics.entries[i].snapshot->strings,
						statistics.entries[i].frame.filename),
				    names[i]);
	assert_int_equal(statistics.entries[1].old_size, 5);
	assert_int_equal(statistics.old_total_count, 4);
	statistics_free(&statistics);
	snapshot_free(old);
	snapshot_free(new);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_differences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
