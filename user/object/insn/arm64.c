/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions have a fixed width, and the fields that name registers have fixed places. They are
 * read here: Capstone's tables lack registers that are written back, and its names of aliases
 * differ between versions. What is not known counts as writing every register.
 */
#include <stdint.h>
#include <string.h>

#include "abi/target.h"
#include "object/insn/frame.h"
#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "object/insn/operand.h"
#include "object/insn/value.h"

/*
 * Words of A64, the instruction set of arm64. Names of instructions and fields are those of the Arm
 * Architecture Reference Manual. Internal to the machine.
 */
#define A64_BYTES 4
#define A64_ZERO  31 /* the number of xzr, or of sp */

static inline uint32_t a64_word(const uint8_t *code)
{
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	return word;
}

static inline bool a64_is(uint32_t word, uint32_t mask, uint32_t value)
{
	return (word & mask) == value;
}

static inline uint32_t a64_bits(uint32_t word, unsigned low, unsigned count)
{
	return word >> low & ((1u << count) - 1);
}

static inline int64_t a64_signed(uint32_t word, unsigned low, unsigned count)
{
	return (int64_t)((uint64_t)word << (64 - low - count)) >> (64 - count);
}

#define A64_IS_B(word)      a64_is(word, 0xfc000000, 0x14000000)
#define A64_IS_BL(word)     a64_is(word, 0xfc000000, 0x94000000)
#define A64_IS_B_COND(word) a64_is(word, 0xff000010, 0x54000000)
#define A64_IS_CB(word)     a64_is(word, 0x7e000000, 0x34000000) /* cbz, cbnz */
#define A64_IS_TB(word)     a64_is(word, 0x7e000000, 0x36000000) /* tbz, tbnz */
#define A64_IS_BR(word)     a64_is(word, 0xfffffc1f, 0xd61f0000)
#define A64_IS_BLR(word)    a64_is(word, 0xfffffc1f, 0xd63f0000)
#define A64_IS_RET(word)    a64_is(word, 0xfffffc1f, 0xd65f0000)
/* br, blr, ret and eret, authenticated or not */
#define A64_IS_TO_REGISTER(word)  a64_is(word, 0xfe000000, 0xd6000000)
#define A64_IS_ADR(word)          a64_is(word, 0x1f000000, 0x10000000) /* adr, adrp */
#define A64_IS_LOAD_LITERAL(word) a64_is(word, 0x3b000000, 0x18000000)
#define A64_IS_EXCEPTION(word)    a64_is(word, 0xff000000, 0xd4000000)
#define A64_IS_SVC(word)          a64_is(word, 0xffe0001f, 0xd4000001)
#define A64_IS_HINT(word)         a64_is(word, 0xfffff01f, 0xd503201f)
#define A64_IS_MSR(word)          a64_is(word, 0xfff00000, 0xd5100000)
#define A64_IS_MRS(word)          a64_is(word, 0xfff00000, 0xd5300000)
#define A64_IS_EXCLUSIVE(word)    a64_is(word, 0x3f000000, 0x08000000)

/* Is it of the group of branches, exceptions and system instructions? */
#define A64_IS_CONTROL(word) a64_is(word, 0x1c000000, 0x14000000)

/*
 * What is known of a place in a function: the frame there, the operands of its USDT probe.
 *
 * Functions save the frame pointer and the link register anywhere in their frame, with stp or str;
 * a leaf function saves neither.
 */

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

static int arm64_frame_step(struct machine_frame *frame, const cs_insn *insn,
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

static int arm64_operand_take(struct operand *operand, struct abi_usdt_argument *out)
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

/* --- arm64 decode ----------------------------------------------------------------------------- */

/* The effect of an instruction, for the operations that the analysis follows (insn.h). */

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

static int a64_target(uint32_t word, uint64_t vaddr, uint64_t *target);

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

static uint32_t a64_written(uint32_t word);

static void arm64_decode(struct inline_decoder *decoder, struct inline_insn *out)
{
	uint32_t word = a64_word(decoder->insn->bytes);

	if (decode_control(word, out))
		return;
	out->written = a64_written(word);
	decode_data(word, out);
}

/* --- arm64 look ------------------------------------------------------------------------------- */

/* Words of A64 that the search for inlined allocators begins with. */

#define NEAR      10 /* words from the load of pool->freeblock to where it is stored */
#define TEST_NEAR 16 /* words from the load of a flag to the branch that tests it */
#define STUB      5  /* words of a stub, at most */
#define STRUCTURE 16 /* bytes from where a small structure begins to the flag in it */
#define FREEBLOCK 8
#define NEXTPOOL  16
#define PAGE      0xfffull /* of adrp, whatever the kernel's pages are */

/* ldr of a register of 32 or 64 bits at an unsigned offset */
#define IS_LOAD(word)     a64_is(word, 0xbfc00000, 0xb9400000)
#define IS_LOAD_64(word)  a64_is(word, 0xffc00000, 0xf9400000)
#define IS_STORE_64(word) a64_is(word, 0xffc00000, 0xf9000000)

static uint64_t load_offset(uint32_t word)
{
	return (uint64_t)a64_bits(word, 10, 12) << a64_bits(word, 30, 2);
}

/* Does a store of that register through another follow soon? */
static int store_follows(const uint8_t *code, size_t bytes, uint32_t reg)
{
	for (size_t i = 0; i < NEAR && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (IS_STORE_64(word) && a64_bits(word, 0, 5) == reg)
			return 1;
	}
	return 0;
}

static bool is_pool(const uint8_t *code, size_t bytes, struct machine_found *out)
{
	uint32_t word = a64_word(code);

	if (!IS_LOAD_64(word))
		return 0;
	out->is_next = load_offset(word) == NEXTPOOL;
	return out->is_next ||
	       (load_offset(word) == FREEBLOCK &&
		store_follows(code + A64_BYTES, bytes - A64_BYTES, a64_bits(word, 0, 5)));
}

/* mul, umull, and add of a register and twice itself */
static bool is_triple(uint32_t word)
{
	return a64_is(word, 0x7fe0fc00, 0x1b007c00) || a64_is(word, 0xffe0fc00, 0x9ba07c00) ||
	       (a64_is(word, 0x7fe0fc00, 0x0b000400) &&
		a64_bits(word, 5, 5) == a64_bits(word, 16, 5));
}

/* Is that register soon compared with 0 by a branch? */
static int test_follows(const uint8_t *code, size_t bytes, uint32_t reg)
{
	for (size_t i = 0; i < TEST_NEAR && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (A64_IS_CB(word) && a64_bits(word, 0, 5) == reg)
			return 1;
	}
	return 0;
}

/*
 * Where a flag is read the address of its page, of the interpreter's state or of a structure that
 * begins shortly before it is in a register, often since long before.
 */
static bool is_reader(const uint8_t *code, size_t bytes, const struct inline_address *flag,
		      struct machine_found *out)
{
	uint32_t word = a64_word(code);
	uint64_t offset = load_offset(word);

	if (!IS_LOAD(word) ||
	    (offset != (uint64_t)flag->displacement &&
	     (flag->slot || (offset >= STRUCTURE && offset != ((uint64_t)flag->offset & PAGE)))) ||
	    !test_follows(code + A64_BYTES, bytes - A64_BYTES, a64_bits(word, 0, 5)))
		return 0;
	out->base = (uint8_t)a64_bits(word, 5, 5);
	out->value = (int64_t)offset;
	return 1;
}

static bool is_found(enum machine_look what, const uint8_t *code, size_t bytes,
		     const struct inline_address *flag, struct machine_found *out)
{
	uint32_t word = a64_word(code);

	switch (what) {
	case MACHINE_JUMP:
		return !A64_IS_BL(word) && a64_target(word, out->vaddr, &out->target);
	case MACHINE_POOL:
		return is_pool(code, bytes, out);
	case MACHINE_TRIPLE:
		return is_triple(word);
	case MACHINE_CALL:
		out->is_call = A64_IS_BL(word);
		return (A64_IS_B(word) || A64_IS_BL(word)) &&
		       a64_target(word, out->vaddr, &out->target);
	case MACHINE_READER:
		return is_reader(code, bytes, flag, out);
	}
	return 0;
}

static size_t arm64_look(enum machine_look what, const struct inline_range *text, size_t from,
			 const struct inline_address *flag, struct machine_found *out)
{
	size_t before = (text->vaddr + from) % A64_BYTES;

	for (size_t i = before ? from + A64_BYTES - before : from; i + A64_BYTES <= text->bytes;
	     i += A64_BYTES) {
		*out = (struct machine_found){
			.vaddr = text->vaddr + i, .bytes = A64_BYTES, .base = ABI_REG_COUNT};
		if (is_found(what, text->code + i, text->bytes - i, flag, out))
			return i + A64_BYTES;
	}
	return 0;
}

/* adrp x16, page; ldr x17, [x16, offset]; …; br x17; perhaps after a bti */
static uint64_t arm64_stub_slot(const uint8_t *code, size_t bytes, uint64_t vaddr)
{
	uint64_t page = 0, slot = 0;

	for (size_t i = 0; i < STUB && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (a64_is(word, 0x9f00001f, 0x90000010))
			page = ((vaddr + i * A64_BYTES) & ~PAGE) +
			       ((uint64_t)(a64_signed(word, 5, 19) * 4 + a64_bits(word, 29, 2))
				<< 12);
		else if (page && a64_is(word, 0xffc003ff, 0xf9400211))
			slot = page + load_offset(word);
		else if (a64_is(word, 0xffffffff, 0xd61f0220))
			return slot;
	}
	return 0;
}

/* --- arm64 ------------------------------------------------------------------------------------ */

#define ALL  UINT32_MAX
#define LINK 30

/* A register's bit; number 31 is xzr. */
static uint32_t general(uint32_t reg)
{
	return reg == A64_ZERO ? 0 : 1u << reg;
}

/*
 * Instructions that every supported kernel simulates: arm_probe_decode_insn() in
 * arch/arm64/kernel/probes/decode-insn.c. Not included: nop, which only newer kernels simulate.
 */
static bool is_emulated(const uint8_t *code, size_t bytes)
{
	uint32_t word = bytes == A64_BYTES ? a64_word(code) : 0;

	return A64_IS_B(word) || A64_IS_BL(word) || A64_IS_B_COND(word) || A64_IS_CB(word) ||
	       A64_IS_TB(word) || A64_IS_BR(word) || A64_IS_BLR(word) || A64_IS_RET(word) ||
	       A64_IS_ADR(word) || a64_is(word, 0xbf000000, 0x18000000) /* ldr */ ||
	       a64_is(word, 0xff000000, 0x98000000) /* ldrsw */;
}

/* Hints that the kernel single-steps: nop, bti, and those that sign an address. */
static bool is_stepped_hint(uint32_t word)
{
	switch (a64_bits(word, 5, 7)) {
	case 0:  /* nop */
	case 7:  /* xpaclri */
	case 8:  /* pacia1716 */
	case 10: /* pacib1716 */
	case 24: /* paciaz */
	case 25: /* paciasp */
	case 26: /* pacibz */
	case 27: /* pacibsp */
	case 32: /* bti */
	case 34:
	case 36:
	case 38:
		return true;
	default:
		return false;
	}
}

static bool may_be_probed(const cs_insn *insn)
{
	uint32_t word = a64_word(insn->bytes);

	if (is_emulated(insn->bytes, insn->size))
		return true;
	if (A64_IS_HINT(word))
		return is_stepped_hint(word);
	if (A64_IS_CONTROL(word))
		return A64_IS_MRS(word);
	return !A64_IS_LOAD_LITERAL(word) && !A64_IS_EXCLUSIVE(word);
}

static const char *register_name(uint32_t reg)
{
	static const char *const names[ABI_REG_COUNT] = {
		"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",  "x8",  "x9",  "x10",
		"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
		"x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
	};

	return reg < ABI_REG_COUNT ? names[reg] : "?";
}

/* 1: a branch, jump or call that is relative: its target. */
static int a64_target(uint32_t word, uint64_t vaddr, uint64_t *target)
{
	int64_t words;

	if (A64_IS_B(word) || A64_IS_BL(word))
		words = a64_signed(word, 0, 26);
	else if (a64_is(word, 0xff000000, 0x54000000) || A64_IS_CB(word))
		words = a64_signed(word, 5, 19);
	else if (A64_IS_TB(word))
		words = a64_signed(word, 5, 14);
	else
		return 0;
	*target = vaddr + (uint64_t)words * A64_BYTES;
	return 1;
}

static uint32_t memory_written(uint32_t word)
{
	uint32_t is_vector = word >> 26 & 1, is_load = word >> 22 & 3;
	uint32_t base = 1u << field(word, 5), to = is_vector ? 0 : general(field(word, 0));

	switch (a64_bits(word, 28, 2)) {
	case 0: /* exclusives, compare and swap; structures of vectors */
		return is_vector ? base : to | general(field(word, 10)) | general(field(word, 16));
	case 1: /* literals; memory ordered by release and acquire, copies */
		return A64_IS_LOAD_LITERAL(word) ? to : base | to | general(field(word, 16));
	case 2: /* pairs */
		return (word >> 22 & 1 && !is_vector ? to | general(field(word, 10)) : 0) |
		       (word >> 23 & 1 ? base : 0);
	default:
		if (word >> 24 & 1)
			return is_load ? to : 0;
		if (word >> 21 & 1) /* a register's offset; atomic operations */
			return a64_bits(word, 10, 2) == 2 ? (is_load ? to : 0) : to | base;
		return (is_load ? to : 0) | (word >> 10 & 1 ? base : 0);
	}
}

static uint32_t control_written(uint32_t word)
{
	if (A64_IS_BL(word) || a64_is(word, 0xfefff000, 0xd63f0000))
		return 1u << LINK;
	if (A64_IS_SVC(word))
		return 1u << ABI_REG_X0;
	if (A64_IS_MRS(word) || a64_is(word, 0xfff80000, 0xd5280000)) /* sysl */
		return general(field(word, 0));
	if (!A64_IS_HINT(word))
		return 0;
	/* Those that authenticate or sign x17, or the link register. */
	return a64_bits(word, 5, 7) >= 8 && a64_bits(word, 5, 7) <= 14      ? 1u << 17
	       : a64_bits(word, 5, 7) == 7 || a64_bits(word, 5, 7) / 8 == 3 ? 1u << LINK
									    : 0;
}

/* Vectors and floating point: which of them write a general register? */
static uint32_t vector_written(uint32_t word)
{
	int is_conversion =
		a64_is(word, 0x5f20fc00, 0x1e200000) || a64_is(word, 0x5f200000, 0x1e000000);
	int is_move = a64_is(word, 0xbfe0fc00, 0x0e003c00) || a64_is(word, 0xbfe0fc00, 0x0e002c00);

	return is_conversion || is_move ? general(field(word, 0)) : 0;
}

/* Bit r: the word may write enum abi_register r; all: not known. */
static uint32_t a64_written(uint32_t word)
{
	uint32_t to = field(word, 0);

	if (A64_IS_CONTROL(word))
		return control_written(word);
	if (a64_is(word, 0x0a000000, 0x08000000))
		return memory_written(word);
	if (a64_is(word, 0x0e000000, 0x0e000000))
		return vector_written(word);
	if (a64_is(word, 0x0e000000, 0x0a000000)) {       /* of registers */
		if (a64_is(word, 0x1fe00000, 0x1a400000)) /* ccmp, ccmn */
			return 0;
		/* add and sub of an extended register have sp as number 31, unless they set flags
		 */
		return a64_is(word, 0x3fe00000, 0x0b200000) ? 1u << to : general(to);
	}
	if (!a64_is(word, 0x1c000000, 0x10000000))
		return ALL;
	/* With an immediate: add, sub, and, orr, eor have sp, unless they set flags. */
	if (a64_is(word, 0x3f000000, 0x11000000) ||
	    (a64_is(word, 0x1f800000, 0x12000000) && a64_bits(word, 29, 2) != 3))
		return 1u << to;
	return general(to);
}

/* Bit r: the word may read enum abi_register r; all: not known. */
static uint32_t a64_read(uint32_t word)
{
	uint32_t rest =
		general(field(word, 5)) | general(field(word, 16)) | general(field(word, 10));

	if (A64_IS_HINT(word))
		return is_stepped_hint(word) && a64_bits(word, 5, 7) < 32 && a64_bits(word, 5, 7)
			       ? 1u << LINK | 3u << 16
			       : 0;
	if (A64_IS_CB(word) || A64_IS_TB(word))
		return general(field(word, 0));
	if (A64_IS_CONTROL(word))
		return A64_IS_TO_REGISTER(word) ? general(field(word, 5)) : 0;
	if (a64_is(word, 0x0a000000, 0x08000000)) /* what a store stores */
		return A64_IS_LOAD_LITERAL(word) ? 0 : rest | general(field(word, 0));
	if (A64_IS_ADR(word))
		return 0;
	if (a64_is(word, 0x1c000000, 0x10000000)) /* with an immediate; movk reads its result */
		return general(field(word, 5)) |
		       (a64_is(word, 0x1f800000, 0x12800000) ? general(field(word, 0)) : 0);
	return a64_is(word, 0x0e000000, 0x0a000000) || a64_is(word, 0x0e000000, 0x0e000000) ? rest
											    : ALL;
}

static uint32_t registers_written(csh capstone, const cs_insn *insn)
{
	(void)capstone;
	return a64_written(a64_word(insn->bytes));
}

/* mov: orr with xzr, or add of 0 to or from sp */
static bool copies(const cs_insn *insn, uint32_t *to, uint32_t *from)
{
	uint32_t word = a64_word(insn->bytes);
	int is_orr = a64_is(word, 0xffe0ffe0, 0xaa0003e0);

	*to = field(word, 0);
	*from = field(word, is_orr ? 16 : 5);
	if (is_orr)
		return *to != A64_ZERO && *from != A64_ZERO;
	return a64_is(word, 0xfffffc00, 0x91000000);
}

static bool leaves(csh capstone, const cs_insn *insn)
{
	uint32_t word = a64_word(insn->bytes), other;

	(void)capstone;
	other = A64_IS_HINT(word) || A64_IS_MRS(word) || A64_IS_MSR(word);
	return A64_IS_CONTROL(word) && !other && !a64_is(word, 0xfffff000, 0xd5033000) /* dmb … */;
}

static bool target(csh capstone, const cs_insn *insn, uint64_t *vaddr)
{
	(void)capstone;
	return a64_target(a64_word(insn->bytes), insn->address, vaddr);
}

static int register_use(const cs_insn *insn, uint32_t reg)
{
	uint32_t word = a64_word(insn->bytes);

	/* An address is of 64 bits, and so is what an instruction with the bit sf works on. */
	if (a64_read(word) >> reg & 1)
		return word >> 31 || a64_is(word, 0x0a000000, 0x08000000) || A64_IS_CONTROL(word)
			       ? 8
			       : 4;
	return a64_written(word) >> reg & 1 ? -1 : 0;
}

/* All but plain loads count. */
static bool stores(const cs_insn *insn)
{
	uint32_t word = a64_word(insn->bytes);

	return a64_is(word, 0x0a000000, 0x08000000) && !A64_IS_LOAD_LITERAL(word) &&
	       !a64_is(word, 0x3a400000, 0x28400000) /* ldp */ &&
	       !(a64_is(word, 0x3b000000, 0x39000000) && a64_bits(word, 22, 2)) &&
	       !(a64_is(word, 0x3b200000, 0x38000000) && a64_bits(word, 22, 2));
}

static bool is_syscall(const cs_insn *insn)
{
	return A64_IS_SVC(a64_word(insn->bytes));
}

static bool is_return(const cs_insn *insn)
{
	return A64_IS_RET(a64_word(insn->bytes));
}

const struct machine machine_arm64 = {
	.name = "arm64",
	.arch = CS_ARCH_ARM64,
	.mode = CS_MODE_LITTLE_ENDIAN,
	.insn_step = A64_BYTES,
	.long_jump = A64_BYTES,
	.filler = 0, /* udf */
	.nop = {0x1f, 0x20, 0x03, 0xd5},
	.stack_pointer = ABI_REG_XSP,
	.link_register = ABI_REG_X30,
	.return_bytes = 0,
	.result = ABI_REG_X0,
	.arguments = {ABI_REG_X0, ABI_REG_X1, ABI_REG_X2, ABI_REG_X3, ABI_REG_X4, ABI_REG_X5},
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
	.frame_step = arm64_frame_step,
	.operand_take = arm64_operand_take,
	.decode = arm64_decode,
	.look = arm64_look,
	.stub_slot = arm64_stub_slot,
};
