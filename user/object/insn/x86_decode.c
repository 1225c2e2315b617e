/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/x86_decode.h"

#include "abi/target.h"
#include "object/insn/machine.h"

/* What a called function may change (System V ABI): rax, rcx, rdx, rsi, rdi, r8 to r11. */
#define CALL_CLOBBERS                                                                              \
	(1u << ABI_REG_AX | 1u << ABI_REG_CX | 1u << ABI_REG_DX | 1u << ABI_REG_SI |               \
	 1u << ABI_REG_DI | 0xfu << ABI_REG_R8)

/* Reads base + value of a memory operand; 0: it has more parts (an index, a segment). */
static int memory_read(const cs_insn *insn, const cs_x86_op *operand, struct inline_insn *out)
{
	const x86_op_mem *memory = &operand->mem;

	if (memory->index != X86_REG_INVALID || memory->segment != X86_REG_INVALID)
		return 0;
	out->value = memory->disp;
	out->base = ABI_REG_COUNT;
	if (memory->base == X86_REG_RIP)
		out->value += (int64_t)(insn->address + insn->size);
	else if (memory->base != X86_REG_INVALID) {
		out->base = (uint8_t)x86_register_of(memory->base);
		return out->base < ABI_REG_COUNT;
	}
	return 1;
}

static void decode_lea(const cs_insn *insn, struct inline_insn *out)
{
	const cs_x86_op *source = &insn->detail->x86.operands[1];

	out->dst = (uint8_t)x86_register_of(insn->detail->x86.operands[0].reg);
	if (source->mem.base == source->mem.index && source->mem.base != X86_REG_INVALID &&
	    source->mem.scale == 2 && !source->mem.disp) {
		out->op = INLINE_TRIPLE;
		out->src = (uint8_t)x86_register_of(source->mem.base);
		return;
	}
	if (!memory_read(insn, source, out))
		return;
	out->src = out->base;
	out->base = ABI_REG_COUNT;
	out->op = out->src == ABI_REG_COUNT ? INLINE_CONST : INLINE_ADD;
}

static void decode_move(const cs_insn *insn, struct inline_insn *out)
{
	const cs_x86_op *to = &insn->detail->x86.operands[0],
			*from = &insn->detail->x86.operands[1];

	if (to->type == X86_OP_REG && from->type == X86_OP_MEM && to->size >= 4) {
		out->dst = (uint8_t)x86_register_of(to->reg);
		if (memory_read(insn, from, out))
			out->op = to->size == 8 ? INLINE_LOAD : INLINE_LOAD_32;
	} else if (to->type == X86_OP_MEM && from->type == X86_OP_REG && from->size >= 4) {
		out->src = (uint8_t)x86_register_of(from->reg);
		if (memory_read(insn, to, out))
			out->op = from->size == 8 ? INLINE_STORE : INLINE_STORE_32;
	} else if (to->type == X86_OP_MEM && from->type == X86_OP_IMM && to->size >= 4) {
		out->target = (uint64_t)from->imm;
		if (memory_read(insn, to, out))
			out->op = INLINE_STORE_CONST;
	} else if (to->type == X86_OP_REG && to->size >= 4) {
		out->dst = (uint8_t)x86_register_of(to->reg);
		if (from->type == X86_OP_IMM) {
			out->op = INLINE_CONST;
			out->value = to->size == 4 ? (int64_t)(uint32_t)from->imm : from->imm;
		} else if (from->type == X86_OP_REG) {
			out->op = INLINE_COPY;
			out->src = (uint8_t)x86_register_of(from->reg);
		}
	}
}

static void decode_add(const cs_insn *insn, struct inline_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *to = &x86->operands[0];
	int64_t value = 1;

	if (x86->op_count == 2 && x86->operands[1].type != X86_OP_IMM)
		return;
	if (x86->op_count == 2)
		value = x86->operands[1].imm;
	if (insn->id == X86_INS_SUB || insn->id == X86_INS_DEC)
		value = -value;
	out->width = to->size;
	if (to->type == X86_OP_REG && to->size >= 4) {
		out->op = INLINE_ADD;
		out->dst = out->src = (uint8_t)x86_register_of(to->reg);
		out->value = value;
	} else if (to->type == X86_OP_MEM && value == 1 && memory_read(insn, to, out)) {
		out->op = INLINE_BUMP;
	}
}

static void decode_compare(const cs_insn *insn, struct inline_insn *out)
{
	const cs_x86_op *left = &insn->detail->x86.operands[0],
			*right = &insn->detail->x86.operands[1];

	out->width = left->size;
	if (left->type == X86_OP_MEM && right->type == X86_OP_REG) {
		const cs_x86_op *swap = left;

		left = right, right = swap;
	}
	if (left->type == X86_OP_MEM && right->type == X86_OP_IMM) {
		out->op = INLINE_COMPARE_CONST;
		if (memory_read(insn, left, out))
			out->target = (uint64_t)out->value;
		out->value = right->imm;
	}
	if (left->type != X86_OP_REG)
		return;
	out->dst = (uint8_t)x86_register_of(left->reg);
	if (right->type == X86_OP_REG) {
		out->op = INLINE_COMPARE;
		out->src = (uint8_t)x86_register_of(right->reg);
	} else if (right->type == X86_OP_MEM) {
		if (memory_read(insn, right, out))
			out->op = INLINE_COMPARE;
	} else {
		out->op = INLINE_COMPARE_CONST;
		out->value = right->imm;
	}
}

static void decode_data(const cs_insn *insn, struct inline_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *operands = x86->operands;
	int same = x86->op_count == 2 && operands[0].type == X86_OP_REG &&
		   operands[1].type == X86_OP_REG && operands[0].reg == operands[1].reg;

	out->width = x86->op_count ? operands[0].size : 0;
	switch (insn->id) {
	case X86_INS_LEA:
		decode_lea(insn, out);
		break;
	case X86_INS_MOV:
	case X86_INS_MOVABS:
		if (x86->op_count == 2)
			decode_move(insn, out);
		break;
	case X86_INS_ADD:
	case X86_INS_SUB:
	case X86_INS_INC:
	case X86_INS_DEC:
		decode_add(insn, out);
		break;
	case X86_INS_CMP:
		if (x86->op_count == 2)
			decode_compare(insn, out);
		break;
	case X86_INS_TEST:
		out->op = same ? INLINE_TEST : INLINE_OTHER;
		out->dst = (uint8_t)(same ? x86_register_of(operands[0].reg) : ABI_REG_COUNT);
		break;
	case X86_INS_XOR:
		if (same && operands[0].size >= 4) {
			out->op = INLINE_CONST;
			out->dst = (uint8_t)x86_register_of(operands[0].reg);
		}
		break;
	case X86_INS_SHL:
	case X86_INS_SAL:
	case X86_INS_SHR:
		if (x86->op_count == 2 && operands[0].type == X86_OP_REG &&
		    operands[1].type == X86_OP_IMM) {
			out->op = insn->id == X86_INS_SHR ? INLINE_SHIFT : INLINE_SHIFT_LEFT;
			out->dst = out->src = (uint8_t)x86_register_of(operands[0].reg);
			out->value = operands[1].imm;
		}
		break;
	case X86_INS_AND:
		if (x86->op_count == 2 && operands[0].type == X86_OP_REG &&
		    operands[1].type == X86_OP_IMM) {
			out->op = INLINE_MASK;
			out->dst = out->src = (uint8_t)x86_register_of(operands[0].reg);
			out->value = operands[1].imm;
		}
		break;
	}
}

static uint8_t order_of(unsigned id)
{
	switch (id) {
	case X86_INS_JB:
		return INLINE_BELOW;
	case X86_INS_JAE:
		return INLINE_ABOVE_EQUAL;
	case X86_INS_JA:
		return INLINE_ABOVE;
	case X86_INS_JBE:
		return INLINE_BELOW_EQUAL;
	default:
		return INLINE_NO_ORDER;
	}
}

/* 1: it is a branch, call or return, and *out is complete. */
static int decode_control(struct inline_decoder *decoder, struct inline_insn *out)
{
	const cs_insn *insn = decoder->insn;
	const cs_x86_op *operand = &insn->detail->x86.operands[0];
	int direct = insn->detail->x86.op_count == 1 && operand->type == X86_OP_IMM;

	if (cs_insn_group(decoder->capstone, insn, CS_GRP_CALL)) {
		out->op = direct ? INLINE_CALL : INLINE_CALL_SLOT;
		out->written = CALL_CLOBBERS;
	} else if (insn->id == X86_INS_JMP) {
		out->op = direct ? INLINE_JUMP : INLINE_JUMP_SLOT;
	} else if (cs_insn_group(decoder->capstone, insn, CS_GRP_JUMP)) {
		out->op = direct ? INLINE_BRANCH : INLINE_END;
		out->equal = insn->id == X86_INS_JE;
		out->order = order_of(insn->id);
		out->unequal = insn->id == X86_INS_JNE;
	} else if (cs_insn_group(decoder->capstone, insn, CS_GRP_RET) ||
		   cs_insn_group(decoder->capstone, insn, CS_GRP_INT) ||
		   cs_insn_group(decoder->capstone, insn, CS_GRP_IRET) || insn->id == X86_INS_HLT ||
		   insn->id == X86_INS_UD2 || insn->id == X86_INS_UD0) {
		out->op = INLINE_END;
	} else {
		return 0;
	}
	if (direct)
		out->target = (uint64_t)operand->imm;
	else if (operand->type == X86_OP_MEM && memory_read(insn, operand, out) &&
		 out->base == ABI_REG_COUNT)
		out->target = (uint64_t)out->value;
	else if (operand->type == X86_OP_REG)
		out->src = (uint8_t)x86_register_of(operand->reg);
	return 1;
}

void x86_decode(struct inline_decoder *decoder, struct inline_insn *out)
{
	if (decode_control(decoder, out))
		return;
	out->written = machine_x86.registers_written(decoder->capstone, decoder->insn);
	decode_data(decoder->insn, out);
}
