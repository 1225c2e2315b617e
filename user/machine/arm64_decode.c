/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of an instruction, for the operations that the analysis follows (insn.h). */
#include "abi/target.h"
#include "machine/arm64.h"
#include "machine/machine.h"

/* What a called function may change (AAPCS64): x0 to x18, and the link register. */
#define CALL_CLOBBERS (0x7ffffu | 1u << ABI_REG_X30)

#define PAGE_BITS 12 /* of adrp, whatever the kernel's pages are */

static uint8_t reg(uint32_t word, unsigned low)
{
	return (uint8_t)a64_bits(word, low, 5);
}

/* xzr is no register. */
static uint8_t reg_or_none(uint32_t word, unsigned low)
{
	uint8_t number = reg(word, low);

	return number == A64_ZERO ? ABI_REG_COUNT : number;
}

static void decode_address(uint32_t word, struct inline_insn *out)
{
	int64_t distance = a64_signed(word, 5, 19) * 4 + a64_bits(word, 29, 2);
	uint64_t from = out->vaddr;

	out->op = INLINE_CONST;
	out->dst = reg_or_none(word, 0);
	if (word >> 31) {
		distance *= 1 << PAGE_BITS;
		from &= ~((1ull << PAGE_BITS) - 1);
	}
	out->value = (int64_t)(from + (uint64_t)distance);
}

/* add, sub, cmp with an immediate */
static void decode_add(uint32_t word, struct inline_insn *out)
{
	int64_t value = (int64_t)a64_bits(word, 10, 12) << (word >> 22 & 1 ? 12 : 0);
	int is_sub = word >> 30 & 1, sets_flags = word >> 29 & 1;

	if (sets_flags && reg(word, 0) == A64_ZERO) {
		if (!is_sub)
			return;
		out->op = INLINE_COMPARE_CONST;
		out->dst = reg(word, 5);
		out->value = value;
		return;
	}
	out->op = INLINE_ADD;
	out->dst = sets_flags ? reg_or_none(word, 0) : reg(word, 0);
	out->src = reg(word, 5);
	out->value = is_sub ? -value : value;
}

/* movz, movn; movk changes a part */
static void decode_move_wide(uint32_t word, struct inline_insn *out)
{
	uint64_t value = (uint64_t)a64_bits(word, 5, 16) << 16 * a64_bits(word, 21, 2);
	uint32_t op = a64_bits(word, 29, 2);

	if (op != 0 && op != 2)
		return;
	if (!op)
		value = ~value;
	out->op = INLINE_CONST;
	out->dst = reg_or_none(word, 0);
	out->value = word >> 31 ? (int64_t)value : (int64_t)(uint32_t)value;
}

/*
 * Registers: mov, cmp (of one that may be shifted left), tst of one register with itself, and
 * products.
 */
static void decode_registers(uint32_t word, struct inline_insn *out)
{
	if (a64_is(word, 0x7fe0ffe0, 0x2a0003e0) && reg(word, 0) == A64_ZERO) {
		return; /* to no register */
	} else if (a64_is(word, 0x7fe0ffe0, 0x2a0003e0)) {
		out->op = reg(word, 16) == A64_ZERO ? INLINE_CONST : INLINE_COPY;
		out->dst = reg_or_none(word, 0);
		out->src = reg_or_none(word, 16);
	} else if (a64_is(word, 0x7fe0001f, 0x6b00001f)) {
		out->op = INLINE_COMPARE;
		out->dst = reg_or_none(word, 5);
		out->src = reg_or_none(word, 16);
		out->value = a64_bits(word, 10, 6);
		if (out->src == ABI_REG_COUNT) {
			out->op = INLINE_COMPARE_CONST;
			out->value = 0;
		}
	} else if (a64_is(word, 0x7fe0fc1f, 0x6a00001f) && reg(word, 5) == reg(word, 16)) {
		out->op = INLINE_TEST;
		out->dst = reg_or_none(word, 5);
	} else if (a64_is(word, 0x7fe0fc00, 0x0b000400) && reg(word, 5) == reg(word, 16)) {
		out->op = INLINE_TRIPLE;
		out->dst = reg_or_none(word, 0);
		out->src = reg_or_none(word, 5);
	} else if (a64_is(word, 0x7fe0fc00, 0x1b007c00) ||
		   a64_is(word, 0xffe0fc00, 0x9ba07c00)) { /* mul, umull */
		out->op = INLINE_TRIPLE;
		out->dst = reg_or_none(word, 0);
		out->src = reg_or_none(word, 5);
		out->base = reg_or_none(word, 16);
	}
}

/* lsl and lsr by a constant, and fields of a register that end at its bit 0 or begin there */
static void decode_shift(uint32_t word, struct inline_insn *out)
{
	uint32_t last = word >> 31 ? 63 : 31, rotate = a64_bits(word, 16, 6),
		 end = a64_bits(word, 10, 6);

	if (a64_bits(word, 29, 2) != 2)
		return;
	if (end >= rotate) {
		out->op = INLINE_SHIFT;
		out->value = rotate;
	} else {
		out->op = INLINE_SHIFT_LEFT;
		out->value = last + 1 - rotate;
	}
	out->dst = reg_or_none(word, 0);
	out->src = reg_or_none(word, 5);
}

/*
 * The mask of an instruction with an immediate of ones that are neighbours, in 32 or 64 bits, as
 * sizes and addresses are rounded with. 0: another pattern.
 */
static uint64_t mask_of(uint32_t word)
{
	uint32_t ones = a64_bits(word, 10, 6) + 1, rotate = a64_bits(word, 16, 6);
	uint32_t bits = word >> 31 ? 64 : 32;
	uint64_t mask = ones < 64 ? (1ull << ones) - 1 : UINT64_MAX;

	if ((word >> 22 & 1) != (bits == 64) || ones >= bits || rotate >= bits)
		return 0;
	if (rotate)
		mask = mask >> rotate | mask << (bits - rotate);
	return bits == 64 ? mask : (uint32_t)mask;
}

static void decode_mask(uint32_t word, struct inline_insn *out)
{
	if (a64_bits(word, 29, 2) || !mask_of(word))
		return;
	out->op = INLINE_MASK;
	out->dst = reg(word, 0);
	out->src = reg_or_none(word, 5);
	out->value = (int64_t)mask_of(word);
}

/* A word or double word at an unsigned or an unscaled offset; not the forms that write the base. */
static void decode_memory(uint32_t word, struct inline_insn *out)
{
	uint32_t size = a64_bits(word, 30, 2), op = a64_bits(word, 22, 2);
	int is_unsigned = a64_is(word, 0x3f000000, 0x39000000);
	int is_unscaled = a64_is(word, 0x3f200c00, 0x38000000);

	if (A64_IS_LOAD_LITERAL(word)) {
		if (!a64_is(word, 0xff000000, 0x58000000))
			return;
		out->op = INLINE_LOAD;
		out->dst = reg_or_none(word, 0);
		out->value = (int64_t)(out->vaddr + (uint64_t)a64_signed(word, 5, 19) * 4);
		return;
	}
	if ((!is_unsigned && !is_unscaled) || size < 2 || op > 1)
		return;
	out->base = reg(word, 5);
	out->value =
		is_unsigned ? (int64_t)a64_bits(word, 10, 12) << size : a64_signed(word, 12, 9);
	if (op) {
		out->op = size == 3 ? INLINE_LOAD : INLINE_LOAD_32;
		out->dst = reg_or_none(word, 0);
	} else if (reg(word, 0) == A64_ZERO) {
		out->op = INLINE_STORE_CONST;
	} else {
		out->op = size == 3 ? INLINE_STORE : INLINE_STORE_32;
		out->src = reg_or_none(word, 0);
	}
}

static void decode_data(uint32_t word, struct inline_insn *out)
{
	out->width = word >> 31 ? 8 : 4;
	if (a64_is(word, 0x0a000000, 0x08000000)) {
		decode_memory(word, out);
		out->width = word >> 30 == 3 ? 8 : 4;
	} else if (A64_IS_ADR(word))
		decode_address(word, out);
	else if (a64_is(word, 0x1f800000, 0x11000000))
		decode_add(word, out);
	else if (a64_is(word, 0x1f800000, 0x12000000))
		decode_mask(word, out);
	else if (a64_is(word, 0x1f800000, 0x12800000))
		decode_move_wide(word, out);
	else if (a64_is(word, 0x1f800000, 0x13000000))
		decode_shift(word, out);
	else
		decode_registers(word, out);
}

static void decode_condition(uint32_t word, struct inline_insn *out)
{
	static const uint8_t orders[16] = {[2] = INLINE_ABOVE_EQUAL,
					   [3] = INLINE_BELOW,
					   [8] = INLINE_ABOVE,
					   [9] = INLINE_BELOW_EQUAL};
	uint32_t condition = a64_bits(word, 0, 4);

	out->equal = condition == 0;
	out->unequal = condition == 1;
	out->order = orders[condition];
	/* b.al */
	if (condition >= 14)
		out->op = INLINE_JUMP;
}

/* 1: it is a branch, call or return, or ends the path. */
static int decode_control(uint32_t word, struct inline_insn *out)
{
	if (a64_target(word, out->vaddr, &out->target)) {
		out->op = A64_IS_B(word)    ? INLINE_JUMP
			  : A64_IS_BL(word) ? INLINE_CALL
					    : INLINE_BRANCH;
		if (A64_IS_B_COND(word))
			decode_condition(word, out);
		if (A64_IS_CB(word)) {
			out->src = reg_or_none(word, 0);
			out->equal = !(word >> 24 & 1);
			out->unequal = word >> 24 & 1;
		}
		if (A64_IS_BL(word))
			out->written = CALL_CLOBBERS;
		return 1;
	}
	if (a64_is(word, 0xfefff000, 0xd63f0000)) {
		out->op = INLINE_CALL_SLOT;
		out->src = reg_or_none(word, 5);
		out->written = CALL_CLOBBERS;
		return 1;
	}
	if (a64_is(word, 0xfefff000, 0xd61f0000)) {
		out->op = INLINE_JUMP_SLOT;
		out->src = reg_or_none(word, 5);
		return 1;
	}
	if (A64_IS_TO_REGISTER(word) || (A64_IS_EXCEPTION(word) && !A64_IS_SVC(word)) ||
	    word >> 16 == 0 /* udf */) {
		out->op = INLINE_END;
		return 1;
	}
	return 0;
}

void arm64_decode(struct inline_decoder *decoder, struct inline_insn *out)
{
	uint32_t word = a64_word(decoder->insn->bytes);

	if (decode_control(word, out))
		return;
	out->written = a64_written(word);
	decode_data(word, out);
}
