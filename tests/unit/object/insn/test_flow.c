/* SPDX-License-Identifier: Apache-2.0 */
/* The value of a register at a place in a function, whose rare parts are after its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assembly.h"
#include "object/insn/inline_flow.h"
#include "object/insn/machine.h"

#define NOT_KNOWN 0

struct flow_case {
	const char *code; /* up to the place */
	int64_t rbp;
};

static void check_flow(const struct flow_case *wanted, const uint8_t *code, size_t bytes,
		       uint64_t vaddr)
{
	struct inline_decoder decoder;
	struct inline_insn insn;
	struct inline_flow flow;
	size_t at = 0, length;

	assert_int_equal(inline_decoder_open(&decoder, &machine_x86), 0);
	inline_flow_init(&flow);
	while ((length = inline_decode(&decoder, code + at, bytes - at, vaddr + at, &insn)) &&
	       at + length < bytes) {
		inline_flow_reach(&flow, &insn);
		inline_flow_step(&flow, &insn);
		at += length;
	}
	assert_int_equal(at + length, bytes);
	inline_flow_reach(&flow, &insn);
	inline_decoder_close(&decoder);
	const struct inline_value *rbp = &flow.state.of[ABI_REG_BP];
	if (wanted->rbp ? rbp->base != INLINE_CONSTANT || rbp->addend != wanted->rbp
			: rbp->base == INLINE_CONSTANT)
		fail_msg("%s: base %llx, %lld", wanted->code, (unsigned long long)rbp->base,
			 (long long)rbp->addend);
}

static void test_flow(void **state)
{
	static const struct flow_case cases[] = {
		{"mov $7,%ebp", 7},
		{"mov $7,%ebp; pop %rbp", NOT_KNOWN},
		/* traceback_new() of CPython 3.12: its end, padding, then the rare part. */
		{"push %rbp; mov $7,%ebp; test %rax,%rax; je 2f; pop %rbp; ret; nopw 0(%rax); 2:",
		 7},
		{"mov $7,%ebp; jmp 2f; mov $8,%ebp; ret; 2:", 7},
		/* The nearest one of two branches; one that leads elsewhere. */
		{"mov $7,%ebp; je 2f; mov $8,%ebp; je 2f; pop %rbp; ret; 2:", 8},
		{"mov $7,%ebp; je 2f; mov $8,%ebp; je 1f; pop %rbp; ret; 2:", 7},
		/* What is reached from before goes on from there. */
		{"mov $7,%ebp; je 2f; mov $8,%ebp; 2:", 8},
		{"mov $7,%ebp; je 2f; pop %rbp; ret; 2: mov $8,%ebp; 3:", 8},
		/* A loop that is entered at its end, and the part after it. */
		{"mov $7,%ebp; jmp 3f; 2: nop; 3: dec %rax; jne 2b", 7},
		{"mov $7,%ebp; je 4f; jmp 3f; 2: pop %rbp; 3: dec %rax; jne 2b; ret; 4:", 7},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_file *file = assembly_open(
			"",
			".text\n.globl f\n.type f,@function\nf: %s\nnop\n.globl end\nend: nop\n"
			"1: ret\n.size f,.-f\n",
			cases[i].code);
		struct elf_symbol function, end;
		uint8_t code[64];
		int count;

		assert_int_equal(elf_file_symbol(file, "f", &function), 0);
		assert_int_equal(elf_file_symbol(file, "end", &end), 0);
		count = elf_file_read(file, function.vaddr, code, end.vaddr - function.vaddr);
		assert_int_equal(count, end.vaddr - function.vaddr);
		check_flow(&cases[i], code, (size_t)count, function.vaddr);
		elf_file_close(file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_flow)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
