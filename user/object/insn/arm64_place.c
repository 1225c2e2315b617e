/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a place in a function: the frame there, the operands of its USDT probe.
 *
 * Functions save the frame pointer and the link register anywhere in their frame, with stp or str;
 * a leaf function saves neither.
 */
#include "object/insn/arm64.h"
#include "object/insn/frame.h"
#include "object/insn/operand.h"

#define FRAME 29
#define LINK  30
#define STACK 31 /* as a base */

static uint32_t field(uint32_t word, unsigned low)
{
	return a64_bits(word, low, 5);
}

/* A register is stored or loaded that many bytes above the stack pointer. */
static void slot_use(struct machine_frame *frame, uint32_t reg, int64_t at, int is_load)
{
	int64_t *slot = reg == FRAME ? &frame->saved : reg == LINK ? &frame->returned : NULL;

	if (slot && is_load)
		*slot = 0;
	else if (slot && !*slot)
		*slot = frame->depth - at;
}

/* stp, ldp. 1: it is one, at the stack pointer. */
static int pair_step(struct machine_frame *frame, uint32_t word)
{
	uint32_t is_vector = word >> 26 & 1, opc = word >> 30, how = a64_bits(word, 23, 2);
	int64_t bytes = is_vector ? 4ll << opc : opc == 2 ? 8 : 4;
	int64_t at = a64_signed(word, 15, 7) * bytes;
	int is_load = word >> 22 & 1, is_of_two = !is_vector && opc == 2;

	if (!a64_is(word, 0x3a000000, 0x28000000) || field(word, 5) != STACK)
		return 0;
	if (how == 3) /* before the access */
		frame->depth -= at;
	if (is_of_two) {
		slot_use(frame, field(word, 0), how & 1 ? 0 : at, is_load);
		slot_use(frame, field(word, 10), (how & 1 ? 0 : at) + 8, is_load);
	}
	if (how == 1) /* after it */
		frame->depth -= at;
	return 1;
}

/* str, ldr, stur, ldur. 1: it is one, at the stack pointer. */
static int single_step(struct machine_frame *frame, uint32_t word)
{
	int is_scaled = a64_is(word, 0x3b000000, 0x39000000);
	int is_near = a64_is(word, 0x3b200000, 0x38000000), how = word >> 10 & 3;
	int is_whole = a64_is(word, 0xc4000000, 0xc0000000), is_load = a64_bits(word, 22, 2) != 0;
	int64_t at = is_scaled ? (int64_t)a64_bits(word, 10, 12) * 8 : a64_signed(word, 12, 9);

	if ((!is_scaled && !is_near) || field(word, 5) != STACK)
		return 0;
	if (is_near && how == 3)
		frame->depth -= at;
	if (is_whole)
		slot_use(frame, field(word, 0), is_near && how & 1 ? 0 : at, is_load);
	if (is_near && how == 1)
		frame->depth -= at;
	return 1;
}

/* add, sub of a constant, from the stack pointer to it or to the frame pointer. 1: it is one. */
static int add_step(struct machine_frame *frame, uint32_t word)
{
	int is_sub = word >> 30 & 1;
	int64_t value = (int64_t)a64_bits(word, 10, 12) << (word >> 22 & 1 ? 12 : 0);

	if (!a64_is(word, 0xbf800000, 0x91000000) || field(word, 5) != STACK)
		return 0;
	if (field(word, 0) == STACK)
		frame->depth += is_sub ? value : -value;
	else if (field(word, 0) == FRAME)
		frame->pointer = frame->depth + (is_sub ? value : -value);
	else
		return 0;
	return 1;
}

int arm64_frame_step(struct machine_frame *frame, const cs_insn *insn,
		     const struct inline_insn *decoded)
{
	uint32_t word = a64_word(insn->bytes);
	int is_call = decoded->op == INLINE_CALL || decoded->op == INLINE_CALL_SLOT;

	/* A call returns to where it was; where it returns to is in the link register. */
	if (is_call)
		return frame->returned ? 0 : -1;
	if (pair_step(frame, word) || single_step(frame, word) || add_step(frame, word))
		return 0;
	/* Hints sign the address in the link register. */
	if (decoded->written >> ABI_REG_X30 & 1 && !frame->returned && !A64_IS_HINT(word))
		return -1;
	return decoded->op < INLINE_BRANCH && decoded->written >> ABI_REG_XSP & 1 ? -1 : 0;
}

/* Offsets in struct user_pt_regs of arm64: x0 to x30, sp. */
#define AT_REGISTER(number) ((uint8_t)(8 * (number)))
#define AT_SP               AT_REGISTER(31)
#define SHORT               8 /* bytes of a register's name, with its NUL */

/* Takes x0 to x30, w0 to w30, or sp. 0: there is no known register. */
static int register_take(struct operand *operand, uint8_t *offset, uint8_t *bytes)
{
	char name[SHORT], *end;

	if (!name_take(operand, name, sizeof(name)))
		return 0;
	*bytes = name[0] == 'w' ? 4 : 8;
	if (!strcmp(name, "sp")) {
		*offset = AT_SP;
		return 1;
	}
	if ((name[0] != 'x' && name[0] != 'w') || !isdigit((unsigned char)name[1]))
		return 0;
	unsigned long number = strtoul(name + 1, &end, 10);
	*offset = AT_REGISTER(number);
	return !*end && number <= LINK;
}

static void spaces_take(struct operand *operand)
{
	while (text_take(operand, " "))
		;
}

/* Takes "BASE]", "BASE, NUMBER]", "BASE, INDEX]" or "BASE, INDEX, lsl NUMBER]". */
static int memory_take(struct operand *operand, struct abi_usdt_argument *out)
{
	uint8_t bytes;
	long long scale;

	out->kind = ABI_USDT_MEMORY;
	spaces_take(operand);
	if (!register_take(operand, &out->base, &bytes) || bytes != 8)
		return 0;
	spaces_take(operand);
	if (text_take(operand, "]"))
		return 1;
	if (!text_take(operand, ","))
		return 0;
	spaces_take(operand);
	text_take(operand, "#");
	if (!number_take(operand, &out->value)) {
		if (!register_take(operand, &out->index, &bytes) || bytes != 8 ||
		    out->index == AT_SP)
			return 0;
		spaces_take(operand);
		if (text_take(operand, ",")) {
			spaces_take(operand);
			if (!text_take(operand, "lsl "))
				return 0;
			text_take(operand, "#");
			if (!number_take(operand, &scale) || scale < 0 || scale > 3)
				return 0;
			out->scale = (uint8_t)scale;
		}
	}
	spaces_take(operand);
	return text_take(operand, "]");
}

int arm64_operand_take(struct operand *operand, struct abi_usdt_argument *out)
{
	uint8_t width;

	if (text_take(operand, "["))
		return memory_take(operand, out);
	out->kind = ABI_USDT_CONSTANT;
	text_take(operand, "#");
	if (number_take(operand, &out->value))
		return 1;
	if (text_take(operand, "xzr") || text_take(operand, "wzr"))
		return 1;
	return register_take(operand, &out->base, &width) && operand_is_register(out, width);
}
