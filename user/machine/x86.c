/* SPDX-License-Identifier: Apache-2.0 */
#include "abi/target.h"
#include "machine/frame.h"
#include "machine/machine.h"
#include "machine/operand.h"
#include "machine/x86_decode.h"
#include "machine/x86_look.h"

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

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
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
