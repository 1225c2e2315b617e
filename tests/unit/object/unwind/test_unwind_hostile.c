/* SPDX-License-Identifier: Apache-2.0 */
/* Call frame information that no compiler writes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "assembly.h"
#include "object/elf/elf_file.h"
#include "object/unwind/unwind_table.h"
#include "ranges.h"

/* The table of an assembly; the caller frees both. */
static struct unwind_table *table_of(struct elf_file *file)
{
	struct unwind_table *table;

	assert_int_equal(unwind_table_build(&table, elf_file_fd(file), -1, ABI_UNWIND_ROWS_CALLS),
			 0);
	return table;
}

/* The rule of the byte before a symbol. */
static struct abi_unwind_rule rule_before(struct elf_file *file, const struct unwind_table *table,
					  const char *symbol)
{
	struct elf_symbol found;
	uint64_t offset;

	assert_int_equal(elf_file_symbol(file, symbol, &found), 0);
	assert_int_equal(elf_file_offset(file, found.vaddr - 1, &offset), 0);
	return *unwind_table_find(table, offset);
}

static void is_rsp(struct abi_unwind_rule rule, int cfa)
{
	assert_int_equal(rule.kind, ABI_UNWIND_RSP);
	assert_int_equal(rule.cfa, cfa);
}

/* A function of one call, as it is in every file. */
#define HONEST                                                                                     \
	"honest: .cfi_startproc; .cfi_def_cfa_offset 48; call honest\n"                            \
	".globl in_honest; in_honest: ret; .cfi_endproc\n"

/* A row per byte. */
static void a_function_of_many_rows(void **state)
{
	struct elf_file *file =
		assembly_open("", "long: .cfi_startproc; call long; .globl in_begin; in_begin:\n"
				  ".rept 200000; nop; .cfi_adjust_cfa_offset 8; .endr\n"
				  "call long; .globl in_rest; in_rest: ret; .cfi_endproc\n" HONEST);
	struct unwind_table *table = table_of(file);

	(void)state;
	is_rsp(rule_before(file, table, "in_begin"), 8);
	is_rsp(rule_before(file, table, "in_rest"), 8 + 8 * 200000);
	is_rsp(rule_before(file, table, "in_honest"), 48);
	assert_uint_in_range(table->origin.rows, 200000, 200010);
	assert_uint_in_range(table->row_count, 3, 12);
	unwind_table_free(table);
	elf_file_close(file);
}

/* A function that claims the whole address space, and one that advances by 2^32 - 1 bytes. */
static void functions_beyond_the_code(void **state)
{
	static const char source[] =
		HONEST ".globl in_vast; vast: call honest; in_vast: ret\n"
		       ".section .eh_frame, \"a\", @progbits\n"
		       "cie: .long 1f - 0f\n"
		       "0: .long 0; .byte 1; .asciz \"zR\"; .byte 1, 0x78, 16, 1, 0x1c\n"
		       ".byte 0x0c, 7, 8, 0x90, 1; .balign 4\n"
		       "1: .long 3f - 2f\n"
		       "2: .long 2b - cie; .quad vast - ., 1 << 47; .byte 0\n"
		       ".byte 0x0e, 64, 0x04, -1, -1, -1, -1, 0x0e, 72, 0x04, -1, -1, -1, -1\n"
		       ".balign 4\n"
		       "3:\n";
	struct elf_file *file = assembly_open("-Wl,--no-eh-frame-hdr", "%s", source);
	struct unwind_table *table = table_of(file);

	(void)state;
	is_rsp(rule_before(file, table, "in_honest"), 48);
	is_rsp(rule_before(file, table, "in_vast"), 64);
	assert_uint_in_range(table->page_count, 1, 2);
	unwind_table_free(table);
	elf_file_close(file);
}

/* Two entries for the same code: the answer is one of them. */
static void overlapping_functions(void **state)
{
	static const char source[] =
		HONEST "twice: .cfi_startproc; .cfi_def_cfa_offset 16; call honest\n"
		       ".globl in_twice; in_twice: ret; 9: .cfi_endproc\n"
		       ".section .eh_frame, \"a\", @progbits\n"
		       "cie: .long 1f - 0f\n"
		       "0: .long 0; .byte 1; .asciz \"zR\"; .byte 1, 0x78, 16, 1, 0x1b\n"
		       ".byte 0x0c, 7, 8, 0x90, 1; .balign 4\n"
		       "1: .long 3f - 2f\n"
		       "2: .long 2b - cie; .long twice - ., 9b - twice; .byte 0, 0x0e, 32\n"
		       ".balign 4\n"
		       "3: .long 5f - 4f\n"
		       "4: .long 4b - cie; .long twice + 1 - ., 2; .byte 0, 0x0e, 40\n"
		       ".balign 4\n"
		       "5:\n";
	struct elf_file *file = assembly_open("-Wl,--no-eh-frame-hdr", "%s", source);
	struct unwind_table *table = table_of(file);
	struct abi_unwind_rule rule = rule_before(file, table, "in_twice");

	(void)state;
	assert_int_equal(rule.kind, ABI_UNWIND_RSP);
	assert_true(rule.cfa == 16 || rule.cfa == 32); /* the third begins later */
	is_rsp(rule_before(file, table, "in_honest"), 48);
	unwind_table_free(table);
	elf_file_close(file);
}

/* Expressions with loops and wild reads are not evaluated, only recognised or not. */
static void wild_expressions(void **state)
{
	static const char *const escapes[] = {
		"0x0f, 3, 0x2f, 0xfd, 0xff", /* CFA = skip -3 */
		/* CFA = *(*(rsp)), 2^28 + *(rsp) */
		"0x0f, 4, 0x77, 0, 0x06, 0x06",
		"0x0f, 9, 0x77, 0, 6, 0x23, 0x80, 0x80, 0x80, 0x80, 1",
		"0x0f, 0",                                  /* no expression */
		"0x0f, 2, 0x77",                            /* cut off */
		"0x10, 6, 2, 0x77, 8",                      /* rbp at rsp + 8 */
		"0x16, 6, 2, 0x77, 8",                      /* rbp is rsp + 8 */
		"0x09, 6, 3",                               /* rbp is in rbx */
		"0x05, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 1", /* rbp is far away */
		"0x10, 16, 2, 0x77, 0",                     /* the return address at rsp */
		"0x09, 16, 3",                              /* the return address is in rbx */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
		struct elf_file *file =
			assembly_open("2>/dev/null", /* the linker complains of some */
				      HONEST "wild: .cfi_startproc; .cfi_escape %s; call honest\n"
					     ".globl in_wild; in_wild: ret; .cfi_endproc\n",
				      escapes[i]);
		struct unwind_table *table = table_of(file);

		assert_int_equal(rule_before(file, table, "in_wild").kind, ABI_UNWIND_NONE);
		is_rsp(rule_before(file, table, "in_honest"), 48);
		unwind_table_free(table);
		elf_file_close(file);
	}
}

/* States that are remembered and never restored, and restored without having been remembered. */
static void unbalanced_states(void **state)
{
	struct elf_file *file = assembly_open(
		"", HONEST "deep: .cfi_startproc; .rept 20000; .cfi_escape 0x0a; .endr\n"
			   "call honest; .globl in_deep; in_deep: ret; .cfi_endproc\n"
			   "empty: .cfi_startproc; .cfi_escape 0x0b; call honest\n"
			   ".globl in_empty; in_empty: ret; .cfi_endproc\n");
	struct unwind_table *table = table_of(file);

	(void)state;
	assert_int_equal(rule_before(file, table, "in_deep").kind, ABI_UNWIND_NONE);
	assert_int_equal(rule_before(file, table, "in_empty").kind, ABI_UNWIND_NONE);
	is_rsp(rule_before(file, table, "in_honest"), 48);
	assert_int_equal(table->origin.cut, 2);
	unwind_table_free(table);
	elf_file_close(file);
}

/* Whatever .eh_frame holds, a table is valid, or there is none. */
static void noise(void **state)
{
	struct elf_file *file =
		assembly_open("-Wa,-Itests/unit/data/assembly", ".include \"unwind.s\"\n");
	uint64_t vaddr, size, offset;
	struct unwind_table *table, *copy;
	unsigned made = 0;
	struct stat st;
	int fd = memfd_create("noise", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(elf_file_section(file, ".eh_frame", &vaddr, &size), 0);
	assert_int_equal(elf_file_offset(file, vaddr, &offset), 0);
	assert_int_equal(fstat(elf_file_fd(file), &st), 0);
	srand(1);
	for (int i = 0; i < 2000; i++) {
		const void *packed;
		size_t bytes;

		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		assert_int_equal(sendfile(fd, elf_file_fd(file), &(off_t){0}, (size_t)st.st_size),
				 st.st_size);
		for (int k = rand() % 8; k >= 0; k--) {
			uint8_t byte = rand() % 4 ? (uint8_t)rand() : 0xff;

			assert_int_equal(
				pwrite(fd, &byte, 1, (off_t)(offset + (uint64_t)rand() % size)), 1);
		}
		if (unwind_table_build(&table, fd, -1, ABI_UNWIND_ROWS_CALLS))
			continue;
		packed = unwind_table_pack(table, &bytes);
		assert_int_equal(unwind_table_unpack(&copy, packed, bytes), 0);
		unwind_table_free(copy);
		unwind_table_free(table);
		made++;
	}
	assert_true(made > 100);
	close(fd);
	elf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_function_of_many_rows),
		cmocka_unit_test(functions_beyond_the_code),
		cmocka_unit_test(overlapping_functions),
		cmocka_unit_test(wild_expressions),
		cmocka_unit_test(unbalanced_states),
		cmocka_unit_test(noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
