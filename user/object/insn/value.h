/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of registers along a path through a function, and the memory that an instruction
 * reads. A value is "a value first seen at some point, plus a constant", a constant, or the content
 * of a memory location plus a constant. Internal to the analysis.
 */
#pragma once

#include <stdint.h>

#include "abi/target.h"
#include "object/insn/insn.h"

#define INLINE_CONSTANT 0
#define INLINE_UNKNOWN  1
/* from here on: values first seen; initially one per register, in its order */
#define INLINE_NEW 2
/* or'ed with an address: the content of that address, assumed not to change */
#define INLINE_HELD (1ull << 63)

struct inline_value {
	uint64_t base;
	int64_t addend;
};

struct inline_state {
	struct inline_value of[ABI_REG_COUNT];
	uint64_t next; /* number of the next new value */
};

/*
 * Memory at offset or, as position independent code has it, at offset from the address that slot
 * holds.
 */
struct inline_address {
	uint64_t slot; /* 0: offset alone */
	int64_t offset;
	int64_t displacement; /* the part of offset that is in the instruction that reads */
};

/* Makes all registers unknown. */
void inline_state_init(struct inline_state *state);
/* Executes one instruction. */
void inline_state_step(struct inline_state *state, const struct inline_insn *insn);
/* Makes the register unknown. */
void inline_state_forget(struct inline_state *state, uint8_t reg);
/* The address of the slot whose content the register holds; 0: it holds something else. */
uint64_t inline_state_slot(const struct inline_state *state, uint8_t reg);
/* The memory that the instruction reads, executed next. 0: it reads none, or an unknown address. */
int inline_state_reads(const struct inline_state *state, const struct inline_insn *insn,
		       struct inline_address *out);
