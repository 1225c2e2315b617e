/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions at which no probe may be placed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "function_plans.h"
#include "probe/place/function_entry.h"
#include "probe/python/plan.h"

/* Every way to lose %rdi. The push that follows must not be taken as the site. */
static void test_lost_argument(void **state)
{
	(void)state;
	static const struct {
		uint8_t code[9], bytes;
	} writes[] = {
		{{0x31, 0xff}, 2},                         /* xor %edi,%edi */
		{{0x40, 0xb7, 0x01}, 3},                   /* mov $1,%dil */
		{{0x66, 0xbf, 0x01, 0x00}, 4},             /* mov $1,%di */
		{{0x48, 0xff, 0xc7}, 3},                   /* inc %rdi */
		{{0x48, 0x8d, 0x7f, 0x10}, 4},             /* lea 16(%rdi),%rdi */
		{{0x48, 0x8b, 0x3f}, 3},                   /* mov (%rdi),%rdi */
		{{0x48, 0x87, 0xf7}, 3},                   /* xchg %rsi,%rdi */
		{{0x48, 0x87, 0xfe}, 3},                   /* xchg %rdi,%rsi */
		{{0x48, 0x0f, 0xc1, 0xfe}, 4},             /* xadd %rdi,%rsi */
		{{0x40, 0x0f, 0x94, 0xc7}, 4},             /* sete %dil */
		{{0x66, 0x48, 0x0f, 0x7e, 0xc7}, 5},       /* movq %xmm0,%rdi */
		{{0x48, 0x0f, 0xa5, 0xf7}, 4},             /* shld %cl,%rsi,%rdi */
		{{0x48, 0xf7, 0xe7, 0x48, 0x89, 0xc7}, 6}, /* mul %rdi; mov %rax,%rdi */
		{{0xa4}, 1},                               /* movsb: implicit */
		/* mulx %rax,%rdi,%rsi: two destinations */
		{{0xc4, 0xe2, 0xc3, 0xf6, 0xf0}, 5},
		{{0x89, 0xff}, 2},                   /* mov %edi,%edi truncates it */
		{{0x48, 0x89, 0xf8, 0x89, 0xc7}, 5}, /* mov %rdi,%rax; mov %eax,%edi … */
	};

	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		uint8_t code[16];
		size_t bytes = writes[i].bytes;
		struct plan_site site;

		memcpy(code, writes[i].code, bytes);
		if (i == sizeof(writes) / sizeof(writes[0]) - 1) {
			/* … xor %eax,%eax: the copy is lost too */
			memcpy(code + bytes, "\x31\xc0", 2);
			bytes += 2;
		}
		code[bytes] = 0x53;
		site = plan(&free_public, code, bytes + 1);
		assert_int_equal(site.emulated, 0);
		assert_int_equal(site.in_function, 0);
		assert_non_null(strstr(site.why, "before address is lost at +"));
		expect(&site, &free_public, ABI_REG_DI, NONE, NONE);
	}
}

static void test_lost_argument_is_named(void **state)
{
	(void)state;
	/* xor %edx,%edx; push %rbx */
	struct plan_site site = PLAN(&calloc_implementation, 0x31, 0xd2, 0x53);

	expect_entry(&site, "xorl %edx, %edx",
		     "entry (two traps): no emulated instruction before bytes is lost at +0");
	expect(&site, &calloc_implementation, ABI_REG_SI, ABI_REG_DX, NONE);
}

/* Instructions that not every kernel emulates. */
static void test_not_emulated(void **state)
{
	(void)state;
	static const uint8_t others[][8] = {
		{0x66, 0x90, 0xc3},                         /* xchg %ax,%ax */
		{0xf3, 0x90, 0xc3},                         /* pause */
		{0x0f, 0x1f, 0x00, 0xc3},                   /* nopl (%rax) */
		{0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3},       /* nopl 0(%rax,%rax) */
		{0x66, 0x55, 0xc3},                         /* push %bp */
		{0x48, 0x55, 0xc3},                         /* push with a needless prefix */
		{0x6a, 0x00, 0xc3},                         /* push $0 */
		{0xff, 0x30, 0xc3},                         /* push (%rax) */
		{0x58, 0xc3},                               /* pop */
		{0xe3, 0x02, 0x90, 0x90, 0xc3},             /* jrcxz */
		{0xe2, 0x02, 0x90, 0x90, 0xc3},             /* loop */
		{0xff, 0xd0, 0x90, 0xc3},                   /* call *%rax */
		{0xff, 0xe0, 0x90, 0xc3},                   /* jmp *%rax */
		{0x3e, 0x74, 0x01, 0x90, 0xc3},             /* je with a hint */
		{0xf2, 0xe9, 0x01, 0x00, 0x00, 0x00, 0x90}, /* bnd jmp */
		{0xc3, 0x90},                               /* ret */
		{0x0f, 0x05, 0x90, 0xc3},                   /* syscall */
		{0x0f, 0x0b, 0x90, 0xc3},                   /* ud2 */
		{0xcc, 0x90, 0xc3},                         /* int3 */
		{0xf4, 0x90, 0xc3},                         /* hlt */
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct plan_site site = plan(&finalize, others[i], sizeof(others[i]));

		assert_int_equal(site.emulated, 0);
		assert_int_equal(site.in_function, 0);
	}
}

/* If the return is probed, the return address must be where the entry left it. */
static void test_stack_moved(void **state)
{
	(void)state;
	static const uint8_t moves[][4] = {
		{0x48, 0x83, 0xec, 0x08}, /* sub $8,%rsp */
		{0xff, 0x30, 0x90, 0x90}, /* push (%rax) */
		{0x6a, 0x01, 0x90, 0x90}, /* push $1 */
		{0x58, 0x90, 0x90, 0x90}, /* pop %rax */
		{0xc9, 0x90, 0x90, 0x90}, /* leave */
		{0xc8, 0x10, 0x00, 0x00}, /* enter */
		{0x9c, 0x90, 0x90, 0x90}, /* pushf */
	};

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		uint8_t code[5];
		struct plan_site site;

		memcpy(code, moves[i], 4);
		code[4] = 0x53; /* push %rbx */
		site = plan(&malloc_public, code, sizeof(code));
		assert_int_equal(site.emulated, 0);
		assert_string_equal(
			site.why,
			"entry (two traps): no emulated instruction before the stack moves at +0");
		/* free has no return to probe */
		site = plan(&free_public, code, sizeof(code));
		assert_int_equal(site.emulated, 1);
		assert_true(site.in_function > 0);
	}
}

/* A jump target may run more than once per call. So may all code between it and the jump. */
static void test_jump_target(void **state)
{
	(void)state;
	/* dec %rsi; [+3] inc %rax; jne -5 */
	struct plan_site site =
		PLAN(&free_public, 0x48, 0xff, 0xce, 0x48, 0xff, 0xc0, 0x75, 0xfb, 0xc3);

	expect_entry(&site, "decq %rsi",
		     "entry (two traps): no emulated instruction before +3, where a jump leads");

	/* The jump back may be far behind its target: dec %rsi; [+3] nop; ret; … jmp +3 */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0xe9, 0xf5,
		    0xff, 0xff, 0xff);
	assert_int_equal(site.emulated, 0);
	/* … and behind bytes that are not an instruction */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0x06, 0x06, 0x06, 0xeb, 0xf9);
	assert_int_equal(site.emulated, 0);
	/* … and be a loop or a jrcxz */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xe2, 0xfc);
	assert_int_equal(site.emulated, 0);
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xe3, 0xfc);
	assert_int_equal(site.emulated, 0);

	/* A jump to the entry is equivalent to a call. */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xeb, 0xf9);
	expect_emulated(&site, 3, "nop", "nop at +3 is emulated; address still in %rdi");
	/* A jump to code after the site is harmless. */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x75, 0x01, 0xc3, 0x90, 0xeb, 0xfd);
	expect_emulated(&site, 3, "jne 0x16a586", "jne at +3 is emulated; address still in %rdi");
}

static void test_cut_and_garbage(void **state)
{
	(void)state;
	/* test %rsi,%rsi and nothing else */
	struct plan_site site = PLAN(&free_implementation, 0x48, 0x85, 0xf6);

	expect_entry(&site, "testq %rsi, %rsi",
		     "entry (two traps): no emulated instruction in the 3 bytes known");
	/* … and a part of a je */
	site = PLAN(&free_implementation, 0x48, 0x85, 0xf6, 0x0f, 0x84, 0x9f);
	expect_entry(&site, "testq %rsi, %rsi",
		     "entry (two traps): the code at +3 cannot be decoded");
	/* not an instruction in 64-bit code */
	site = PLAN(&free_implementation, 0x06, 0x53);
	expect_entry(&site, "(bad)", "entry (two traps): the code at +0 cannot be decoded");
	expect(&site, &free_implementation, ABI_REG_SI, NONE, NONE);
	site = PLAN(&free_implementation, 0x06);
	assert_int_equal(site.emulated, 0);
}

static void test_bounds(void **state)
{
	(void)state;
	struct plan_site site;
	size_t bytes = FUNCTION_MAX_CODE + 64;
	uint8_t *code = malloc(bytes);

	assert_non_null(code);
	/* Code beyond the limit is not inspected: test %rsi,%rsi …, push */
	for (size_t i = 0; i < FUNCTION_MAX_CODE - 1; i += 3)
		memcpy(code + i, "\x48\x85\xf6", 3);
	memset(code + FUNCTION_MAX_CODE, 0x53, 64);
	site = plan(&free_implementation, code, bytes);
	assert_int_equal(site.emulated, 0);
	free(code);

	assert_int_equal(function_entry_site(&machine_x86, &free_public, (const uint8_t *)"", 0,
					     VADDR, &site),
			 -EINVAL);
	/* An address that wraps: test %rdi,%rdi; je */
	assert_int_equal(function_entry_site(&machine_x86, &free_public,
					     (const uint8_t *)"\x48\x85\xff\x74\x05", 5,
					     UINT64_MAX - 1, &site),
			 0);
	assert_int_equal(site.in_function, 3);
	assert_int_equal(site.vaddr, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_argument), cmocka_unit_test(test_lost_argument_is_named),
		cmocka_unit_test(test_not_emulated),  cmocka_unit_test(test_stack_moved),
		cmocka_unit_test(test_jump_target),   cmocka_unit_test(test_cut_and_garbage),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
