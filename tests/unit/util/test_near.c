/* SPDX-License-Identifier: Apache-2.0 */
/* Which word a mistyped one may mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "util/near.h"

static const char *best_of(const char *word)
{
	static const char *const words[] = {"Thread", "Task", "OrderedDict", "deque", "Therapy"};
	struct near near = {.word = word};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		near_offer(&near, words[i]);
	return near.best;
}

static void test_mistyped(void **state)
{
	(void)state;
	assert_string_equal(best_of("thread"), "Thread");
	assert_string_equal(best_of("Threda"), "Thread"); /* exchanged */
	assert_string_equal(best_of("hTread"), "Thread");
	assert_string_equal(best_of("Treda"), "Thread"); /* exchanged, and one is missing */
	assert_string_equal(best_of("dequee"), "deque");
	assert_string_equal(best_of("Dict"), "OrderedDict"); /* a part */
}

static void test_others(void **state)
{
	(void)state;
	assert_null(best_of("Sock"));
	assert_null(best_of(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mistyped),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
