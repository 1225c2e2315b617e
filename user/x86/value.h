/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the registers hold along a way through a function: "a value that came up at some point, plus
 * so much", a constant, or what a place in memory holds, plus so much; and so, which memory an
 * instruction reads. Internal to the analysis.
 */
#ifndef TRACER_X86_VALUE_H
#define TRACER_X86_VALUE_H

#include <stdint.h>

#include "abi/target.h"
#include "x86/insn.h"

#define INLINE_CONSTANT 0
#define INLINE_UNKNOWN  1
/* and above: values that came up; at first one per register, in its order */
#define INLINE_NEW  2
#define INLINE_HELD (1ull << 63) /* with an address: what is held there, taken not to change */

struct inline_value {
	uint64_t base;
	int64_t addend;
};

struct inline_state {
	struct inline_value of[ABI_REG_COUNT];
	uint64_t next; /* number of the next new value */
};

/*
 * Memory at offset; or so far behind the address that is held at slot, as position independent code
 * has it.
 */
struct inline_address {
	uint64_t slot; /* 0: offset alone */
	int64_t offset;
};

/* Nothing is known of any register. */
void inline_state_init(struct inline_state *state);
/* Carries out one instruction. */
void inline_state_step(struct inline_state *state, const struct inline_insn *insn);
/* Nothing is known of the register any more. */
void inline_state_forget(struct inline_state *state, uint8_t reg);
/*
 * Which memory does the instruction read, as its next one? 0: it reads none, or where that is is
 * not known.
 */
int inline_state_reads(const struct inline_state *state, const struct inline_insn *insn,
		       struct inline_address *out);

#endif
