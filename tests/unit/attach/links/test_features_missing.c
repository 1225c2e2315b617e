/* SPDX-License-Identifier: Apache-2.0 */
/* What a session lacks on simulated kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "attach/links/features_missing.h"

static const struct features newest = {.uprobe_multi = 1,
				       .uprobe_session = 1,
				       .bpf_loop = 1,
				       .prepare_exec = 1,
				       .kernel = "6.18.1"};

static void test_nothing(void **state)
{
	char text[FEATURES_MISSING_SIZE] = "x";

	(void)state;
	assert_int_equal(features_missing(&newest, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static void test_each(void **state)
{
	char text[FEATURES_MISSING_SIZE];
	struct features features = newest;

	(void)state;
	features.uprobe_session = 0; /* 6.12 */
	assert_int_equal(features_missing(&features, text, sizeof(text)), 1);
	assert_string_equal(text, "kernel 6.18.1 has no uprobe sessions (6.13): returns cost more");
	features.prepare_exec = 0; /* 6.6 */
	assert_int_equal(features_missing(&features, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "returns cost more; no tracepoint before an exec"));
	features.uprobe_multi = 0; /* 6.1: no sessions without it; reported once */
	assert_int_equal(features_missing(&features, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "uprobe_multi (6.6)"));
	assert_null(strstr(text, "sessions"));
}

/*
 * A kernel that has none of the features, and a name of the maximum length: everything is reported.
 */
static void test_room(void **state)
{
	char text[FEATURES_MISSING_SIZE], small[8];
	struct features features = {0};

	(void)state;
	memset(features.kernel, 'k', sizeof(features.kernel) - 1);
	assert_int_equal(features_missing(&features, text, sizeof(text)), 3);
	assert_non_null(strstr(text, "last heap walk"));
	assert_int_equal(features_missing(&features, small, sizeof(small)), 3);
	assert_string_equal(small, "kernel ");
	assert_int_equal(features_missing(&features, NULL, 0), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing),
					   cmocka_unit_test(test_each),
					   cmocka_unit_test(test_room)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
