/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "abi/target.h"
#include "object/insn/frame.h"
#include "object/insn/machine.h"
#include "object/insn/operand.h"
#include "object/insn/value.h"
#include "object/insn/x86_decode.h"
#include "util/array.h"

/* --- x86 place -------------------------------------------------------------------------------- */

/* What is known of a place in a function: the frame there, the operands of its USDT probe. */

#define NAME_MAX_BYTES 128 /* of a variable's name, with its NUL */
#define SHORT          8   /* bytes of a register's name, with its NUL */

static bool is_register(const cs_x86_op *operand, x86_reg number)
{
	return operand->type == X86_OP_REG && operand->reg == number;
}

/*
 * The effect of an instruction (struct machine.frame_step). 0; -1: what it does to the stack
 * pointer or to the link register is not understood.
 */
static int x86_frame_step(struct machine_frame *frame, const cs_insn *insn,
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

	if (name[0] != 'r' || !isdigit((unsigned char)name[1]))
		return 0;
	unsigned long number = strtoul(name + 1, &end, 10);
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
	for (size_t i = 0; i < ARRAY_SIZE(old_registers); i++)
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
	out->kind = text_take(operand, "%fs:") ? ABI_USDT_THREAD : ABI_USDT_MEMORY;
	int has_number = number_take(operand, &out->value);
	if (has_number && operand->text == operand->end)
		return out->kind == ABI_USDT_THREAD;
	if (has_number || operand_starts(operand, "("))
		return address_take(operand, out);
	out->base = AT_RIP;
	return out->kind == ABI_USDT_MEMORY && symbol_take(operand, &out->value) &&
	       text_take(operand, "(%rip)");
}

/*
 * Take an operand (struct machine.operand_take): out->bytes is that of the argument, and becomes
 * that of its register if that has fewer. 0: not understood.
 */
static int x86_operand_take(struct operand *operand, struct abi_usdt_argument *out)
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

/* --- x86 look --------------------------------------------------------------------------------- */

/* machine.look and .stub_slot of x86-64. */

/* Instructions of x86-64 that are found as bytes, which may be a part of others. */

#define OPERAND sizeof(int32_t)
#define SHORT   8  /* bytes of the longest instruction that is looked for */
#define NEAR    40 /* bytes from the load of pool->freeblock to where it is stored */
/* bytes from loading the address of a structure to reading the flag in it */
#define READ_NEAR     96
#define STRUCTURE_MAX (1u << 20) /* size of the structure that holds the flag, at most */
#define FREEBLOCK     8
#define NEXTPOOL      16

static uint64_t relative(const struct inline_range *text, size_t operand)
{
	int32_t distance;

	memcpy(&distance, text->code + operand, sizeof(distance));
	return text->vaddr + operand + OPERAND + (uint64_t)(int64_t)distance;
}

static size_t jump_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + 1 + OPERAND <= text->bytes; i++) {
		if (text->code[i] != 0xe9 && text->code[i] != 0x0f)
			continue;
		int is_branch = text->code[i] == 0x0f;
		if (is_branch &&
		    ((text->code[i + 1] & 0xf0) != 0x80 || i + 2 + OPERAND > text->bytes))
			continue;
		out->vaddr = text->vaddr + i;
		out->target = relative(text, i + 1 + (size_t)is_branch);
		return i + 1;
	}
	return 0;
}

/*
 * The displacement of a REX.W mov with an 8-bit displacement or of a comparison with memory,
 * otherwise 0.
 */
static unsigned displacement(const uint8_t *bytes)
{
	unsigned mod = bytes[2] >> 6, base = bytes[2] & 7;

	if ((bytes[0] & 0xf8) != 0x48 || mod != 1 ||
	    (bytes[1] != 0x8b && bytes[1] != 0x39 && bytes[1] != 0x3b))
		return 0;
	return base == 4 ? bytes[4] : bytes[3];
}

/*
 * Does a store of that register through another follow soon? Most loads at offset 8 are of
 * something else.
 */
static int store_follows(const uint8_t *bytes, size_t count, unsigned reg)
{
	for (size_t i = 0; i + 3 <= count; i++)
		if ((bytes[i] & 0xf8) == 0x48 && bytes[i + 1] == 0x89 &&
		    (bytes[i + 2] >> 3 & 7) == (reg & 7) && (bytes[i] >> 2 & 1) == reg >> 3 &&
		    bytes[i + 2] >> 6 < 2)
			return 1;
	return 0;
}

static size_t pool_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + SHORT <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;
		size_t left = text->bytes - i;

		if ((bytes[0] & 0xf8) != 0x48)
			continue;
		unsigned at = displacement(bytes);
		unsigned reg = (bytes[0] >> 2 & 1) << 3 | (bytes[2] >> 3 & 7);
		if (at != NEXTPOOL && (at != FREEBLOCK || bytes[1] != 0x8b ||
				       !store_follows(bytes, left < NEAR ? left : NEAR, reg)))
			continue;
		out->vaddr = text->vaddr + i;
		out->is_next = at == NEXTPOOL;
		return i + 1;
	}
	return 0;
}

/* lea (r,r,2) */
static size_t triple_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + SHORT <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;

		if ((bytes[0] & 0xf8) != 0x48 || bytes[1] != 0x8d || (bytes[2] & 7) != 4 ||
		    bytes[3] >> 6 != 1)
			continue;
		out->vaddr = text->vaddr + i;
		return i + 1;
	}
	return 0;
}

static size_t call_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + 2 + OPERAND <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;
		int through_slot = bytes[0] == 0xff && (bytes[1] == 0x15 || bytes[1] == 0x25);

		if (!through_slot && bytes[0] != 0xe8 && bytes[0] != 0xe9)
			continue;
		out->vaddr = text->vaddr + i;
		out->through_slot = (uint8_t)through_slot;
		out->bytes = (uint8_t)(OPERAND + (through_slot ? 2 : 1));
		out->is_call = bytes[0] == 0xe8 || (through_slot && bytes[1] == 0x15);
		out->target = relative(text, i + (through_slot ? 2 : 1));
		return i + 1;
	}
	return 0;
}

/* Does a displacement of distance follow soon? */
static int displacement_follows(const struct inline_range *text, size_t index, uint64_t distance)
{
	size_t end = index + READ_NEAR < text->bytes ? index + READ_NEAR : text->bytes;
	uint32_t wide = (uint32_t)distance;

	if (!distance)
		return 1;
	for (; index < end; index++)
		if ((distance <= INT8_MAX && text->code[index] == distance) ||
		    (end - index >= sizeof(wide) &&
		     !memcmp(text->code + index, &wide, sizeof(wide))))
			return 1;
	return 0;
}

/*
 * Does the operand at that index refer to the flag: its address, the slot that leads to it, or the
 * structure that holds it? *before: bytes of the instruction before the operand, without a REX
 * prefix.
 */
static bool is_operand(const struct inline_range *text, size_t index,
		       const struct inline_address *flag, unsigned *before)
{
	const uint8_t *code = text->code + index;
	uint64_t wanted = flag->slot ? flag->slot : (uint64_t)flag->offset, target;
	int32_t distance;

	memcpy(&distance, code, sizeof(distance));
	*before = 2;
	target = text->vaddr + index + 4 + (uint64_t)(int64_t)distance;
	if ((code[-1] & 0xc7) == 5 &&
	    (code[-2] == 0x8b || code[-2] == 0x83)) /* of 0x83 an immediate follows */
		return target + (code[-2] == 0x83) == wanted;
	int is_address = (code[-1] & 0xc7) == 5 && code[-2] == 0x8d;
	if (!is_address && code[-2] == 0xc7 && (code[-1] & 0xf8) == 0xc0) {
		is_address = 1;
		target = (uint64_t)(int64_t)distance;
	} else if (!is_address && (code[-1] & 0xf8) == 0xb8) {
		is_address = 1;
		target = (uint32_t)distance;
		*before = 1;
	}
	return is_address && !flag->slot && wanted - target < STRUCTURE_MAX &&
	       displacement_follows(text, index + sizeof(distance), wanted - target);
}

/* May the byte be the last one before an operand that is_operand() knows? Few are. */
static bool may_precede(uint8_t byte)
{
	return (byte & 0xc7) == 5 || (byte & 0xf8) == 0xc0 || (byte & 0xf8) == 0xb8;
}

/* from: the offset of the operand, which is what is searched for. */
static size_t reader_look(const struct inline_range *text, size_t i,
			  const struct inline_address *flag, struct machine_found *out)
{
	for (i = i < 3 ? 3 : i; i + OPERAND <= text->bytes; i++) {
		unsigned before;

		if (!may_precede(text->code[i - 1]) || !is_operand(text, i, flag, &before))
			continue;
		out->vaddr = text->vaddr + i - before;
		out->prefixed = (text->code[i - before - 1] & 0xf0) == 0x40;
		return i + 1;
	}
	return 0;
}

static size_t x86_look(enum machine_look what, const struct inline_range *text, size_t from,
		       const struct inline_address *flag, struct machine_found *out)
{
	*out = (struct machine_found){.base = ABI_REG_COUNT};
	switch (what) {
	case MACHINE_JUMP:
		return jump_look(text, from, out);
	case MACHINE_POOL:
		return pool_look(text, from, out);
	case MACHINE_TRIPLE:
		return triple_look(text, from, out);
	case MACHINE_CALL:
		return call_look(text, from, out);
	case MACHINE_READER:
		return reader_look(text, from, flag, out);
	}
	return 0;
}

static uint64_t x86_stub_slot(const uint8_t *code, size_t bytes, uint64_t vaddr)
{
	static const uint8_t landing[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
	struct inline_range stub = {code, vaddr, bytes};
	size_t at = 0;

	if (bytes >= sizeof(landing) && !memcmp(code, landing, sizeof(landing)))
		at += sizeof(landing);
	if (bytes - at >= 1 && code[at] == 0xf2)
		at++;
	if (bytes - at < 2 + OPERAND || code[at] != 0xff || code[at + 1] != 0x25)
		return 0;
	return relative(&stub, at + 2);
}

/* --- x86 -------------------------------------------------------------------------------------- */

#define REGISTERS 16

/*
 * Instructions that every supported kernel emulates: branch_setup_xol_ops() and
 * push_setup_xol_ops() in arch/x86/kernel/uprobes.c. Not included: longer nops, which only newer
 * kernels emulate, and prefixed branches, some of which the kernel refuses to probe.
 */
static bool is_emulated(const uint8_t *code, size_t bytes)
{
	switch (bytes) {
	case 1: /* nop, push */
		return code[0] == 0x90 || (code[0] & 0xf8) == 0x50;
	case 2: /* push %r8 to %r15, jmp, jcc */
		return code[0] == 0x41 ? (code[1] & 0xf8) == 0x50
				       : code[0] == 0xeb || (code[0] & 0xf0) == 0x70;
	case 5: /* call, jmp */
		return code[0] == 0xe8 || code[0] == 0xe9;
	case 6: /* jcc */
		return code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
	default:
		return false;
	}
}

uint32_t x86_register_of(unsigned reg)
{
	static const uint16_t parts[REGISTERS][5] = {
		{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH},
		{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH},
		{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH},
		{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH},
		{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL},
		{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL},
		{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL},
		{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL},
		{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B},
		{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B},
		{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B},
		{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B},
		{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B},
		{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B},
		{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B},
		{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B},
	};

	for (uint32_t r = 0; reg != X86_REG_INVALID && r < REGISTERS; r++)
		for (size_t i = 0; i < 5; i++)
			if (parts[r][i] == reg)
				return r;
	return ABI_REG_COUNT;
}

static uint32_t registers_written(csh capstone, const cs_insn *insn)
{
	cs_regs read, written;
	uint8_t reads, writes;
	uint32_t mask = 0;

	if (cs_regs_access(capstone, insn, read, &reads, written, &writes) != CS_ERR_OK)
		return ~0u;
	for (uint8_t i = 0; i < writes; i++) {
		uint32_t reg = x86_register_of(written[i]);

		mask |= reg < ABI_REG_COUNT ? 1u << reg : 0;
	}

	/* Missing in the decoder's tables. */
	if (insn->id == X86_INS_CMPXCHG || insn->id == X86_INS_XLATB)
		mask |= 1u << ABI_REG_AX;
	if (insn->id == X86_INS_ENTER)
		mask |= 1u << ABI_REG_SP | 1u << ABI_REG_BP;
	return mask;
}

static const char *register_name(uint32_t reg)
{
	static const char *const names[REGISTERS] = {
		"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
		"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15",
	};

	return reg < REGISTERS ? names[reg] : "?";
}

/* A 32-bit move would truncate a 64-bit value. */
static bool copies(const cs_insn *insn, uint32_t *to, uint32_t *from)
{
	const cs_x86 *x86 = &insn->detail->x86;

	if (insn->id != X86_INS_MOV || x86->op_count != 2 || x86->operands[0].type != X86_OP_REG ||
	    x86->operands[1].type != X86_OP_REG || x86->operands[0].size != 8 ||
	    x86->operands[1].size != 8)
		return false;
	*to = x86_register_of(x86->operands[0].reg);
	*from = x86_register_of(x86->operands[1].reg);
	return *to < ABI_REG_COUNT && *from < ABI_REG_COUNT;
}

/* Can control continue elsewhere than at the next instruction, or is that up to the kernel? */
static bool leaves(csh capstone, const cs_insn *insn)
{
	static const unsigned groups[] = {CS_GRP_JUMP, CS_GRP_CALL, CS_GRP_RET,
					  CS_GRP_INT,  CS_GRP_IRET, CS_GRP_BRANCH_RELATIVE};

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (cs_insn_group(capstone, insn, groups[i]))
			return true;
	switch (insn->id) {
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

static bool target(csh capstone, const cs_insn *insn, uint64_t *vaddr)
{
	const cs_x86 *x86 = &insn->detail->x86;

	if (x86->op_count != 1 || x86->operands[0].type != X86_OP_IMM || !leaves(capstone, insn))
		return false;
	*vaddr = (uint64_t)x86->operands[0].imm;
	return true;
}

static int register_use(const cs_insn *insn, uint32_t reg)
{
	const cs_x86 *x86 = &insn->detail->x86;
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

static bool stores(const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (int i = 0; i < x86->op_count; i++)
		if (x86->operands[i].type == X86_OP_MEM && x86->operands[i].access & CS_AC_WRITE)
			return true;
	return false;
}

static bool is_syscall(const cs_insn *insn)
{
	return insn->size == 2 && insn->bytes[0] == 0x0f && insn->bytes[1] == 0x05;
}

/* Not one that pops arguments. */
static bool is_return(const cs_insn *insn)
{
	return insn->bytes[0] == 0xc3 || (insn->bytes[0] == 0xf3 && insn->bytes[1] == 0xc3);
}

/* The listed ones can, whatever their operands. */
static bool may_be_probed(const cs_insn *insn)
{
	switch (insn->id) {
	case X86_INS_MOV:
	case X86_INS_LEA:
	case X86_INS_SUB:
	case X86_INS_ADD:
	case X86_INS_TEST:
	case X86_INS_CMP:
	case X86_INS_XOR:
		return insn->detail->x86.prefix[0] == 0;
	default:
		return is_emulated(insn->bytes, insn->size);
	}
}

const struct machine machine_x86 = {
	.name = "x86-64",
	.arch = CS_ARCH_X86,
	.mode = CS_MODE_64,
	.insn_step = 1,
	.long_jump = 5,
	.filler = 0xcc, /* int3 */
	.nop = {0x90},
	.stack_pointer = ABI_REG_SP,
	.link_register = ABI_REG_COUNT,
	.return_bytes = 8,
	.result = ABI_REG_AX,
	.arguments = {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX, ABI_REG_CX, ABI_REG_R8, ABI_REG_R9},
	.is_emulated = is_emulated,
	.may_be_probed = may_be_probed,
	.registers_written = registers_written,
	.register_name = register_name,
	.copies = copies,
	.leaves = leaves,
	.target = target,
	.register_use = register_use,
	.stores = stores,
	.is_syscall = is_syscall,
	.is_return = is_return,
	.frame_step = x86_frame_step,
	.operand_take = x86_operand_take,
	.decode = x86_decode,
	.look = x86_look,
	.stub_slot = x86_stub_slot,
};
