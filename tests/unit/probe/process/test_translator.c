/* SPDX-License-Identifier: Apache-2.0 */
/* Which mapped files are those of programs that run copies of code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "probe/process/translator.h"

static void test_names(void **state)
{
	static const char *const others[] = {
		"",
		"/usr/bin/valgrind",
		"/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/bin/qemu-system-x86_64",
		"/opt/valgrind/notes.txt",
		"[vdso]",
		"/home/frida/python3",
	};
	(void)state;

	assert_string_equal(translator_of("/usr/libexec/valgrind/memcheck-amd64-linux"),
			    "valgrind");
	assert_string_equal(translator_of("/x/vgpreload_core-amd64-linux.so"), "valgrind");
	assert_string_equal(translator_of("/opt/dr/lib64/release/libdynamorio.so.9.0"),
			    "DynamoRIO");
	assert_string_equal(translator_of("/opt/pin/intel64/bin/pinbin"), "Pin");
	assert_string_equal(translator_of("/usr/lib/rr/librrpreload.so"), "rr");
	assert_string_equal(translator_of("/usr/bin/qemu-x86_64-static"), "qemu");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_null(translator_of(others[i]));
}

static void test_process(void **state)
{
	(void)state;
	assert_int_equal(translator_check(getpid()), 0);
	assert_int_equal(translator_check(1 << 30), 0); /* gone: another check says so */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
					   cmocka_unit_test(test_process)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
