/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instruction as the analysis of inlined allocators needs it: its effect on registers, or
 * unknown.
 */
#pragma once

#include <capstone/capstone.h>
#include <stddef.h>
#include <stdint.h>

enum inline_op {
	INLINE_OTHER = 0, /* continues at the next instruction */
	INLINE_COPY,      /* dst = src */
	INLINE_CONST,     /* dst = value */
	/* dst = 3 * src; with a base: src times that register, of which one may hold 3 */
	INLINE_TRIPLE,
	INLINE_ADD, /* dst = src + value */
	/* dst = *(base + value), 64 bits; base ABI_REG_COUNT: an absolute address */
	INLINE_LOAD,
	INLINE_LOAD_32,       /* the same, 32 bits */
	INLINE_STORE,         /* *(base + value) = src, 64 bits */
	INLINE_STORE_32,      /* the same, 32 bits */
	INLINE_STORE_CONST,   /* *(base + value) = target, width bytes */
	INLINE_BUMP,          /* *(base + value) += 1, width bytes */
	INLINE_COMPARE,       /* dst with src << value; with a base, src is *(base + value) */
	INLINE_COMPARE_CONST, /* dst with value; without dst: *(base + target), target 0: unknown */
	INLINE_TEST,          /* dst with itself */
	INLINE_MASK,          /* dst = src & value */
	INLINE_SHIFT,         /* dst = src >> value, unsigned; perhaps fewer bits of it */
	INLINE_SHIFT_LEFT,    /* dst = src << value; the same */
	INLINE_BRANCH,        /* to target or on; src: a register that it compares with 0 itself */
	INLINE_JUMP,          /* to target */
	INLINE_CALL,          /* of target */
	/* to a computed address; target: the address of a constant slot, or 0; src: its register */
	INLINE_CALL_SLOT,
	INLINE_JUMP_SLOT, /* the same */
	INLINE_END,       /* ret, or where control goes is unknown */
};

/* The order of two unsigned numbers that a branch tests. */
enum inline_order {
	INLINE_NO_ORDER = 0,
	INLINE_BELOW,
	INLINE_ABOVE_EQUAL,
	INLINE_ABOVE,
	INLINE_BELOW_EQUAL
};

struct inline_insn {
	uint64_t vaddr;
	uint64_t target;
	int64_t value;
	/* bit r: enum abi_register r may change; of a call: the registers that it may clobber */
	uint32_t written;
	uint8_t op; /* enum inline_op */
	uint8_t bytes;
	uint8_t dst, src, base; /* enum abi_register; ABI_REG_COUNT: none */
	uint8_t width;          /* of the operation, bytes */
	uint8_t equal;          /* INLINE_BRANCH: 1 je, 0 another */
	uint8_t unequal;        /* INLINE_BRANCH: 1 jne, 0 another */
	uint8_t order;          /* INLINE_BRANCH: enum inline_order under which it is taken */
	uint8_t emulated;       /* the kernel emulates it when it is probed */
};

struct machine;

struct inline_decoder {
	const struct machine *machine;
	csh capstone;
	cs_insn *insn;
};

/* 0 or -ENOMEM; inline_decoder_close() releases, and accepts a zeroed decoder. */
int inline_decoder_open(struct inline_decoder *decoder, const struct machine *machine);
void inline_decoder_close(struct inline_decoder *decoder);

/*
 * Decodes the first instruction of code, which is at vaddr, into decoder->insn only. Returns its
 * length; 0: not an instruction.
 */
size_t inline_decode_one(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
			 uint64_t vaddr);
/*
 * Decodes the first instruction of code, which is at vaddr. Returns its length; 0: not an
 * instruction.
 */
size_t inline_decode(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
		     uint64_t vaddr, struct inline_insn *out);
/* The same as text, in AT&T syntax; "(bad)" if it is not an instruction. */
void inline_disassemble(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
			uint64_t vaddr, char *text, size_t size);
