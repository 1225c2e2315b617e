/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function keeps its return address at a probe in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assembly.h"
#include "machine/machine.h"
#include "native/usdt_frame.h"

#define NOT ABI_USDT_NOT_SAVED

static void test_frames(void **state)
{
	static const struct {
		const char *code; /* up to the probe */
		uint32_t frame, return_at, saved_at;
	} cases[] = {
		{"", ABI_USDT_FRAME_STACK, 0, NOT},
		{"endbr64; test %rdi,%rdi; je 1f; mov %rdi,%rax", ABI_USDT_FRAME_STACK, 0, NOT},
		{"sub $24,%rsp; mov %rdi,8(%rsp)", ABI_USDT_FRAME_STACK, 24, NOT},
		{"push %rbx; push %rbp; sub $8,%rsp; mov %rdi,%rbp", ABI_USDT_FRAME_STACK, 24, 8},
		{"sub $8,%rsp; call 1f; add $8,%rsp", ABI_USDT_FRAME_STACK, 0, NOT},
		{"push %rbp; pop %rbp", ABI_USDT_FRAME_STACK, 0, NOT},
		{"push %rbp; mov %rsp,%rbp; push %rbx; jmp 1f; ret", ABI_USDT_FRAME_POINTER, 0,
		 NOT},
		{"endbr64; push %rbp; mov %rdi,%rax; mov %rsp,%rbp", ABI_USDT_FRAME_POINTER, 0,
		 NOT},
		/* A loop that is entered in its middle; a way that a branch leads to. */
		{"push %rbx; jmp 3f; 2: inc %rax; 3: cmp %rax,%rdi; jne 2b", ABI_USDT_FRAME_STACK,
		 8, NOT},
		{"test %rdi,%rdi; je 2f; push %rbx; call 1f; pop %rbx; ret; 2: sub $8,%rsp",
		 ABI_USDT_FRAME_STACK, 8, NOT},
		{"push %rbp; test %rdi,%rdi; je 2f; mov %rsp,%rbp; leave; ret; 2: push %rbx",
		 ABI_USDT_FRAME_STACK, 16, 8},
		/* No way leads to the probe, or none that is understood. */
		{"2: test %rdi,%rdi; je 2b; ret", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"jmp *%rax", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"jmp 1f", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"push %rbx; leave", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"and $-16,%rsp", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"sub %rax,%rsp", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"lea -8(%rsp),%rsp", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"mov %rdi,%rsp", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"pop %rbx", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"sub $0x100000,%rsp", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
		{"ud2; .byte 0x06", ABI_USDT_FRAME_UNKNOWN, 0, NOT},
	};
	struct inline_decoder decoder;
	(void)state;

	assert_int_equal(inline_decoder_open(&decoder, &machine_x86), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_file *file = assembly_open(
			"",
			".text\n.globl f\n.type f,@function\nf: %s\n.globl probe\nprobe: nop\n"
			"1: ret\n.size f,.-f\n",
			cases[i].code);
		struct elf_symbol function, probe;
		struct abi_usdt usdt;
		uint8_t code[64];
		int count;

		assert_int_equal(elf_file_symbol(file, "f", &function), 0);
		assert_int_equal(elf_file_symbol(file, "probe", &probe), 0);
		count = elf_file_read(file, function.vaddr, code, probe.vaddr - function.vaddr);
		assert_int_equal(count, probe.vaddr - function.vaddr);
		usdt_frame_find(&decoder, code, (size_t)count, function.vaddr, &usdt);
		if (usdt.frame != cases[i].frame || usdt.return_at != cases[i].return_at ||
		    usdt.saved_at != cases[i].saved_at)
			fail_msg("%s: frame %u, %u, %u", cases[i].code, usdt.frame, usdt.return_at,
				 usdt.saved_at);
		elf_file_close(file);
	}
	inline_decoder_close(&decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_frames)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
