/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of A64, the instruction set of arm64. Names of instructions and fields are those of the Arm
 * Architecture Reference Manual. Internal to the machine.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "object/insn/insn.h"
#include "object/insn/machine.h"

#define A64_BYTES 4
#define A64_ZERO  31 /* the number of xzr, or of sp */

static inline uint32_t a64_word(const uint8_t *code)
{
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	return word;
}

static inline int a64_is(uint32_t word, uint32_t mask, uint32_t value)
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
