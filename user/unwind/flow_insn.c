/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/flow_insn.h"

static int is_rsp(unsigned reg)
{
	return reg == X86_REG_RSP || reg == X86_REG_ESP || reg == X86_REG_SP || reg == X86_REG_SPL;
}

static int is_rbp(unsigned reg)
{
	return reg == X86_REG_RBP || reg == X86_REG_EBP || reg == X86_REG_BP || reg == X86_REG_BPL;
}

/* Does it write rsp, rbp? */
static enum flow_op written(csh capstone, const cs_insn *insn)
{
	uint8_t read_count, write_count;
	enum flow_op op = FLOW_OTHER;
	cs_regs reads, writes;

	if (cs_regs_access(capstone, insn, reads, &read_count, writes, &write_count))
		return FLOW_STOP;
	for (uint8_t i = 0; i < write_count; i++) {
		if (is_rsp(writes[i]))
			return FLOW_WRITE_RSP;
		if (is_rbp(writes[i]))
			op = FLOW_WRITE_RBP;
	}
	return op;
}

static int is_register(const cs_x86_op *operand, unsigned reg)
{
	return operand->type == X86_OP_REG && operand->reg == (x86_reg)reg;
}

static int set_value(struct flow_insn *out, enum flow_op op, int64_t value)
{
	out->op = op;
	out->value = (int32_t)value;
	return value == out->value;
}

/* add, sub, mov and lea between rsp, rbp and a number. 0: it is none of them. */
static int decode_arithmetic(const cs_insn *insn, struct flow_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *to = &x86->operands[0], *from = &x86->operands[1];
	int to_rsp = is_register(to, X86_REG_RSP), to_rbp = is_register(to, X86_REG_RBP);
	const x86_op_mem *memory = &from->mem;

	if (x86->op_count != 2 || (!to_rsp && !to_rbp))
		return 0;
	switch (insn->id) {
	case X86_INS_ADD:
	case X86_INS_SUB:
		return to_rsp && from->type == X86_OP_IMM &&
		       set_value(out, FLOW_ADD_RSP,
				 insn->id == X86_INS_ADD ? from->imm : -from->imm);
	case X86_INS_MOV:
		if (is_register(from, to_rsp ? X86_REG_RBP : X86_REG_RSP))
			return set_value(out, to_rsp ? FLOW_RSP_RBP : FLOW_RBP_RSP, 0);
		return 0;
	case X86_INS_LEA:
		if (memory->index != X86_REG_INVALID || memory->segment != X86_REG_INVALID)
			return 0;
		if (memory->base == X86_REG_RSP)
			return set_value(out, to_rsp ? FLOW_ADD_RSP : FLOW_RBP_RSP, memory->disp);
		return to_rsp && memory->base == X86_REG_RBP &&
		       set_value(out, FLOW_RSP_RBP, memory->disp);
	default:
		return 0;
	}
}

static enum flow_op decode_stack(const cs_insn *insn)
{
	const cs_x86_op *operand = &insn->detail->x86.operands[0];

	if (insn->id == X86_INS_LEAVE)
		return FLOW_LEAVE;
	if (insn->id != X86_INS_PUSH && insn->id != X86_INS_POP)
		return FLOW_OTHER;
	if (operand->size != 8 && operand->type != X86_OP_IMM)
		return FLOW_WRITE_RSP;
	if (insn->id == X86_INS_PUSH)
		return is_register(operand, X86_REG_RBP) ? FLOW_PUSH_RBP : FLOW_PUSH;
	if (is_register(operand, X86_REG_RBP))
		return FLOW_POP_RBP;
	return is_register(operand, X86_REG_RSP) ? FLOW_WRITE_RSP : FLOW_POP;
}

static enum flow_op decode_jump(const cs_insn *insn, int is_direct)
{
	if (!is_direct)
		return FLOW_JUMP_ANY;
	return insn->id == X86_INS_JMP ? FLOW_JUMP : FLOW_BRANCH;
}

static int decode_control(csh capstone, const cs_insn *insn, struct flow_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	int is_direct = x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM;

	if (is_direct)
		out->target = (uint64_t)x86->operands[0].imm;
	if (cs_insn_group(capstone, insn, CS_GRP_CALL))
		out->op = FLOW_CALL;
	else if (cs_insn_group(capstone, insn, CS_GRP_RET))
		/* C code does not remove its arguments. */
		out->op = insn->id == X86_INS_RET && !x86->op_count ? FLOW_RETURN : FLOW_JUMP_ANY;
	else if (cs_insn_group(capstone, insn, CS_GRP_JUMP))
		out->op = decode_jump(insn, is_direct);
	else if (insn->id == X86_INS_HLT || insn->id == X86_INS_UD2 || insn->id == X86_INS_INT3)
		out->op = FLOW_STOP;
	else if (insn->id == X86_INS_NOP)
		out->op = FLOW_NOP;
	return out->op != FLOW_OTHER;
}

struct flow_insn flow_decode(csh capstone, cs_insn *insn, const uint8_t *code, size_t bytes,
			     uint64_t vaddr)
{
	struct flow_insn out = {.vaddr = vaddr, .bytes = 1, .op = FLOW_STOP};

	if (!cs_disasm_iter(capstone, &code, &bytes, &vaddr, insn))
		return out;
	out.bytes = (uint8_t)insn->size;
	out.op = FLOW_OTHER;
	if (decode_control(capstone, insn, &out))
		return out;
	out.op = (uint8_t)decode_stack(insn);
	if (out.op == FLOW_OTHER && !decode_arithmetic(insn, &out))
		out.op = (uint8_t)written(capstone, insn);
	return out;
}
