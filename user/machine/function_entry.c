/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in a function the probe sits.
 *
 * The probe must be hit exactly once in every call. So only the entry path is inspected: the
 * instructions that run one after the other from the entry up to and including the first branch. A
 * jump target and everything after it is excluded, since it may run again. A jump to the entry
 * itself is equivalent to a call: it hits the entry as often as any later instruction, so it
 * excludes nothing.
 *
 * Along the path each argument has a set of registers that hold it: a full move adds one, a write
 * removes one. The first emulated instruction that every argument reaches is the site.
 */
#include <capstone/capstone.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "machine/function_entry.h"
#include "machine/x86.h"

#define ARGUMENTS 3

struct scan {
	csh capstone;
	cs_insn *insn;
	const uint8_t *code;
	size_t bytes;
	uint64_t vaddr;
	const struct probe_spec *spec;
	uint32_t holders[ARGUMENTS]; /* bit r: enum abi_register r holds the argument */
	bool stack_moved;
};

static bool decode(struct scan *scan, size_t offset)
{
	const uint8_t *code = scan->code + offset;
	size_t left = scan->bytes - offset;
	uint64_t address = scan->vaddr + offset;

	return cs_disasm_iter(scan->capstone, &code, &left, &address, scan->insn);
}

static bool in_group(const struct scan *scan, unsigned group)
{
	return cs_insn_group(scan->capstone, scan->insn, group);
}

/* Can control continue elsewhere than at the next instruction, or is that up to the kernel? */
static bool ends_path(const struct scan *scan)
{
	static const unsigned groups[] = {CS_GRP_JUMP, CS_GRP_CALL, CS_GRP_RET,
					  CS_GRP_INT,  CS_GRP_IRET, CS_GRP_BRANCH_RELATIVE};

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (in_group(scan, groups[i]))
			return true;
	switch (scan->insn->id) {
	case X86_INS_XABORT:
	case X86_INS_SYSCALL:
	case X86_INS_SYSENTER:
	case X86_INS_HLT:
	case X86_INS_UD0:
	case X86_INS_UD2:
#if CS_API_MAJOR < 5 /* named UD1 from then on */
	case X86_INS_UD2B:
#else
	case X86_INS_UD1:
#endif
		return true;
	default:
		return false;
	}
}

/*
 * The lowest offset after the entry that a relative branch of these bytes leads to, SIZE_MAX if
 * none does. Bytes that do not decode are skipped one by one: an extra target costs a trap, a
 * missing one makes counts wrong.
 */
static size_t first_jump_target(struct scan *scan)
{
	size_t first = SIZE_MAX;

	for (size_t offset = 0; offset < scan->bytes;) {
		if (!decode(scan, offset)) {
			offset++;
			continue;
		}
		const cs_x86 *x86 = &scan->insn->detail->x86;
		uint64_t target = (uint64_t)x86->operands[0].imm - scan->vaddr;

		if (x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM && ends_path(scan) &&
		    target && target < first)
			first = target;
		offset += scan->insn->size;
	}
	return first;
}

/* Applies the decoded instruction. Returns the first argument that it destroys, or ARGUMENTS. */
static int step(struct scan *scan)
{
	const cs_x86 *x86 = &scan->insn->detail->x86;
	uint32_t written = x86_registers_written(scan->capstone, scan->insn), source = 0, copy = 0;
	int lost = ARGUMENTS;

	/* A 32-bit move would truncate a 64-bit argument. */
	if (scan->insn->id == X86_INS_MOV && x86->op_count == 2 &&
	    x86->operands[0].type == X86_OP_REG && x86->operands[1].type == X86_OP_REG &&
	    x86->operands[0].size == 8 && x86->operands[1].size == 8) {
		source = 1u << x86_register_of(x86->operands[1].reg);
		copy = 1u << x86_register_of(x86->operands[0].reg);
	}
	for (int i = ARGUMENTS - 1; i >= 0; i--) {
		uint32_t before = scan->holders[i];

		scan->holders[i] = (before & ~written) | (before & source ? copy : 0);
		scan->holders[i] &= (1u << ABI_REG_COUNT) - 1;
		if (before && !scan->holders[i])
			lost = i;
	}
	scan->stack_moved |= written >> ABI_REG_SP & 1;
	return lost;
}

static const char *argument_name(enum abi_op op, int argument)
{
	static const char *const names[][ARGUMENTS] = {
		[ABI_OP_MALLOC] = {"bytes"},
		[ABI_OP_CALLOC] = {"count", "bytes"},
		[ABI_OP_REALLOC] = {"address", "bytes"},
		[ABI_OP_FREE] = {"address"},
		[ABI_OP_TRACK] = {"domain", "address", "bytes"},
		[ABI_OP_UNTRACK] = {"domain", "address"},
		[ABI_OP_POSIX_MEMALIGN] = {"result", "bytes"},
		[ABI_OP_REALLOCARRAY] = {"address", "count", "bytes"},
		[ABI_OP_XALLOCX] = {"address", "bytes"},
	};

	if ((size_t)op >= sizeof(names) / sizeof(names[0]) || !names[op][argument])
		return "an argument";
	return names[op][argument];
}

/* Appends to a text of size bytes; truncates. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
							 const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

/*
 * Walks the entry path. True, and *offset, if there is a suitable emulated instruction, which is
 * the decoded one then; otherwise false, and why has the reason.
 */
static bool find_emulated(struct scan *scan, size_t *offset, char *why, size_t size)
{
	size_t target = first_jump_target(scan);

	append(why, size, "entry (two traps): ");
	for (*offset = 0; *offset < scan->bytes; *offset += scan->insn->size) {
		if (*offset >= target) {
			append(why, size, "no emulated instruction before +%zu, where a jump leads",
			       target);
			return false;
		}
		if (!decode(scan, *offset)) {
			append(why, size, "the code at +%zu cannot be decoded", *offset);
			return false;
		}
		if (x86_is_emulated(scan->insn->bytes, scan->insn->size))
			return true;
		if (ends_path(scan)) {
			append(why, size, "no emulated instruction up to %s at +%zu",
			       scan->insn->mnemonic, *offset);
			return false;
		}
		int lost = step(scan);
		if (lost < ARGUMENTS) {
			append(why, size, "no emulated instruction before %s is lost at +%zu",
			       argument_name(scan->spec->op, lost), *offset);
			return false;
		}
		if (scan->spec->with_return && scan->stack_moved) {
			append(why, size, "no emulated instruction before the stack moves at +%zu",
			       *offset);
			return false;
		}
	}
	append(why, size, "no emulated instruction in the %zu bytes known", scan->bytes);
	return false;
}

/*
 * The register to read an argument from: the ABI's if that still holds it, otherwise another one.
 */
static uint32_t holder_of(const struct scan *scan, int argument)
{
	uint32_t entry = scan->spec->arguments[argument], holders = scan->holders[argument];

	if (!holders)
		return ABI_REG_COUNT;
	return holders >> entry & 1 ? entry : (uint32_t)__builtin_ctz(holders);
}

static void describe_emulated(const struct scan *scan, size_t offset, char *why, size_t size)
{
	const char *separator = ";";

	append(why, size, "%s at +%zu is emulated", scan->insn->mnemonic, offset);
	for (int i = 0; i < ARGUMENTS; i++) {
		uint32_t holder = holder_of(scan, i);

		if (holder == ABI_REG_COUNT)
			continue;
		append(why, size, "%s %s %s%%%s", separator, argument_name(scan->spec->op, i),
		       holder == scan->spec->arguments[i] ? "still in " : "in ",
		       x86_register_name(holder));
		separator = ",";
	}
}

static void start(struct scan *scan)
{
	for (int i = 0; i < ARGUMENTS; i++) {
		uint32_t reg = scan->spec->arguments[i];

		scan->holders[i] = reg < ABI_REG_COUNT ? 1u << reg : 0;
	}
	scan->stack_moved = false;
}

static void fill_site(struct scan *scan, struct plan_site *site)
{
	const struct probe_spec *spec = scan->spec;
	size_t offset;

	start(scan);
	site->why[0] = site->instruction[0] = '\0';
	site->emulated = find_emulated(scan, &offset, site->why, sizeof(site->why));
	if (site->emulated) {
		site->why[0] = '\0';
		describe_emulated(scan, offset, site->why, sizeof(site->why));
	} else {
		offset = 0;
		start(scan);
	}
	site->vaddr = scan->vaddr + offset;
	site->in_function = (uint32_t)offset;
	site->cookie = ABI_COOKIE(spec->op, spec->api, holder_of(scan, 0), holder_of(scan, 1),
				  holder_of(scan, 2));
	site->op = spec->op;
	site->with_return = spec->with_return == 1;

	/* Last: in this syntax the decoder's operands are in the opposite order, too. */
	cs_option(scan->capstone, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
	if (decode(scan, offset))
		append(site->instruction, sizeof(site->instruction), "%s%s%s", scan->insn->mnemonic,
		       scan->insn->op_str[0] ? " " : "", scan->insn->op_str);
	else
		append(site->instruction, sizeof(site->instruction), "(bad)");
}

int function_entry_site(const struct probe_spec *spec, const uint8_t *code, size_t bytes,
			uint64_t vaddr, struct plan_site *site)
{
	struct scan scan = {.code = code, .bytes = bytes, .vaddr = vaddr, .spec = spec};
	int err = 0;

	if (!bytes)
		return error_set(-EINVAL, "%s has no code", spec->symbol);
	if (scan.bytes > FUNCTION_MAX_CODE)
		scan.bytes = FUNCTION_MAX_CODE;
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &scan.capstone) != CS_ERR_OK)
		return error_set(-ENOMEM, "no memory for the instruction decoder");
	cs_option(scan.capstone, CS_OPT_DETAIL, CS_OPT_ON);
	scan.insn = cs_malloc(scan.capstone);
	if (!scan.insn) {
		err = error_set(-ENOMEM, "no memory for the instruction decoder");
		goto out;
	}
	fill_site(&scan, site);
	cs_free(scan.insn, 1);
out:
	cs_close(&scan.capstone);
	return err;
}

/*
 * How the decoded instruction uses a register: it reads 8 or 4 bytes; 0 it does not use it; -1 it
 * overwrites it.
 */
static int register_use(const struct scan *scan, uint32_t reg)
{
	const cs_x86 *x86 = &scan->insn->detail->x86;
	int use = 0;

	for (int i = 0; i < x86->op_count; i++) {
		const cs_x86_op *op = &x86->operands[i];

		if (op->type == X86_OP_MEM &&
		    (x86_register_of(op->mem.base) == reg || x86_register_of(op->mem.index) == reg))
			return 8;
		if (op->type == X86_OP_REG && x86_register_of(op->reg) == reg) {
			if (op->access & CS_AC_READ)
				return op->size == 8 ? 8 : 4;
			use = -1;
		}
	}
	return use;
}

int function_argument_is_32(const uint8_t *code, size_t bytes, uint32_t reg)
{
	struct scan scan = {.code = code, .bytes = bytes};
	int use = 0;

	if (cs_open(CS_ARCH_X86, CS_MODE_64, &scan.capstone) != CS_ERR_OK)
		return 0;
	cs_option(scan.capstone, CS_OPT_DETAIL, CS_OPT_ON);
	scan.insn = cs_malloc(scan.capstone);
	for (size_t offset = 0; scan.insn && !use && offset < bytes && decode(&scan, offset);
	     offset += scan.insn->size) {
		/* Registers are unchanged after a conditional branch. */
		if (ends_path(&scan) &&
		    (scan.insn->id == X86_INS_JMP || !in_group(&scan, CS_GRP_JUMP)))
			break;
		use = register_use(&scan, reg);
	}
	if (scan.insn)
		cs_free(scan.insn, 1);
	cs_close(&scan.capstone);
	return use == 4;
}
