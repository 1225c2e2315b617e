/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for functions that the user names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "abi/events.h"
#include "native_plans.h"
#include "object/elf/elf_file.h"
#include "probe/malloc/plan_native.h"

static void test_option(void **state)
{
	static const char *const bad[] = {
		"",
		"f",
		"f:s",
		"f:s:",
		"f:s:new",
		":s:malloc",
		"f::malloc",
		"f:s:malloc:",
		"f:s:malloc:size=0",
		"f:s:malloc:size=7",
		"f:s:malloc:addr=1",
		"f:s:calloc:size=1",
		"f:s:malloc:size=1;",
		"f:s:malloc size=1",
		"f:s:malloc:return-probe,size=1",
		"f:s:malloc:size=1return-probe",
		"f:s:malloc:size=1,return",
	};
	struct plan_alloc alloc;
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(plan_alloc_parse(bad[i], &alloc), -EINVAL);
	assert_int_equal(
		plan_alloc_parse("/opt/*/libpool.so:pool_get:calloc:size=2,count=6", &alloc), 0);
	assert_string_equal(alloc.file, "/opt/*/libpool.so");
	assert_string_equal(alloc.symbol, "pool_get");
	assert_int_equal(alloc.call.op, ABI_OP_CALLOC);
	assert_int_equal(alloc.call.arguments[0], 6);
	assert_int_equal(alloc.call.arguments[1], 2);
	assert_int_equal(alloc.return_probe, 0);
	plan_alloc_free(&alloc);
	assert_int_equal(plan_alloc_parse("f:s:calloc:size=4,return-probe", &alloc), 0);
	assert_int_equal(alloc.return_probe, 1);
	assert_int_equal(alloc.call.arguments[1], 4);
	plan_alloc_free(&alloc);
	assert_int_equal(plan_alloc_parse("postgres:pfree:free", &alloc), 0);
	assert_int_equal(alloc.call.op, ABI_OP_FREE);
	assert_int_equal(alloc.call.arguments[0], 1);
	plan_alloc_free(&alloc);
	assert_int_equal(plan_alloc_parse("f:s:posix_memalign", &alloc), 0);
	assert_int_equal(alloc.call.arguments[1], 3);
	plan_alloc_free(&alloc);
}

/* Expects the entry of a function of --alloc, without a return probe. */
static void expect_users_site(const struct plan *plan, const char *symbol, enum abi_op op,
			      uint32_t r0, uint32_t r1)
{
	const struct plan_site *site = site_of(plan, symbol, op);

	assert_non_null(site);
	assert_int_equal(site->cookie, ABI_COOKIE(op, EVENT_API_NATIVE, r0, r1, NONE) |
					       ABI_COOKIE_ADDEND(ABI_NATIVE_RETURNS));
	assert_int_equal(site->with_return, 0);
}

/*
 * A function that may leave by another stack gets no return probe unless the user asks for one. A
 * function that is seen to leave by another stack is not probed.
 */
static void test_users_ends(void **state)
{
	struct elf_file *file = library(
		FUNCTION("pool_get", "test %rdi, %rdi\nje 1f\nret\n1: xor %eax, %eax\nret") /* */
		FUNCTION("pool_asked", "nop\nret") FUNCTION("pool_lost", "push %rbx\njmp *%rax")
			FUNCTION("pool_switch", "push %rbx\ncall swapcontext@plt\npop %rbx\nret")
				FUNCTION("pool_jump", "call leave\nret") FUNCTION("leave", "ret")
					FUNCTION("longjmp", "nop\nret")
						FUNCTION("pool_put", "nop\nret"));
	static const char *const options[] = {"liba.so:pool_get:malloc",
					      "liba.so:pool_asked:calloc:size=3,return-probe",
					      "liba.so:pool_lost:malloc",
					      "liba.so:pool_switch:malloc:return-probe",
					      "liba.so:pool_jump:malloc",
					      "liba.so:longjmp:malloc",
					      "liba.so:pool_put:free:return-probe"};
	struct plan_alloc allocs[7];
	const struct plan_native_opts opts = {.allocs = allocs, .alloc_count = 7};
	struct plan plan;
	(void)state;

	for (size_t i = 0; i < 7; i++)
		assert_int_equal(plan_alloc_parse(options[i], &allocs[i]), 0);
	assert_int_equal(plan_native(file, &opts, &plan), 0);
	expect_users_site(&plan, "pool_get", ABI_OP_MALLOC, ABI_REG_DI, NONE);
	expect_users_site(&plan, "pool_jump", ABI_OP_MALLOC, ABI_REG_DI, NONE);
	expect_site(&plan, "pool_asked", ABI_OP_CALLOC, ABI_REG_DI, ABI_REG_DX, NONE, 1);
	expect_site(&plan, "pool_put", ABI_OP_FREE, ABI_REG_DI, NONE, NONE, 0);
	assert_int_equal(plan.count, 7); /* including three sites at a ret */
	expect_missing(&plan, "pool_lost", "its ends are not all found");
	expect_missing(&plan, "pool_switch", "leaves its stack (swapcontext)");
	expect_missing(&plan, "longjmp", "leaves its stack (longjmp)");
	assert_int_equal(plan.missing_count, 3);
	plan_free(&plan);
	for (size_t i = 0; i < 7; i++)
		plan_alloc_free(&allocs[i]);
	elf_file_close(file);
}

static void test_users(void **state)
{
	struct elf_file *file =
		library(FUNCTION("pool_get", "jmp malloc@plt") FUNCTION("malloc", "nop\nret"));
	struct plan_alloc allocs[4];
	const struct plan_native_opts opts = {.allocs = allocs, .alloc_count = 4};
	struct plan plan;
	(void)state;

	assert_int_equal(plan_alloc_parse("liba.so:pool_get:malloc:size=2", &allocs[0]), 0);
	assert_int_equal(plan_alloc_parse("lib?.so:pool_none:malloc", &allocs[1]), 0);
	assert_int_equal(plan_alloc_parse("libb.so:pool_get:free", &allocs[2]), 0);
	assert_int_equal(plan_alloc_parse("liba.so:malloc:malloc:size=3", &allocs[3]), 0);
	assert_true(plan_alloc_is_in(&allocs[0], file));
	assert_false(plan_alloc_is_in(&allocs[1], file));
	assert_false(plan_alloc_is_in(&allocs[2], file));
	assert_int_equal(plan_native(file, &opts, &plan), 0);
	assert_int_equal(plan.count, 3);
	/* it ends where malloc ends */
	expect_users_site(&plan, "pool_get", ABI_OP_MALLOC, ABI_REG_SI, NONE);
	/* the user's definition takes precedence */
	expect_users_site(&plan, "malloc", ABI_OP_MALLOC, ABI_REG_DX, NONE);
	expect_site(&plan, "malloc", ABI_OP_END, ABI_REG_AX, NONE, NONE, 0);
	assert_int_equal(plan.missing_count, 0);
	plan_free(&plan);
	for (size_t i = 0; i < 4; i++)
		plan_alloc_free(&allocs[i]);
	elf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_option),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_users_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
