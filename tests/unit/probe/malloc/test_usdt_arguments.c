/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of USDT probes: every form of operand, and texts that are not arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <asm/ptrace.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/malloc/usdt_arguments.h"

#define AT(field) offsetof(struct pt_regs, field)
#define NONE      ABI_USDT_NONE
#define PROBE     0x1000

static int variable_find(void *context, const char *name, uint64_t *vaddr)
{
	(void)context;
	*vaddr = 0x4000;
	return strcmp(name, "counter.1") ? -ENOENT : 0;
}

static const struct usdt_symbols symbols = {variable_find, NULL, PROBE};

static void test_operands(void **state)
{
	static const struct {
		const char *text;
		struct abi_usdt_argument argument;
	} cases[] = {
		{"8@%rdi", {ABI_USDT_REGISTER, AT(rdi), NONE, 0, 8, 0, 0, 0}},
		{"-8@%r15", {ABI_USDT_REGISTER, AT(r15), NONE, 0, 8, 1, 0, 0}},
		{"-4@%eax", {ABI_USDT_REGISTER, AT(rax), NONE, 0, 4, 1, 0, 0}},
		{"4@%r9d", {ABI_USDT_REGISTER, AT(r9), NONE, 0, 4, 0, 0, 0}},
		{"2@%r10w", {ABI_USDT_REGISTER, AT(r10), NONE, 0, 2, 0, 0, 0}},
		{"1@%sil", {ABI_USDT_REGISTER, AT(rsi), NONE, 0, 1, 0, 0, 0}},
		{"-1@%ah", {ABI_USDT_REGISTER, AT(rax) + 1, NONE, 0, 1, 1, 0, 0}},
		{"1@%r8b", {ABI_USDT_REGISTER, AT(r8), NONE, 0, 1, 0, 0, 0}},
		/* The register has fewer bytes than the argument. */
		{"8@%ecx", {ABI_USDT_REGISTER, AT(rcx), NONE, 0, 4, 0, 0, 0}},
		{"8@$5", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, 5}},
		{"-4@$-1", {ABI_USDT_CONSTANT, NONE, NONE, 0, 4, 1, 0, -1}},
		{"8@$0x10", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, 16}},
		{"8@$18446744073709551615", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, -1}},
		{"-4@-20(%rbp)", {ABI_USDT_MEMORY, AT(rbp), NONE, 0, 4, 1, 0, -20}},
		{"8@(%rsp)", {ABI_USDT_MEMORY, AT(rsp), NONE, 0, 8, 0, 0, 0}},
		{"8@16(%rax,%rcx,8)", {ABI_USDT_MEMORY, AT(rax), AT(rcx), 3, 8, 0, 0, 16}},
		{"8@(%rax,%r11)", {ABI_USDT_MEMORY, AT(rax), AT(r11), 0, 8, 0, 0, 0}},
		{"2@0x40(,%rdx,2)", {ABI_USDT_MEMORY, NONE, AT(rdx), 1, 2, 0, 0, 64}},
		{"8@%fs:-16", {ABI_USDT_THREAD, NONE, NONE, 0, 8, 0, 0, -16}},
		{"8@%fs:8(%rbx)", {ABI_USDT_THREAD, AT(rbx), NONE, 0, 8, 0, 0, 8}},
		{"8@%fs:(%rbx)", {ABI_USDT_THREAD, AT(rbx), NONE, 0, 8, 0, 0, 0}},
		{"8@counter.1(%rip)", {ABI_USDT_MEMORY, AT(rip), NONE, 0, 8, 0, 0, 0x3000}},
		{"8@counter.1+8(%rip)", {ABI_USDT_MEMORY, AT(rip), NONE, 0, 8, 0, 0, 0x3008}},
		{"8@counter.1-8(%rip)", {ABI_USDT_MEMORY, AT(rip), NONE, 0, 8, 0, 0, 0x2ff8}},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct abi_usdt usdt = {0};

		if (usdt_arguments_parse(&machine_x86, cases[i].text, 1, &symbols, &usdt))
			fail_msg("%s is not understood", cases[i].text);
		if (memcmp(&usdt.arguments[0], &cases[i].argument, sizeof(cases[i].argument)))
			fail_msg("%s is understood otherwise", cases[i].text);
	}
}

static void test_several(void **state)
{
	struct abi_usdt usdt = {0};
	(void)state;

	assert_int_equal(
		usdt_arguments_parse(&machine_x86, " 8@%rax  8@$3 -4@%edx ", 3, NULL, &usdt), 0);
	assert_int_equal(usdt.arguments[1].value, 3);
	assert_int_equal(usdt.arguments[2].base, AT(rdx));
	assert_int_equal(usdt_arguments_parse(&machine_x86, "8@%rax 8@$3", 3, NULL, &usdt),
			 -EINVAL);
	assert_int_equal(usdt_arguments_parse(&machine_x86, "8@%rax 8@$3", 1, NULL, &usdt),
			 -EINVAL);
	assert_int_equal(usdt_arguments_parse(&machine_x86, "", 1, NULL, &usdt), -EINVAL);
}

#define X(number) (8 * (number))
#define SP        X(31)

static void test_arm64(void **state)
{
	static const struct {
		const char *text;
		struct abi_usdt_argument argument;
	} cases[] = {
		{"8@x0", {ABI_USDT_REGISTER, X(0), NONE, 0, 8, 0, 0, 0}},
		{"-8@x30", {ABI_USDT_REGISTER, X(30), NONE, 0, 8, 1, 0, 0}},
		{"8@sp", {ABI_USDT_REGISTER, SP, NONE, 0, 8, 0, 0, 0}},
		{"-4@w1", {ABI_USDT_REGISTER, X(1), NONE, 0, 4, 1, 0, 0}},
		{"2@w17", {ABI_USDT_REGISTER, X(17), NONE, 0, 2, 0, 0, 0}},
		{"8@w9", {ABI_USDT_REGISTER, X(9), NONE, 0, 4, 0, 0, 0}},
		{"8@xzr", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, 0}},
		{"4@wzr", {ABI_USDT_CONSTANT, NONE, NONE, 0, 4, 0, 0, 0}},
		{"8@5", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, 5}},
		{"-4@-1", {ABI_USDT_CONSTANT, NONE, NONE, 0, 4, 1, 0, -1}},
		{"8@#0x10", {ABI_USDT_CONSTANT, NONE, NONE, 0, 8, 0, 0, 16}},
		{"8@[sp]", {ABI_USDT_MEMORY, SP, NONE, 0, 8, 0, 0, 0}},
		{"-4@[sp, 20]", {ABI_USDT_MEMORY, SP, NONE, 0, 4, 1, 0, 20}},
		{"8@[x29, -16]", {ABI_USDT_MEMORY, X(29), NONE, 0, 8, 0, 0, -16}},
		{"1@[x19,#8]", {ABI_USDT_MEMORY, X(19), NONE, 0, 1, 0, 0, 8}},
		{"8@[x0, x1]", {ABI_USDT_MEMORY, X(0), X(1), 0, 8, 0, 0, 0}},
		{"4@[ x0, x1, lsl 3 ]", {ABI_USDT_MEMORY, X(0), X(1), 3, 4, 0, 0, 0}},
		{"4@[x0, x1, lsl #2]", {ABI_USDT_MEMORY, X(0), X(1), 2, 4, 0, 0, 0}},
	};
	static const char *const refused[] = {
		"8@",
		"8@x31",
		"8@x",
		"8@v0",
		"8@q0",
		"8@d8",
		"8@w",
		"8@pc",
		"8@x0]",
		"8@[x0",
		"8@[w0]",
		"8@[x0, w1]",
		"8@[x0, sp]",
		"8@[x0, x1, lsl 4]",
		"8@[x0, x1, uxtw]",
		"8@[x0, x1, lsl]",
		"8@[]",
		"8@[x0, ]",
		"8@[x0], 8",
		"8@[x0, 8]!",
		"8@[x0, #]",
		"8@[x0, #:lo12:name]",
		"8@[8]",
		"8@#",
		"8@name",
		"8@%rdi",
		"8@$5",
		"16@x0",
		"8@x0x1",
		"8@xzr1",
		"8@]",
		"8@[x0]]",
		"8@[[x0]",
	};
	struct abi_usdt usdt = {0};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (usdt_arguments_parse(&machine_arm64, cases[i].text, 1, &symbols, &usdt))
			fail_msg("%s is not understood", cases[i].text);
		if (memcmp(&usdt.arguments[0], &cases[i].argument, sizeof(cases[i].argument)))
			fail_msg("%s is understood otherwise", cases[i].text);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (usdt_arguments_parse(&machine_arm64, refused[i], 1, &symbols, &usdt) != -EINVAL)
			fail_msg("%s is understood", refused[i]);
	/* A space within brackets does not end an argument. */
	assert_int_equal(
		usdt_arguments_parse(&machine_arm64, "8@[sp, 16]  -4@x0 8@[x1, 8]", 3, NULL, &usdt),
		0);
	assert_int_equal(usdt.arguments[0].value, 16);
	assert_int_equal(usdt.arguments[1].kind, ABI_USDT_REGISTER);
	assert_int_equal(usdt.arguments[2].base, X(1));
	assert_int_equal(usdt_arguments_parse(&machine_arm64, "8@[sp, 16 8@x0", 2, NULL, &usdt),
			 -EINVAL);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"8@",
		"@%rax",
		"%rax",
		"3@%rax",
		"16@%rax",
		"0@%rax",
		"8@%rip",
		"8@%xmm0",
		"8f@%xmm0",
		"8@%rax1",
		"8@%r7",
		"8@%r16",
		"8@%",
		"8@%gs:8",
		"8@8",
		"8@8(%rax",
		"8@8(%eax)",
		"8@8(%rax,%rcx,3)",
		"8@8(%rax,%rcx,16)",
		"8@(%rax,%rcx,)",
		"8@()",
		"8@$",
		"8@$x",
		"8@$99999999999999999999",
		"8@%rax,",
		"8@unknown(%rip)",
		"8@counter.1",
		"8@counter.1(%rax)",
		"8@8(%rip)",
		"8@counter.1+(%rip)",
		"8@%rrrrrrrrrrrrrrrr",
		"8@%fs:",
		"8@*(%rax)",
		"8@8(%rax)8",
		"99999999999999999999@%rax",
	};
	char text[2 * USDT_ARGUMENTS_MAX] = "8@";
	struct abi_usdt usdt;
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (usdt_arguments_parse(&machine_x86, texts[i], 1, &symbols, &usdt) != -EINVAL)
			fail_msg("%s is understood", texts[i]);
	memset(text + 2, 'a', sizeof(text) - 3);
	assert_int_equal(usdt_arguments_parse(&machine_x86, text, 1, &symbols, &usdt), -EINVAL);
	text[USDT_ARGUMENTS_MAX] = '\0';
	assert_int_equal(usdt_arguments_parse(&machine_x86, text, 1, &symbols, &usdt), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_arm64),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
