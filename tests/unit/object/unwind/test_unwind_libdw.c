/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of real files against libdw: for each return address of a call that Capstone decodes,
 * the table's rule and libdw's own expressions are evaluated with the same registers and the same
 * stack, and give the same CFA and the same rbp. Between functions there is no row. The rows that
 * tables are made of are compared in the same way at every instruction: both are constant from one
 * row to the next, so at the begin of each row of either. With arguments: for these files.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <capstone/capstone.h>

#include "object/unwind/cfi.h"
#include "object/unwind/input.h"
#include "object/unwind/rule.h"
#include "object/unwind/unwind_table.h"
#include "sanitized.h"
#include "unwind_find.h"
#include "util/hash.h"

#define RSP     0x7ffe00001000ull
#define RBP     0x7ffe00005550ull
#define REG_RBP 6
#define REG_RSP 7
#define REG_RA  16

/* The caller's registers. known 0: they depend on more than rsp, rbp and the stack. */
struct caller {
	int known, end, signal;
	uint64_t cfa, rbp;
};

struct checked {
	struct unwind_input input;
	struct unwind_table *table, *full; /* full: of all rows */
	Dwarf_CFI *cfi;
	csh capstone;
	cs_insn *insn;
	struct cfi_rows all;
	size_t calls, odd, gaps, rows, odd_rows;
};

/* What the word of the stack at an address holds. */
static uint64_t word(uint64_t address)
{
	return hash_u64(address);
}

static uint64_t rip;

/* Of two values: those in the expression of a PLT. */
static int operation_of_two(uint8_t atom, uint64_t stack[], size_t *depth)
{
	uint64_t right = stack[*depth - 1], *left = &stack[*depth - 2];

	if (atom == DW_OP_and)
		*left &= right;
	else if (atom == DW_OP_ge)
		*left = (int64_t)*left >= (int64_t)right;
	else if (atom == DW_OP_shl)
		*left <<= right;
	else if (atom == DW_OP_plus)
		*left += right;
	else
		return 0;
	(*depth)--;
	return 1;
}

/* 0: unknown operation or register. */
static int operation(const Dwarf_Op *op, uint64_t cfa, uint64_t stack[], size_t *depth)
{
	int is_bregx = op->atom == DW_OP_bregx;
	uint64_t reg = is_bregx ? op->number : (uint64_t)op->atom - DW_OP_breg0;
	uint64_t offset = is_bregx ? op->number2 : op->number;

	if (op->atom == DW_OP_call_frame_cfa)
		stack[(*depth)++] = cfa;
	else if (op->atom == DW_OP_plus_uconst && *depth)
		stack[*depth - 1] += op->number;
	else if (op->atom == DW_OP_deref && *depth)
		stack[*depth - 1] = word(stack[*depth - 1]);
	else if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31)
		stack[(*depth)++] = op->atom - DW_OP_lit0;
	else if (reg == REG_RA)
		stack[(*depth)++] = rip + offset;
	else if (reg == REG_RSP || reg == REG_RBP)
		stack[(*depth)++] = (reg == REG_RSP ? RSP : RBP) + offset;
	else
		return *depth >= 2 && operation_of_two(op->atom, stack, depth);
	return 1;
}

static int expression(const Dwarf_Op *ops, size_t count, uint64_t cfa, uint64_t *value)
{
	uint64_t stack[16];
	size_t depth = 0;

	if (!count || count > 12)
		return 0;
	for (size_t i = 0; i < count; i++)
		if (!operation(&ops[i], cfa, stack, &depth))
			return 0;
	*value = stack[depth - 1];
	return 1;
}

static struct caller libdw_caller(Dwarf_Frame *frame)
{
	struct caller caller = {.rbp = RBP};
	Dwarf_Op memory[3], *ops;
	uint64_t at;
	size_t count;
	bool signal;

	assert_true(dwarf_frame_info(frame, NULL, NULL, &signal) >= -1);
	caller.signal = signal;
	assert_int_equal(dwarf_frame_register(frame, REG_RA, memory, &ops, &count), 0);
	caller.end = !count && ops == memory;
	if (signal || caller.end)
		return caller;
	if (!expression(ops, count, 0, &at) || at != (uint64_t)-8)
		return caller;
	if (dwarf_frame_cfa(frame, &ops, &count) || !expression(ops, count, 0, &caller.cfa))
		return caller;
	assert_int_equal(dwarf_frame_register(frame, REG_RBP, memory, &ops, &count), 0);
	if (count && !expression(ops, count, caller.cfa, &at))
		return caller;
	if (count)
		caller.rbp = word(at);
	caller.known = 1;
	return caller;
}

/* As bpf/unwind/unwind.h does it. */
static struct caller rule_caller(const struct abi_unwind_rule *rule)
{
	struct caller caller = {.rbp = RBP, .known = 1};
	uint64_t base = rule->kind == ABI_UNWIND_RBP || rule->kind == ABI_UNWIND_AT_RBP ? RBP : RSP;

	caller.signal = rule->kind == ABI_UNWIND_SIGNAL;
	caller.end = rule->kind == ABI_UNWIND_END;
	if (caller.signal || caller.end || rule->kind == ABI_UNWIND_NONE) {
		caller.known = 0;
		return caller;
	}
	if (rule->kind == ABI_UNWIND_STUB)
		caller.cfa = RSP + ((rip & 15) >= (uint64_t)rule->cfa ? 16 : 8);
	else if (rule->kind == ABI_UNWIND_RSP || rule->kind == ABI_UNWIND_RBP)
		caller.cfa = base + (uint64_t)(int64_t)rule->cfa;
	else
		caller.cfa = word(base + (uint64_t)(int64_t)(int16_t)rule->cfa) +
			     (uint64_t)(int64_t)(int16_t)(rule->cfa >> 16);
	if (rule->flags & ABI_UNWIND_RBP_AT_RBP)
		caller.rbp = word(RBP);
	else if (rule->rbp)
		caller.rbp = word(caller.cfa + (uint64_t)(8 * (int64_t)rule->rbp));
	return caller;
}

/* Returns where the rule of libdw ends. *known: it is expressed, or an end. */
static uint64_t rule_check(struct checked *checked, const struct abi_unwind_rule *rule,
			   uint64_t vaddr, int *known)
{
	struct caller ours, theirs;
	Dwarf_Frame *frame;
	Dwarf_Addr end;

	rip = vaddr;
	ours = rule_caller(rule);
	assert_int_equal(dwarf_cfi_addrframe(checked->cfi, vaddr, &frame), 0);
	theirs = libdw_caller(frame);
	dwarf_frame_info(frame, NULL, &end, NULL);
	free(frame);
	if (ours.known != theirs.known || ours.end != theirs.end || ours.signal != theirs.signal ||
	    (ours.known && (ours.cfa != theirs.cfa || ours.rbp != theirs.rbp)))
		fail_msg("0x%lx: known %d/%d end %d/%d signal %d/%d cfa %lx/%lx rbp %lx/%lx", vaddr,
			 ours.known, theirs.known, ours.end, theirs.end, ours.signal, theirs.signal,
			 ours.cfa, theirs.cfa, ours.rbp, theirs.rbp);
	*known = ours.known || ours.end || ours.signal;
	return end;
}

static void return_check(struct checked *checked, const struct unwind_code *part, uint64_t vaddr)
{
	const struct abi_unwind_rule *rule =
		unwind_table_find(checked->table, part->offset + (vaddr - part->vaddr));
	int known;

	rule_check(checked, rule, vaddr, &known);
	/* Code that is covered but not expressed is told from code that is not covered. */
	assert_true(rule != &checked->table->rules[0]);
	checked->calls++;
	checked->odd += !known;
}

static const struct unwind_code *part_of(const struct checked *checked, uint64_t vaddr)
{
	for (size_t i = 0; i < checked->input.codes.count; i++)
		if (vaddr - checked->input.codes.parts[i].vaddr <
		    checked->input.codes.parts[i].size)
			return &checked->input.codes.parts[i];
	return NULL;
}

/* The rows from start to end, which one function covers. */
static void rows_check(struct checked *checked, uint64_t start, uint64_t end)
{
	const struct cfi_rows *all = &checked->all;
	const struct unwind_code *part = part_of(checked, start);
	size_t low = 0, high = all->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (all->rows[middle].vaddr <= start)
			low = middle + 1;
		else
			high = middle;
	}
	assert_true(low);
	while (start < end) {
		uint64_t next = low < all->count ? all->rows[low].vaddr : end, theirs;
		int known;

		theirs = rule_check(checked, &all->rows[low - 1].rule, start, &known);
		assert_true(unwind_rule_equal(
			*unwind_table_find(checked->full, part->offset + start - part->vaddr),
			all->rows[low - 1].rule));
		/* One row for all stubs: each of their bytes. */
		if (all->rows[low - 1].rule.kind == ABI_UNWIND_STUB && next > start + 1 &&
		    theirs > start + 1)
			next = start + 1;
		checked->rows++;
		checked->odd_rows += !known;
		assert_true(theirs > start);
		low += next <= theirs && low < all->count && next == all->rows[low].vaddr;
		start = next <= theirs ? next : theirs;
	}
}

/* Compares all calls from start to end. */
static void function_check(struct checked *checked, uint64_t start, uint64_t end)
{
	const struct unwind_code *part = part_of(checked, start);
	const uint8_t *code = part->bytes + (start - part->vaddr);
	size_t left = end - start;
	uint64_t vaddr = start;

	assert_true(end - part->vaddr <= part->size);
	while (left && cs_disasm_iter(checked->capstone, &code, &left, &vaddr, checked->insn))
		if (checked->insn->id == X86_INS_CALL || checked->insn->id == X86_INS_SYSCALL)
			return_check(checked, part, vaddr - 1);
}

/* The end of the function that begins at start: of the rows that follow it without a gap. */
static uint64_t function_end(struct checked *checked, uint64_t start, uint64_t next)
{
	Dwarf_Frame *frame;
	Dwarf_Addr end;

	while (start < next && !dwarf_cfi_addrframe(checked->cfi, start, &frame)) {
		dwarf_frame_info(frame, NULL, &end, NULL);
		free(frame);
		start = end;
	}
	return start;
}

static void gap_check(struct checked *checked, uint64_t start, uint64_t end)
{
	const struct unwind_code *part = part_of(checked, start);
	int is_body = end - start >= UNWIND_BODY_MIN;

	if (!part || part != part_of(checked, end - 1))
		return;
	/* Calls may have rules of their own (unwind_flow.h). */
	if (unwind_calls_within(&checked->input.codes, part, start, end))
		end = start + 1;
	for (uint64_t vaddr = start; vaddr < end; vaddr++) {
		const struct abi_unwind_rule *rule =
			unwind_table_find(checked->table, part->offset + (vaddr - part->vaddr));

		assert_true(is_body ? rule->kind == ABI_UNWIND_FRAME
				    : rule == &checked->table->rules[0]);
	}
	checked->gaps++;
}

static void file_check(const char *path)
{
	struct checked checked = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf;

	assert_true(fd >= 0);
	assert_int_equal(unwind_table_build(&checked.table, fd, -1, ABI_UNWIND_ROWS_CALLS), 0);
	assert_int_equal(unwind_table_build(&checked.full, fd, -1, ABI_UNWIND_ROWS_ALL), 0);
	assert_int_equal(unwind_input_read(&checked.input, fd, -1), 0);
	assert_int_equal(cfi_rows_read(&checked.all, checked.input.section,
				       checked.input.section_vaddr, checked.input.frames,
				       checked.input.frame_count),
			 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	checked.cfi = dwarf_getcfi_elf(elf);
	assert_non_null(checked.cfi);
	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &checked.capstone), CS_ERR_OK);
	checked.insn = cs_malloc(checked.capstone);
	for (size_t i = 0; i < checked.input.frame_count; i++) {
		int is_last = i + 1 == checked.input.frame_count;
		uint64_t start = checked.input.frames[i].vaddr;
		uint64_t next = is_last ? UINT64_MAX : checked.input.frames[i + 1].vaddr;
		uint64_t end = function_end(&checked, start, next);

		if (start < end) {
			function_check(&checked, start, end);
			rows_check(&checked, start, end);
		}
		if (!is_last && next > end && next - end > UNWIND_PADDING_MAX)
			gap_check(&checked, end, next);
	}
	print_message("%s: %zu calls, of these not expressed: %zu; %zu rows, of these not "
		      "expressed: %zu; %zu gaps\n",
		      path, checked.calls, checked.odd, checked.rows, checked.odd_rows,
		      checked.gaps);
	assert_int_equal(checked.table->origin.cut, 0);
	assert_true(checked.calls > 100);
	assert_true(checked.odd * 1000 <= checked.calls);
	cs_free(checked.insn, 1);
	cs_close(&checked.capstone);
	dwarf_cfi_end(checked.cfi);
	elf_end(elf);
	cfi_rows_free(&checked.all);
	unwind_input_free(&checked.input);
	unwind_table_free(checked.table);
	unwind_table_free(checked.full);
	close(fd);
}

static void own_table_agrees(void **state)
{
	(void)state;
#if SANITIZED && defined(__clang__)
	print_message("skipped: clang's sanitizer adds functions of its own, without CFI\n");
	skip();
#endif
	file_check("/proc/self/exe");
}

static void first_check(const char *const names[])
{
	char path[PATH_MAX];

	if (!file_find(path, names)) {
		print_message("skipped: no %s\n", names[0]);
		skip();
	}
	file_check(path);
}

static void libc_agrees(void **state)
{
	(void)state;
	first_check((const char *const[]){"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6",
					  NULL});
}

static void python_agrees(void **state)
{
	(void)state;
	first_check((const char *const[]){"/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0",
					  "/usr/bin/python3", NULL});
}

static void postgres_agrees(void **state)
{
	(void)state;
	first_check((const char *const[]){"/usr/lib/postgresql/*/bin/postgres", NULL});
}

static void node_agrees(void **state)
{
	(void)state;
	first_check((const char *const[]){"/usr/lib/x86_64-linux-gnu/libnode.so.*", "/usr/bin/node",
					  NULL});
}

static void cc1_agrees(void **state)
{
	(void)state;
	first_check((const char *const[]){"/usr/lib/gcc/x86_64-linux-gnu/*/cc1", NULL});
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_table_agrees), cmocka_unit_test(libc_agrees),
		cmocka_unit_test(python_agrees),    cmocka_unit_test(postgres_agrees),
		cmocka_unit_test(node_agrees),      cmocka_unit_test(cc1_agrees),
	};

	for (int i = 1; i < argc; i++)
		file_check(argv[i]);
	return argc > 1 ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
