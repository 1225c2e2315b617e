/* SPDX-License-Identifier: Apache-2.0 */
/* At which instruction of a function its probe is placed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "function_plans.h"
#include "probe/python/plan.h"

/* mov %rdi,%rsi; test %rdi,%rdi; js (3.13, PyObject_Malloc) */
static void test_conditional_branch(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&malloc_public, 0x48, 0x89, 0xfe, 0x48, 0x85, 0xff, 0x78, 0x18, 0x48, 0x8b,
		     0x05, 0x21, 0x07, 0x38, 0x00, 0x48, 0x8b, 0xb8, 0x10, 0x03, 0x00, 0x00, 0xff,
		     0xa0, 0x18, 0x03, 0x00, 0x00, 0x0f, 0x1f, 0x40, 0x00, 0x31, 0xc0, 0xc3);

	expect_emulated(&site, 6, "js 0x16a5a0", "js at +6 is emulated; bytes still in %rdi");
	expect(&site, &malloc_public, ABI_REG_DI, NONE, NONE);
}

/* test %rsi,%rsi; je with a 32-bit displacement; push (3.13, _PyObject_Free) */
static void test_long_conditional_branch(void **state)
{
	(void)state;
	struct plan_site site = PLAN(&free_implementation, 0x48, 0x85, 0xf6, 0x0f, 0x84, 0x9f, 0x00,
				     0x00, 0x00, 0x55, 0x53, 0x48, 0x89, 0xf3);

	expect_emulated(&site, 3, "je 0x16a628", "je at +3 is emulated; address still in %rsi");
	expect(&site, &free_implementation, ABI_REG_SI, NONE, NONE);
}

/*
 * push %rbp; push %rbx (3.13, _PyObject_Malloc): before the push has run, the stack is as at the
 * entry
 */
static void test_first_push(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&malloc_implementation, 0x55, 0x53, 0x48, 0x89, 0xf3, 0x48, 0x83, 0xec, 0x08);

	expect_emulated(&site, 0, "pushq %rbp", "push at +0 is emulated; bytes still in %rsi");
}

/* lea -1(%rsi),%rax; push %rbx (3.11, _PyObject_Malloc) */
static void test_push_after_another(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&malloc_implementation, 0x48, 0x8d, 0x46, 0xff, 0x53, 0x48, 0x89, 0xf3);

	expect_emulated(&site, 4, "pushq %rbx", "push at +4 is emulated; bytes still in %rsi");
}

/* push %r14 and a domain in %edi (3.13, PyTraceMalloc_Track) */
static void test_push_extended_register(void **state)
{
	(void)state;
	struct plan_site site = PLAN(&track, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54);

	expect_emulated(
		&site, 0, "pushq %r14",
		"push at +0 is emulated; domain still in %rdi, address still in %rsi, bytes still "
		"in %rdx");
	expect(&site, &track, ABI_REG_DI, ABI_REG_SI, ABI_REG_DX);
}

/* test; mov; cmovne %rsi,%rax; mov %rax,%rdi; jmp malloc@plt (3.13, _PyMem_RawMalloc) */
static void test_tail_jump(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&malloc_implementation, 0x48, 0x85, 0xf6, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x48,
		     0x0f, 0x45, 0xc6, 0x48, 0x89, 0xc7, 0xe9, 0x74, 0x96, 0xf3, 0xff);

	expect_emulated(&site, 15, "jmp 0xa3c08", "jmp at +15 is emulated; bytes still in %rsi");

	/* mov %rsi,%rdi; jmp free@plt (_PyMem_RawFree) */
	site = PLAN(&free_implementation, 0x48, 0x89, 0xf7, 0xe9, 0xc0, 0x9f, 0xf3, 0xff);
	expect_emulated(&site, 3, "jmp 0xa4548", "jmp at +3 is emulated; address still in %rsi");
}

/* mov %rsi,%rdi; mov %rdx,%rsi; test; je (3.13, _PyMem_RawCalloc): the count has moved to %rdi */
static void test_moved_arguments(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&calloc_implementation, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x85, 0xff,
		     0x74, 0x0d, 0x48, 0x85, 0xd2, 0x74, 0x08, 0xe9, 0xbb, 0x83, 0xf3, 0xff, 0x0f,
		     0x1f, 0x00, 0xbe, 0x01, 0x00, 0x00, 0x00, 0xbf, 0x01, 0x00, 0x00, 0x00);

	expect_emulated(&site, 9, "je 0x16a598",
			"je at +9 is emulated; count in %rdi, bytes still in %rdx");
	expect(&site, &calloc_implementation, ABI_REG_DI, ABI_REG_DX, NONE);
}

/* mov; mov %rdi,%rsi; mov 0x310(%rax),%rdi; jmp *0x330(%rax) (3.13, PyObject_Free) */
static void test_indirect_tail_jump(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&free_public, 0x48, 0x8b, 0x05, 0x79, 0x06, 0x38, 0x00, 0x48, 0x89, 0xfe, 0x48,
		     0x8b, 0xb8, 0x10, 0x03, 0x00, 0x00, 0xff, 0xa0, 0x30, 0x03, 0x00, 0x00);

	expect_entry(&site, "movq 0x380679(%rip), %rax",
		     "entry (two traps): no emulated instruction up to jmp at +17");
	expect(&site, &free_public, ABI_REG_DI, NONE, NONE);
}

/* mov; mov; test; jne (3.13, Py_FinalizeEx) */
static void test_no_arguments(void **state)
{
	(void)state;
	struct plan_site site =
		PLAN(&finalize, 0x48, 0x8b, 0x05, 0x79, 0xac, 0x25, 0x00, 0x8b, 0x80, 0x58, 0x02,
		     0x00, 0x00, 0x85, 0xc0, 0x75, 0x07, 0x31, 0xc0, 0xc3);

	expect_emulated(&site, 15, "jne 0x16a598", "jne at +15 is emulated");
	expect(&site, &finalize, NONE, NONE, NONE);
}

static void test_copies(void **state)
{
	(void)state;
	/* mov %rdi,%rbx; mov %rbx,%r12; xor %edi,%edi; xor %ebx,%ebx; nop */
	struct plan_site site = PLAN(&free_public, 0x48, 0x89, 0xfb, 0x49, 0x89, 0xdc, 0x31, 0xff,
				     0x31, 0xdb, 0x90);

	expect_emulated(&site, 10, "nop", "nop at +10 is emulated; address in %r12");
	expect(&site, &free_public, ABI_REG_R12, NONE, NONE);

	/* mov %rdi,%rax; cmpxchg %rsi,(%rdx), which writes %rax; xor %edi,%edi; nop */
	site = PLAN(&free_public, 0x48, 0x89, 0xf8, 0x48, 0x0f, 0xb1, 0x32, 0x31, 0xff, 0x90);
	assert_int_equal(site.emulated, 0);
	/* mov %rdi,%rdi keeps it */
	site = PLAN(&free_public, 0x48, 0x89, 0xff, 0x90);
	expect_emulated(&site, 3, "nop", "nop at +3 is emulated; address still in %rdi");
	/* mov %rdi,%rax; mov (%rax),%rdi; mov %rax,%rdi: back where it was */
	site = PLAN(&free_public, 0x48, 0x89, 0xf8, 0x48, 0x8b, 0x38, 0x48, 0x89, 0xc7, 0x90);
	expect_emulated(&site, 9, "nop", "nop at +9 is emulated; address still in %rdi");
}

static void test_call(void **state)
{
	(void)state;
	/* mov %rdi,%rax; call */
	struct plan_site site =
		PLAN(&malloc_public, 0x48, 0x89, 0xf8, 0xe8, 0x00, 0x01, 0x00, 0x00, 0x53);

	expect_emulated(&site, 3, "callq 0x16a688", "call at +3 is emulated; bytes still in %rdi");
}

static void test_endbr(void **state)
{
	(void)state;
	/* endbr64; test %rsi,%rsi; je */
	struct plan_site site = PLAN(&free_implementation, 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x85, 0xf6,
				     0x74, 0x10, 0xc3);

	expect_emulated(&site, 7, "je 0x16a599", "je at +7 is emulated; address still in %rsi");
	/* endbr64; ret */
	site = PLAN(&free_implementation, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3);
	expect_entry(&site, "endbr64",
		     "entry (two traps): no emulated instruction up to ret at +4");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conditional_branch),
		cmocka_unit_test(test_long_conditional_branch),
		cmocka_unit_test(test_first_push),
		cmocka_unit_test(test_push_after_another),
		cmocka_unit_test(test_push_extended_register),
		cmocka_unit_test(test_tail_jump),
		cmocka_unit_test(test_moved_arguments),
		cmocka_unit_test(test_indirect_tail_jump),
		cmocka_unit_test(test_no_arguments),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_call),
		cmocka_unit_test(test_endbr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
