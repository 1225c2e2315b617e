/* SPDX-License-Identifier: Apache-2.0 */
/* A failure without a reason of its own is not reported with the reason of an earlier one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe/process/plan_target.h"
#include "proc/freeze.h"
#include "proc/launch.h"
#include "proc/targets/target_set.h"
#include "runtime/heap/census.h"
#include "runtime/heap/heap_types.h"
#include "trace/capture.h"
#include "util/error.h"
#include "util/infile.h"
#include "util/outfile.h"

#define NOBODY (1 << 30) /* larger than any process number */
#define STALE  "of something else"

static int plan(void)
{
	const struct plan_target_opts opts = {0};
	struct plan_caches caches = {0};
	struct plan_target target;
	int err;

	assert_int_equal(plan_caches_new(&caches, &opts), 0);
	err = plan_target(NOBODY, &opts, &caches, &target);
	plan_caches_free(&caches);
	return err;
}

static int runtime(void)
{
	struct python_runtime found;
	struct process_info info;

	return python_process_find(NOBODY, NULL, 0, &info, &found);
}

static int frozen(void)
{
	struct freeze *freeze;

	return freeze_begin(&freeze, NOBODY);
}

static int ignore(const void *record, size_t size, void *context)
{
	(void)context, (void)record, (void)size;
	return 0;
}

static int capture(void)
{
	size_t records;

	return capture_read("/nonexistent", ignore, NULL, &records);
}

static int input(void)
{
	struct infile file;

	return infile_open(&file, "/nonexistent");
}

static void reasons(void **state)
{
	static const struct {
		const char *name;
		int (*fails)(void);
	} cases[] = {
		{"plan_target", plan},    {"python_process_find", runtime},
		{"freeze_begin", frozen}, {"capture_read", capture},
		{"infile_open", input},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int err = cases[i].fails();

		assert_true(err < 0);
		error_set(err, STALE);
		assert_int_equal(cases[i].fails(), err);
		if (strstr(error_reason(err), STALE))
			print_message("%s\n", cases[i].name);
		assert_null(strstr(error_reason(err), STALE));
	}
}

/* An error of the kernel's has no reason, wherever it comes from. */
static void of_the_kernel(void **state)
{
	(void)state;
	error_set(-ENOENT, STALE);
	assert_int_equal(access("/nonexistent", F_OK), -1);
	int err = error_errno();

	assert_int_equal(err, -ENOENT);
	assert_string_equal(error_reason(err), strerror(ENOENT));

	/* An error on its way to the user keeps its reason while something else fails. */
	error_set(-EBUSY, STALE);
	assert_int_equal(access("/nonexistent", F_OK), -1);
	assert_int_equal(error_errno(), -ENOENT);
	assert_string_equal(error_reason(-EBUSY), STALE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(reasons),
					   cmocka_unit_test(of_the_kernel)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
