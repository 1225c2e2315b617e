/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function keeps its caller's registers at a place in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arm64_code.h"
#include "assembly.h"
#include "object/insn/frame.h"
#include "object/insn/machine.h"

#define KEPT    ABI_FRAME_KEPT
#define UNKNOWN ABI_FRAME_UNKNOWN, 0, KEPT, KEPT
#define VADDR   0x401000

struct frame_case {
	const char *code; /* up to the place */
	struct abi_frame frame;
};

static void check_frame(const struct frame_case *wanted, const struct machine *machine,
			const uint8_t *code, size_t count, uint64_t vaddr)
{
	struct inline_decoder decoder;
	struct abi_frame frame;

	assert_int_equal(inline_decoder_open(&decoder, machine), 0);
	machine_frame_find(&decoder, code, count, vaddr, &frame);
	inline_decoder_close(&decoder);
	if (memcmp(&frame, &wanted->frame, sizeof(frame)) != 0)
		fail_msg("%s: base %u: %u, %u, %u", wanted->code, frame.base, frame.end_at,
			 frame.return_at, frame.saved_at);
}

static void test_x86(void **state)
{
	static const struct frame_case cases[] = {
		{"", {ABI_FRAME_STACK, 8, 0, KEPT}},
		{"endbr64; test %rdi,%rdi; je 1f; mov %rdi,%rax", {ABI_FRAME_STACK, 8, 0, KEPT}},
		{"sub $24,%rsp; mov %rdi,8(%rsp)", {ABI_FRAME_STACK, 32, 24, KEPT}},
		{"push %rbx; push %rbp; sub $8,%rsp; mov %rdi,%rbp", {ABI_FRAME_STACK, 32, 24, 8}},
		{"sub $8,%rsp; call 1f; add $8,%rsp", {ABI_FRAME_STACK, 8, 0, KEPT}},
		{"push %rbp; pop %rbp", {ABI_FRAME_STACK, 8, 0, KEPT}},
		{"push %rbp; mov %rsp,%rbp; push %rbx; jmp 1f; ret", {ABI_FRAME_POINTER, 16, 8, 0}},
		{"endbr64; push %rbp; mov %rdi,%rax; mov %rsp,%rbp", {ABI_FRAME_POINTER, 16, 8, 0}},
		/* Of a variadic function: registers are stored where the arguments go on. */
		{"sub $0x58,%rsp; mov %r8,0x40(%rsp); mov $25,%eax; syscall",
		 {ABI_FRAME_STACK, 0x60, 0x58, KEPT}},
		/* A loop that is entered in its middle; a way that a branch leads to. */
		{"push %rbx; jmp 3f; 2: inc %rax; 3: cmp %rax,%rdi; jne 2b",
		 {ABI_FRAME_STACK, 16, 8, KEPT}},
		{"test %rdi,%rdi; je 2f; push %rbx; call 1f; pop %rbx; ret; 2: sub $8,%rsp",
		 {ABI_FRAME_STACK, 16, 8, KEPT}},
		{"push %rbp; test %rdi,%rdi; je 2f; mov %rsp,%rbp; leave; ret; 2: push %rbx",
		 {ABI_FRAME_STACK, 24, 16, 8}},
		/* No way leads to the place, or none that is understood. */
		{"2: test %rdi,%rdi; je 2b; ret", {UNKNOWN}},
		{"jmp *%rax", {UNKNOWN}},
		{"jmp 1f", {UNKNOWN}},
		{"push %rbx; leave", {UNKNOWN}},
		{"and $-16,%rsp", {UNKNOWN}},
		{"sub %rax,%rsp", {UNKNOWN}},
		{"lea -8(%rsp),%rsp", {UNKNOWN}},
		{"mov %rdi,%rsp", {UNKNOWN}},
		{"pop %rbx", {UNKNOWN}},
		{"push %rbp; add $8,%rsp", {UNKNOWN}},
		{"sub $0x100000,%rsp", {UNKNOWN}},
		{"ud2; .byte 0x06", {UNKNOWN}},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_file *file = assembly_open(
			"",
			".text\n.globl f\n.type f,@function\nf: %s\n.globl probe\nprobe: nop\n"
			"1: ret\n.size f,.-f\n",
			cases[i].code);
		struct elf_symbol function, probe;
		uint8_t code[64];
		int count;

		assert_int_equal(elf_file_symbol(file, "f", &function), 0);
		assert_int_equal(elf_file_symbol(file, "probe", &probe), 0);
		count = elf_file_read(file, function.vaddr, code, probe.vaddr - function.vaddr);
		assert_int_equal(count, probe.vaddr - function.vaddr);
		check_frame(&cases[i], &machine_x86, code, (size_t)count, function.vaddr);
		elf_file_close(file);
	}
}

static void test_arm64(void **state)
{
	static const struct frame_case cases[] = {
		/* A leaf keeps the return address in its register. */
		{"nop", {ABI_FRAME_STACK, 0, KEPT, KEPT}},
		{"mov x8, #222; svc #0; cmn x0, #1, lsl #12", {ABI_FRAME_STACK, 0, KEPT, KEPT}},
		{"sub sp, sp, #1, lsl #12; str x0, [sp, #8]", {ABI_FRAME_STACK, 4096, KEPT, KEPT}},
		{"paciasp; str x30, [sp, #-16]!", {ABI_FRAME_STACK, 16, 0, KEPT}},
		{"stp x29, x30, [sp, #-32]!; nop", {ABI_FRAME_STACK, 32, 8, 0}},
		{"stp x29, x30, [sp, #-32]!; mov x29, sp", {ABI_FRAME_POINTER, 32, 8, 0}},
		/* Of a variadic function: its record is not at the frame's end. */
		{"sub sp, sp, #80; stp x29, x30, [sp, #48]; add x29, sp, #48; str x4, [sp, #72]",
		 {ABI_FRAME_POINTER, 32, 8, 0}},
		{"stp d8, d9, [sp, #-48]!; stp x29, x30, [sp, #16]; bl .+8; str q0, [sp, #-16]!",
		 {ABI_FRAME_STACK, 64, 40, 32}},
		{"sub sp, sp, #32; str x30, [sp, #16]; stur x29, [sp, #24]",
		 {ABI_FRAME_STACK, 32, 16, 24}},
		{"stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16",
		 {ABI_FRAME_STACK, 0, KEPT, KEPT}},
		{"str x30, [sp, #-16]!; bl .+8; ldr x30, [sp], #16; nop",
		 {ABI_FRAME_STACK, 0, KEPT, KEPT}},
		{"str x19, [sp, #-16]!; ldr x19, [sp], #16; str w1, [x0], #4; ldp x2, x3, [x1]",
		 {ABI_FRAME_STACK, 0, KEPT, KEPT}},
		{"cbz x0, 1f; sub sp, sp, #16; ret; 1: sub sp, sp, #48; str x30, [sp]; mov x29, sp",
		 {ABI_FRAME_STACK, 48, 0, KEPT}},
		/* The return address is lost, or the stack's change is not understood. */
		{"bl .+8; nop", {UNKNOWN}},
		{"blr x1; nop", {UNKNOWN}},
		{"mov x30, x0", {UNKNOWN}},
		{"ldr x30, [x0]", {UNKNOWN}},
		{"ldp x29, x30, [x0]", {UNKNOWN}},
		{"mov sp, x29", {UNKNOWN}},
		{"sub sp, sp, x0", {UNKNOWN}},
		{"and sp, x0, #-16", {UNKNOWN}},
		{"add sp, sp, #16", {UNKNOWN}},
		{"stp x29, x30, [sp, #-16]!; add sp, sp, #16", {UNKNOWN}},
		{"br x0", {UNKNOWN}},
		{"udf #0; nop", {UNKNOWN}},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arm64_code code = arm64_assemble(cases[i].code);

		check_frame(&cases[i], &machine_arm64, code.bytes, code.count, VADDR);
	}
}

/* In a cookie: what does not fit there is unknown. */
static void test_cookie(void **state)
{
	static const struct abi_frame fit[] = {
		{ABI_FRAME_STACK, 8, 0, KEPT},
		{ABI_FRAME_STACK, 0, KEPT, KEPT},
		{ABI_FRAME_POINTER, 32, 8, 0},
		{ABI_FRAME_STACK, 32752, 32744, 32736},
	};
	static const struct abi_frame others[] = {
		{UNKNOWN},
		{ABI_FRAME_STACK, 32760, 8, 0},
		{ABI_FRAME_STACK, 32, 12, 0},
		{ABI_FRAME_STACK, 32, 8, 4},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(fit) / sizeof(fit[0]); i++) {
		uint64_t cookie = abi_frame_cookie(&fit[i]);
		struct abi_frame back = abi_frame_of_cookie(cookie | 0xffff);

		assert_int_equal(cookie & ~ABI_FRAME_COOKIE_BITS, 0);
		assert_memory_equal(&back, &fit[i], sizeof(back));
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_int_equal(abi_frame_cookie(&others[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_x86),
		cmocka_unit_test(test_arm64),
		cmocka_unit_test(test_cookie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
