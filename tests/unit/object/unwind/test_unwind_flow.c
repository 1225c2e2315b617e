/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for code without .eh_frame, by small functions and compared with libc's .eh_frame. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include <capstone/capstone.h>

#include "assembly.h"
#include "object/elf/elf_file.h"
#include "object/unwind/input.h"
#include "object/unwind/rule.h"
#include "object/unwind/unwind_flow.h"
#include "object/unwind/unwind_table.h"
#include "unwind_find.h"

static void check(struct elf_file *file, const struct unwind_table *table, const char *symbol,
		  int kind, int cfa, int rbp)
{
	struct abi_unwind_rule rule;
	struct elf_symbol found;
	uint64_t offset;

	assert_int_equal(elf_file_symbol(file, symbol, &found), 0);
	assert_int_equal(elf_file_offset(file, found.vaddr - 1, &offset), 0);
	rule = *unwind_table_find(table, offset);
	if (rule.kind != kind || rule.cfa != cfa || rule.rbp != rbp)
		fail_msg("%s: kind %d cfa %d rbp %d", symbol, rule.kind, rule.cfa, rule.rbp);
}

static void rules_come_from_the_code(void **state)
{
	struct elf_file *file =
		assembly_open("-Wa,-Itests/unit/data/assembly", ".include \"unwind_bare.s\"\n");
	struct unwind_table *table;

	(void)state;
	assert_int_equal(unwind_table_build(&table, elf_file_fd(file), -1, ABI_UNWIND_ROWS_CALLS),
			 0);
	check(file, table, "in_plain", ABI_UNWIND_RSP, 32, 0);
	check(file, table, "in_pushed", ABI_UNWIND_RSP, 32, -2);
	check(file, table, "in_pointer", ABI_UNWIND_RBP, 16, -2);
	check(file, table, "in_lowered", ABI_UNWIND_RBP, 16, -2);
	check(file, table, "in_disagreeing", ABI_UNWIND_NONE, 0, 0);
	check(file, table, "in_stopping", ABI_UNWIND_NONE, 0, 0);
	check(file, table, "in_stopped", ABI_UNWIND_NONE, 0, 0);
	check(file, table, "in_behind", ABI_UNWIND_RSP, 16, 0);
	check(file, table, "in_outside", ABI_UNWIND_NONE, 0, 0);
	check(file, table, "in_last", ABI_UNWIND_RSP, 32, 0);
	check(file, table, "in_lost", ABI_UNWIND_NONE, 0, 0);
	/* What .eh_frame says is never doubted. */
	check(file, table, "in_covered", ABI_UNWIND_RSP, 16, 0);
	assert_int_equal(table->origin.derived, 6);
	unwind_table_free(table);
	elf_file_close(file);
}

static struct abi_unwind_rule rule_at(const struct cfi_rows *rows, uint64_t vaddr)
{
	size_t low = 0, high = rows->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (rows->rows[middle].vaddr <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? rows->rows[low - 1].rule : (struct abi_unwind_rule){0};
}

struct compared {
	struct cfi_rows real, derived;
	csh capstone;
	cs_insn *insn;
	size_t calls, known, wrong;
};

static void function_compare(struct compared *compared, const struct unwind_code *part,
			     const struct elf_frame *frame)
{
	const uint8_t *code = part->bytes + (frame->vaddr - part->vaddr);
	uint64_t vaddr = frame->vaddr;
	size_t left = frame->bytes;

	while (left && cs_disasm_iter(compared->capstone, &code, &left, &vaddr, compared->insn)) {
		struct abi_unwind_rule real, derived;

		if (compared->insn->id != X86_INS_CALL)
			continue;
		real = rule_at(&compared->real, vaddr - 1);
		derived = rule_at(&compared->derived, vaddr - 1);
		compared->calls++;
		/* A function may be described by rsp and by rbp: both are right. */
		if (!derived.kind || derived.kind != real.kind)
			continue;
		compared->known++;
		compared->wrong += !unwind_rule_equal(real, derived);
	}
}

#define SMALL_PARTS (64u << 10) /* more than libc's other parts have together */

/* libc, as if it had no .eh_frame. */
static void rules_agree_with_libc(void **state)
{
	static const char *const names[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					    "/usr/lib64/libc.so.6", NULL};
	struct compared compared = {0};
	struct unwind_input input;
	char path[PATH_MAX];
	uint32_t derived;
	int fd;

	(void)state;
	if (!file_find(path, names)) {
		print_message("skipped: no libc\n");
		skip();
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(unwind_input_read(&input, fd, -1), 0);
	assert_int_equal(cfi_rows_read(&compared.real, input.section, input.section_vaddr,
				       input.frames, input.frame_count),
			 0);
	/* of its one large part as much as is read of a file */
	for (size_t i = 0; i < input.codes.count; i++)
		if (input.codes.parts[i].size > FLOW_BYTES_MAX - SMALL_PARTS)
			input.codes.parts[i].size = FLOW_BYTES_MAX - SMALL_PARTS;
	assert_int_equal(unwind_flow_add(&compared.derived, &input.codes,
					 unwind_flow_uncovered(&compared.derived, &input.codes),
					 &derived),
			 0);
	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &compared.capstone), CS_ERR_OK);
	compared.insn = cs_malloc(compared.capstone);
	for (size_t i = 0; i < input.frame_count; i++)
		for (size_t k = 0; k < input.codes.count; k++)
			if (input.frames[i].bytes <= input.codes.parts[k].size &&
			    input.frames[i].vaddr - input.codes.parts[k].vaddr <=
				    input.codes.parts[k].size - input.frames[i].bytes)
				function_compare(&compared, &input.codes.parts[k],
						 &input.frames[i]);
	print_message("%s: %zu calls, rules for %zu, wrong %zu\n", path, compared.calls,
		      compared.known, compared.wrong);
	assert_true(compared.known * 4 >= compared.calls * 3);
	assert_true(compared.wrong * 5000 <= compared.known);
	cs_free(compared.insn, 1);
	cs_close(&compared.capstone);
	cfi_rows_free(&compared.real);
	cfi_rows_free(&compared.derived);
	unwind_input_free(&input);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_come_from_the_code),
		cmocka_unit_test(rules_agree_with_libc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
