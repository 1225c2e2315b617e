/* SPDX-License-Identifier: Apache-2.0 */
/* Where an interpreter's shutdown is probed: which instructions precede its first call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "probe/python/plan_finalize.h"

/* Never run. Code in the style of CPython 3.11, of 3.13, and of neither. */
__asm__(".pushsection .text\n"
	"path_begin:\n"
	"straight: push %rbp\n"
	"straight_sub: sub $24, %rsp\n"
	"straight_je: je straight_return\n"
	"straight_mov: mov %r13, %rdi\n"
	"straight_call: call path_end\n"
	"nop\n"
	"straight_return: add $24, %rsp\n"
	"pop %rbp\n"
	"ret\n"
	"early: test %eax, %eax\n"
	"early_jne: jne early_jmp\n"
	"xor %eax, %eax\n"
	"ret\n"
	"early_jmp: jmp early_body\n"
	"nop\n"
	"early_body: push %r13\n"
	"early_call: call path_end\n"
	"doubt: push %rbx\n"
	"doubt_je: je doubt_other\n"
	"call path_end\n"
	"doubt_other: nop\n"
	"call path_end\n"
	"endless: jmp endless\n"
	"locked: lock addl $1, (%rdi)\n"
	"locked_push: push %rbx\n"
	"locked_jmp: jmp *%rax\n"
	"path_end: ret\n"
	".popsection\n");

extern const uint8_t path_begin[], path_end[], straight[], straight_sub[], straight_je[],
	straight_mov[], straight_call[], early[], early_jne[], early_jmp[], early_body[],
	early_call[], doubt[], doubt_je[], endless[], locked[], locked_push[];

static int code_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	size_t left = (uintptr_t)path_end + 1 - vaddr;

	(void)context;
	if (vaddr < (uintptr_t)path_begin || vaddr > (uintptr_t)path_end)
		return 0;
	bytes = left < bytes ? left : bytes;
	memcpy(out, (const void *)(uintptr_t)vaddr, bytes);
	return (int)bytes;
}

static size_t follow(const uint8_t *function, struct plan_piece *pieces, size_t capacity)
{
	return plan_finalize_path(code_read, NULL, (uintptr_t)function, pieces, capacity);
}

static void expect_path(const uint8_t *const *path, size_t count)
{
	struct plan_piece pieces[PLAN_PIECES];

	assert_int_equal(follow(path[0], pieces, PLAN_PIECES), count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(pieces[i].vaddr, (uintptr_t)path[i]);
}

#define EXPECT_PATH(...)                                                                           \
	expect_path((const uint8_t *const[]){__VA_ARGS__},                                         \
		    sizeof((const uint8_t *const[]){__VA_ARGS__}) / sizeof(uint8_t *))

static void test_straight(void **state)
{
	struct plan_piece pieces[2];

	(void)state;
	EXPECT_PATH(straight, straight_sub, straight_je, straight_mov, straight_call);
	assert_int_equal(follow(straight, pieces, 2), 2);
	assert_true(pieces[0].emulated && !pieces[1].emulated);
	assert_string_equal(pieces[0].instruction, "push rbp");
}

/*
 * The function returns at once if there is nothing to shut down. Otherwise it jumps to the code
 * that shuts down.
 */
static void test_early_return(void **state)
{
	(void)state;
	EXPECT_PATH(early, early_jne, early_jmp, early_body, early_call);
}

/* Which branch is taken is unknown. */
static void test_doubt(void **state)
{
	(void)state;
	EXPECT_PATH(doubt, doubt_je);
}

/* A probe is placed only where the kernel is certain to accept it. */
static void test_others(void **state)
{
	struct plan_piece pieces[PLAN_PIECES];

	(void)state;
	assert_int_equal(follow(locked, pieces, PLAN_PIECES), 1);
	assert_int_equal(pieces[0].vaddr, (uintptr_t)locked_push);
	assert_int_equal(follow(path_end + 1, pieces, PLAN_PIECES), 0);
	assert_int_equal(follow(endless, pieces, PLAN_PIECES), PLAN_PIECES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_straight),
		cmocka_unit_test(test_early_return),
		cmocka_unit_test(test_doubt),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
