/* SPDX-License-Identifier: Apache-2.0 */
/* How good estimates are, how much longer a trace must be, and what a report says of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/windows.h"
#include "snapshot/group/precision.h"

static double worst(struct statistic *entries, size_t count, int sampled)
{
	struct statistics statistics = {.entries = entries, .count = count, .sampled = sampled};

	for (size_t i = 0; i < count; i++)
		statistics.total_size += entries[i].size;
	return precision_of(&statistics);
}

/* Lines of less than a tenth do not count, unless there are no others. */
static void test_worst(void **state)
{
	struct statistic entries[] = {{.size = 700, .error.size = 70},
				      {.size = 250, .error.size = 100},
				      {.size = 50, .error.size = 5000}};
	struct statistic equal[20] = {{.size = 11, .error.size = 22}};
	(void)state;

	assert_float_equal(worst(entries, 3, 1), 0.4, 1e-9);
	assert_float_equal(worst(entries, 1, 1), 0.1, 1e-9);
	assert_float_equal(worst(entries, 3, 0), 0, 0);
	for (size_t i = 1; i < 20; i++)
		equal[i] = (struct statistic){.size = 10, .error.size = 10000};
	assert_float_equal(worst(equal, 20, 1), 2, 1e-9);
	assert_true(isinf(worst(entries, 0, 1)));
}

static void says(double more_s, const char *expected)
{
	const struct snapshot_meta meta = {
		.windows = {.count = 20, .span_ns = 100, .on_ns = 4, .new_blocks = 1}};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	windows_print(out, &meta, "Windows", more_s);
	fclose(out);
	if (expected)
		assert_non_null(strstr(text, expected));
	else
		assert_null(strstr(text, "more for"));
	free(text);
}

/* Errors fall with the root of the time. */
static void test_more(void **state)
{
	(void)state;

	assert_float_equal(precision_more(0.4, 60, PRECISION_AIM), 180, 1e-6);
	assert_float_equal(precision_more(0.2, 60, PRECISION_AIM), 0, 0);
	assert_float_equal(precision_more(0.1, 60, PRECISION_AIM), 0, 0);
	assert_float_equal(precision_more(0.1, 60, 0.05), 180, 1e-6);
	assert_float_equal(precision_next(0.3), 0.2, 0);
	assert_float_equal(precision_next(0.2), 0.1, 0);
	assert_float_equal(precision_next(0.05), 0, 0);
	says(precision_more(0.4, 60, PRECISION_AIM),
	     "; about 3 min more for ±20 % of the largest lines");
	says(precision_more(0.25, 60, PRECISION_AIM),
	     "; about 34 s more for ±20 % of the largest lines");
	says(precision_more(3, 60, PRECISION_AIM), "; hours more for ±20 % of the largest lines");
	says(precision_more(0.19, 60, PRECISION_AIM), NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_worst),
					   cmocka_unit_test(test_more)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
