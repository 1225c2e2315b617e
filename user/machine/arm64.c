/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions have a fixed width, and the fields that name registers have fixed places. They are
 * read here: Capstone's tables lack registers that are written back, and its names of aliases
 * differ between versions. What is not known counts as writing every register.
 */
#include "machine/arm64.h"

#include <stdio.h>

#include "machine/frame.h"
#include "machine/machine.h"
#include "machine/operand.h"

#define ALL  UINT32_MAX
#define LINK 30

static uint32_t field(uint32_t word, unsigned low)
{
	return a64_bits(word, low, 5);
}

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

int a64_target(uint32_t word, uint64_t vaddr, uint64_t *target)
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

uint32_t a64_written(uint32_t word)
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

uint32_t a64_read(uint32_t word)
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
