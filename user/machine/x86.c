/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/x86.h"

#include "abi/target.h"

/*
 * Instructions that every supported kernel emulates: branch_setup_xol_ops() and
 * push_setup_xol_ops() in arch/x86/kernel/uprobes.c. Not included: longer nops, which only newer
 * kernels emulate, and prefixed branches, some of which the kernel refuses to probe.
 */
bool x86_is_emulated(const uint8_t *code, size_t bytes)
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
	static const uint16_t parts[ABI_REG_COUNT][5] = {
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

	for (uint32_t r = 0; reg != X86_REG_INVALID && r < ABI_REG_COUNT; r++)
		for (size_t i = 0; i < 5; i++)
			if (parts[r][i] == reg)
				return r;
	return ABI_REG_COUNT;
}

uint32_t x86_registers_written(csh capstone, const cs_insn *insn)
{
	cs_regs read, written;
	uint8_t reads, writes;
	uint32_t mask = 0;

	if (cs_regs_access(capstone, insn, read, &reads, written, &writes) != CS_ERR_OK)
		return ~0u;
	for (uint8_t i = 0; i < writes; i++)
		mask |= 1u << x86_register_of(written[i]);

	/* Missing in the decoder's tables. */
	if (insn->id == X86_INS_CMPXCHG || insn->id == X86_INS_XLATB)
		mask |= 1u << ABI_REG_AX;
	if (insn->id == X86_INS_ENTER)
		mask |= 1u << ABI_REG_SP | 1u << ABI_REG_BP;
	return mask;
}

const char *x86_register_name(uint32_t reg)
{
	static const char *const names[ABI_REG_COUNT] = {
		"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
		"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15",
	};

	return reg < ABI_REG_COUNT ? names[reg] : "?";
}
