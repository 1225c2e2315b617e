/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a place in a function: the frame there, the operands of its USDT probe. */
#include "abi/target.h"
#include "machine/frame.h"
#include "machine/operand.h"

#define NAME_MAX_BYTES 128 /* of a variable's name, with its NUL */
#define SHORT          8   /* bytes of a register's name, with its NUL */

static int is_register(const cs_x86_op *operand, x86_reg number)
{
	return operand->type == X86_OP_REG && operand->reg == number;
}

int x86_frame_step(struct machine_frame *frame, const cs_insn *insn,
		   const struct inline_insn *decoded)
{
	const cs_x86_op *operands = insn->detail->x86.operands;

	switch (insn->id) {
	case X86_INS_PUSH:
		frame->depth += 8;
		if (is_register(&operands[0], X86_REG_RBP) && !frame->saved)
			frame->saved = frame->depth;
		return 0;
	case X86_INS_POP:
		frame->depth -= 8;
		if (is_register(&operands[0], X86_REG_RBP))
			frame->saved = 0;
		return is_register(&operands[0], X86_REG_RSP) ? -1 : 0;
	case X86_INS_SUB:
	case X86_INS_ADD:
		if (!is_register(&operands[0], X86_REG_RSP))
			return 0;
		if (operands[1].type != X86_OP_IMM)
			return -1;
		frame->depth += insn->id == X86_INS_SUB ? operands[1].imm : -operands[1].imm;
		return 0;
	case X86_INS_MOV:
		/* Right after "push %rbp", at the function's entry. */
		if (is_register(&operands[0], X86_REG_RBP) &&
		    is_register(&operands[1], X86_REG_RSP) && frame->saved == frame->depth &&
		    frame->depth == frame->returned + 8)
			frame->pointer = frame->depth;
		break;
	}
	/* A call returns to where it was. */
	return decoded->op < INLINE_BRANCH && decoded->written >> ABI_REG_SP & 1 ? -1 : 0;
}

/* Offsets in struct pt_regs of x86-64, an ABI of the kernel. */
enum pt_regs_offset {
	AT_R15 = 0,
	AT_R14 = 8,
	AT_R13 = 16,
	AT_R12 = 24,
	AT_RBP = 32,
	AT_RBX = 40,
	AT_R11 = 48,
	AT_R10 = 56,
	AT_R9 = 64,
	AT_R8 = 72,
	AT_RAX = 80,
	AT_RCX = 88,
	AT_RDX = 96,
	AT_RSI = 104,
	AT_RDI = 112,
	AT_RIP = 128,
	AT_RSP = 152,
};

/* The first eight registers have names of their own for each of their widths. */
static const struct old_register {
	const char names[4][5]; /* 8, 4, 2, 1 bytes */
	uint8_t offset;
} old_registers[] = {
	{{"rax", "eax", "ax", "al"}, AT_RAX},  {{"rbx", "ebx", "bx", "bl"}, AT_RBX},
	{{"rcx", "ecx", "cx", "cl"}, AT_RCX},  {{"rdx", "edx", "dx", "dl"}, AT_RDX},
	{{"rsi", "esi", "si", "sil"}, AT_RSI}, {{"rdi", "edi", "di", "dil"}, AT_RDI},
	{{"rbp", "ebp", "bp", "bpl"}, AT_RBP}, {{"rsp", "esp", "sp", "spl"}, AT_RSP},
	{{"", "", "", "ah"}, AT_RAX + 1},      {{"", "", "", "bh"}, AT_RBX + 1},
	{{"", "", "", "ch"}, AT_RCX + 1},      {{"", "", "", "dh"}, AT_RDX + 1},
};

/* %r8 to %r15, with d, w or b behind them for fewer bytes. */
static int new_register(const char *name, uint8_t *offset, uint8_t *bytes)
{
	static const uint8_t offsets[] = {AT_R8,  AT_R9,  AT_R10, AT_R11,
					  AT_R12, AT_R13, AT_R14, AT_R15};
	char *end;
	unsigned long number;

	if (name[0] != 'r' || !isdigit((unsigned char)name[1]))
		return 0;
	number = strtoul(name + 1, &end, 10);
	if (number < 8 || number > 15)
		return 0;
	*offset = offsets[number - 8];
	*bytes = !strcmp(end, "")    ? 8
		 : !strcmp(end, "d") ? 4
		 : !strcmp(end, "w") ? 2
		 : !strcmp(end, "b") ? 1
				     : 0;
	return *bytes != 0;
}

static int known_register(const char *name, uint8_t *offset, uint8_t *bytes)
{
	for (size_t i = 0; i < sizeof(old_registers) / sizeof(old_registers[0]); i++)
		for (int width = 0; width < 4; width++)
			if (!strcmp(name, old_registers[i].names[width])) {
				*offset = old_registers[i].offset;
				*bytes = (uint8_t)(8 >> width);
				return 1;
			}
	return new_register(name, offset, bytes);
}

/* Takes "%NAME"; 0: there is no known register. */
static int register_take(struct operand *operand, uint8_t *offset, uint8_t *bytes)
{
	char name[SHORT];

	return text_take(operand, "%") && name_take(operand, name, sizeof(name)) &&
	       known_register(name, offset, bytes);
}

/* Takes a variable's name and the number that may follow it; the result is relative to the probe.
 */
static int symbol_take(struct operand *operand, long long *value)
{
	const struct usdt_symbols *symbols = operand->symbols;
	char name[NAME_MAX_BYTES];
	uint64_t vaddr;
	size_t length = 0;

	while (operand->text < operand->end && length < sizeof(name) - 1 &&
	       (isalnum((unsigned char)*operand->text) || strchr("_.$", *operand->text)))
		name[length++] = *operand->text++;
	name[length] = '\0';
	if (!length || !symbols || symbols->find(symbols->context, name, &vaddr))
		return 0;
	*value = 0;
	if ((operand_starts(operand, "+") || operand_starts(operand, "-")) &&
	    !number_take(operand, value))
		return 0;
	*value = (long long)((uint64_t)*value + vaddr - symbols->vaddr);
	return 1;
}

/* Takes "(BASE,INDEX,SCALE)", of which parts may be missing. */
static int address_take(struct operand *operand, struct abi_usdt_argument *out)
{
	uint8_t bytes;
	long long scale;

	if (!text_take(operand, "("))
		return 0;
	if (!operand_starts(operand, ",") &&
	    (!register_take(operand, &out->base, &bytes) || bytes != 8))
		return 0;
	if (text_take(operand, ",")) {
		if (!register_take(operand, &out->index, &bytes) || bytes != 8)
			return 0;
		if (text_take(operand, ",")) {
			if (!number_take(operand, &scale) || scale < 1 || scale > 8 ||
			    scale & (scale - 1))
				return 0;
			out->scale = (uint8_t)__builtin_ctzll((unsigned long long)scale);
		}
	}
	return text_take(operand, ")");
}

static int memory_take(struct operand *operand, struct abi_usdt_argument *out)
{
	int has_number;

	out->kind = text_take(operand, "%fs:") ? ABI_USDT_THREAD : ABI_USDT_MEMORY;
	has_number = number_take(operand, &out->value);
	if (has_number && operand->text == operand->end)
		return out->kind == ABI_USDT_THREAD;
	if (has_number || operand_starts(operand, "("))
		return address_take(operand, out);
	out->base = AT_RIP;
	return out->kind == ABI_USDT_MEMORY && symbol_take(operand, &out->value) &&
	       text_take(operand, "(%rip)");
}

int x86_operand_take(struct operand *operand, struct abi_usdt_argument *out)
{
	uint8_t width = 8;

	if (text_take(operand, "$")) {
		out->kind = ABI_USDT_CONSTANT;
		return number_take(operand, &out->value);
	}
	if (!operand_starts(operand, "%") || operand_starts(operand, "%fs:"))
		return memory_take(operand, out);
	return register_take(operand, &out->base, &width) && operand_is_register(out, width);
}
