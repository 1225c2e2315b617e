/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner on the first bytes of functions. Comments name the CPython build that the bytes are
 * from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "plan/plan.h"
#include "x86/function_entry.h"

#define VADDR 0x16a580
#define NONE  ABI_REG_COUNT

static const struct plan_wish malloc_public = {
	"PyObject_Malloc", ABI_OP_MALLOC, EVENT_API_OBJ, {ABI_REG_DI, NONE, NONE}, 1};
static const struct plan_wish malloc_implementation = {
	"_PyObject_Malloc", ABI_OP_MALLOC, EVENT_API_OBJ, {ABI_REG_SI, NONE, NONE}, 1};
static const struct plan_wish calloc_implementation = {
	"_PyMem_RawCalloc", ABI_OP_CALLOC, EVENT_API_RAW, {ABI_REG_SI, ABI_REG_DX, NONE}, 1};
static const struct plan_wish free_public = {
	"PyObject_Free", ABI_OP_FREE, EVENT_API_OBJ, {ABI_REG_DI, NONE, NONE}, 0};
static const struct plan_wish free_implementation = {
	"_PyObject_Free", ABI_OP_FREE, EVENT_API_OBJ, {ABI_REG_SI, NONE, NONE}, 0};
static const struct plan_wish track = {"PyTraceMalloc_Track",
				       ABI_OP_TRACK,
				       EVENT_API_TRACK,
				       {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX},
				       0};
static const struct plan_wish finalize = {
	"Py_FinalizeEx", ABI_OP_FINALIZE, 0, {NONE, NONE, NONE}, 0};

/*
 * The bytes are copied to a block of just their size: the address sanitizer sees a read beyond
 * them.
 */
static struct plan_site plan(const struct plan_wish *wish, const void *code, size_t bytes)
{
	struct plan_site site;
	uint8_t *copy = malloc(bytes);

	assert_non_null(copy);
	memcpy(copy, code, bytes);
	memset(&site, 0xa5, sizeof(site));
	assert_int_equal(function_entry_site(wish, copy, bytes, VADDR, &site), 0);
	free(copy);
	assert_int_equal(site.vaddr, VADDR + site.in_function);
	assert_int_equal(site.op, wish->op);
	assert_int_equal(site.with_return, wish->with_return);
	return site;
}

#define PLAN(wish, ...)                                                                            \
	plan(wish, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void expect(const struct plan_site *site, const struct plan_wish *wish, uint32_t r0,
		   uint32_t r1, uint32_t r2)
{
	assert_int_equal(site->cookie, ABI_COOKIE(wish->op, wish->api, r0, r1, r2));
}

static void expect_emulated(const struct plan_site *site, uint32_t at, const char *instruction,
			    const char *why)
{
	assert_string_equal(site->why, why);
	assert_string_equal(site->instruction, instruction);
	assert_int_equal(site->in_function, at);
	assert_int_equal(site->emulated, 1);
}

static void expect_entry(const struct plan_site *site, const char *instruction, const char *why)
{
	assert_string_equal(site->why, why);
	assert_string_equal(site->instruction, instruction);
	assert_int_equal(site->in_function, 0);
	assert_int_equal(site->emulated, 0);
}

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
 * push %rbp; push %rbx (3.13, _PyObject_Malloc): before the push has run, the stack is the entry's
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

/* Every way to lose %rdi, then a push, which must not be taken. */
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
		{{0x89, 0xff}, 2},                   /* mov %edi,%edi cuts it */
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

/* Nothing but these is emulated by every kernel. */
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

static void test_call(void **state)
{
	(void)state;
	/* mov %rdi,%rax; call */
	struct plan_site site =
		PLAN(&malloc_public, 0x48, 0x89, 0xf8, 0xe8, 0x00, 0x01, 0x00, 0x00, 0x53);

	expect_emulated(&site, 3, "callq 0x16a688", "call at +3 is emulated; bytes still in %rdi");
}

/* With the return wanted, the return address must be where the entry left it. */
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
		/* free has no return to wait for */
		site = plan(&free_public, code, sizeof(code));
		assert_int_equal(site.emulated, 1);
		assert_true(site.in_function > 0);
	}
}

/* What is jumped to may run more than once a call; so may all that follows up to the jump. */
static void test_jump_target(void **state)
{
	(void)state;
	/* dec %rsi; [+3] inc %rax; jne -5 */
	struct plan_site site =
		PLAN(&free_public, 0x48, 0xff, 0xce, 0x48, 0xff, 0xc0, 0x75, 0xfb, 0xc3);

	expect_entry(&site, "decq %rsi",
		     "entry (two traps): no emulated instruction before +3, where a jump leads");

	/* The jump back may stand far behind: dec %rsi; [+3] nop; ret; … jmp +3 */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0xe9, 0xf5,
		    0xff, 0xff, 0xff);
	assert_int_equal(site.emulated, 0);
	/* … and behind bytes that are no instruction */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0x06, 0x06, 0x06, 0xeb, 0xf9);
	assert_int_equal(site.emulated, 0);
	/* … and be a loop or a jrcxz */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xe2, 0xfc);
	assert_int_equal(site.emulated, 0);
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xe3, 0xfc);
	assert_int_equal(site.emulated, 0);

	/* A jump to the entry is as good as a call. */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x90, 0xc3, 0xeb, 0xf9);
	expect_emulated(&site, 3, "nop", "nop at +3 is emulated; address still in %rdi");
	/* One to what follows the site does no harm. */
	site = PLAN(&free_public, 0x48, 0xff, 0xce, 0x75, 0x01, 0xc3, 0x90, 0xeb, 0xfd);
	expect_emulated(&site, 3, "jne 0x16a586", "jne at +3 is emulated; address still in %rdi");
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

static void test_cut_and_garbage(void **state)
{
	(void)state;
	/* test %rsi,%rsi and no more */
	struct plan_site site = PLAN(&free_implementation, 0x48, 0x85, 0xf6);

	expect_entry(&site, "testq %rsi, %rsi",
		     "entry (two traps): no emulated instruction in the 3 bytes known");
	/* … and a piece of a je */
	site = PLAN(&free_implementation, 0x48, 0x85, 0xf6, 0x0f, 0x84, 0x9f);
	expect_entry(&site, "testq %rsi, %rsi",
		     "entry (two traps): the code at +3 cannot be decoded");
	/* no instruction of 64-bit code */
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
	/* What lies beyond the limit is not looked at: test %rsi,%rsi …, push */
	for (size_t i = 0; i < FUNCTION_MAX_CODE - 1; i += 3)
		memcpy(code + i, "\x48\x85\xf6", 3);
	memset(code + FUNCTION_MAX_CODE, 0x53, 64);
	site = plan(&free_implementation, code, bytes);
	assert_int_equal(site.emulated, 0);
	free(code);

	assert_int_equal(function_entry_site(&free_public, (const uint8_t *)"", 0, VADDR, &site),
			 -EINVAL);
	/* An address that wraps: test %rdi,%rdi; je */
	assert_int_equal(function_entry_site(&free_public, (const uint8_t *)"\x48\x85\xff\x74\x05",
					     5, UINT64_MAX - 1, &site),
			 0);
	assert_int_equal(site.in_function, 3);
	assert_int_equal(site.vaddr, 1);
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
		cmocka_unit_test(test_lost_argument),
		cmocka_unit_test(test_lost_argument_is_named),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_not_emulated),
		cmocka_unit_test(test_call),
		cmocka_unit_test(test_stack_moved),
		cmocka_unit_test(test_jump_target),
		cmocka_unit_test(test_endbr),
		cmocka_unit_test(test_cut_and_garbage),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
