/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "probe/place/function_entry.h"
#include "probe/python/perfmap_plan.h"

/* Real code of 3.13.0 and of Debian's 3.13 (LTO), and what a compiler makes of a size_t. */
static void test_width(void **state)
{
	static const uint8_t shared[] = {0x48, 0x83, 0x3d, 0x18, 0x96, 0x33, 0x00, 0x00,
					 0x41, 0x54, 0x49, 0x89, 0xd4, 0x55, 0x89, 0xf5,
					 0x53, 0x48, 0x89, 0xfb, 0x74, 0x52};
	static const uint8_t branch_first[] = {0x74, 0x10, 0x89, 0xf5, 0xc3};
	static const uint8_t whole[] = {0x41, 0x54, 0x48, 0x89, 0xf5, 0x89, 0xf0, 0xc3};
	static const uint8_t unknown[] = {0xe9, 0, 0, 0, 0, 0x89, 0xf5};
	(void)state;

	assert_true(function_argument_is_32(&machine_x86, shared, sizeof(shared), ABI_REG_SI));
	assert_false(function_argument_is_32(&machine_x86, shared, sizeof(shared), ABI_REG_DX));
	assert_true(function_argument_is_32(&machine_x86, branch_first, sizeof(branch_first),
					    ABI_REG_SI));
	assert_false(function_argument_is_32(&machine_x86, whole, sizeof(whole), ABI_REG_SI));
	assert_false(function_argument_is_32(&machine_x86, unknown, sizeof(unknown), ABI_REG_SI));
	assert_false(function_argument_is_32(&machine_x86, shared, 0, ABI_REG_SI));
}

static void test_symbol_option(void **state)
{
	static const char *const bad[] = {"",           "file",
					  "file:",      ":symbol",
					  "f:s:",       "f:s:addr=0",
					  "f:s:addr=7", "f:s:addr=1,size=1",
					  "f:s:what=1", "f:s:addr=1;size=2",
					  "f:s:addr="};
	struct perfmap_symbol symbol;
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(perfmap_symbol_parse(bad[i], &symbol), -EINVAL);
	assert_int_equal(perfmap_symbol_parse("/opt/lib/libjit.so:note", &symbol), 0);
	assert_int_equal(symbol.address, 1);
	assert_int_equal(symbol.bytes, 2);
	assert_int_equal(symbol.name, 3);
	assert_true(perfmap_symbol_is_in(&symbol, "/opt/lib/libjit.so"));
	assert_false(perfmap_symbol_is_in(&symbol, "/lib/libjit.so"));
	perfmap_symbol_free(&symbol);
	assert_int_equal(perfmap_symbol_parse("libjit.so:note:name=1,addr=2,size=6", &symbol), 0);
	assert_int_equal(symbol.address, 2);
	assert_int_equal(symbol.bytes, 6);
	assert_int_equal(symbol.name, 1);
	assert_true(perfmap_symbol_is_in(&symbol, "/lib/libjit.so"));
	assert_false(perfmap_symbol_is_in(&symbol, "/lib/notlibjit.so"));
	perfmap_symbol_free(&symbol);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_width),
		cmocka_unit_test(test_symbol_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
