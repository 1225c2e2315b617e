/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the registers hold along a way through a function: "a value that came up at some point, plus so much", or a
 * constant. Internal to the analysis.
 */
#ifndef TRACER_PROBE_INLINE_VALUE_H
#define TRACER_PROBE_INLINE_VALUE_H

#include <stdint.h>

#include "abi/target.h"
#include "probe/inline_insn.h"

#define INLINE_CONSTANT 0
#define INLINE_UNKNOWN  1
#define INLINE_NEW      2 /* and above: values that came up; at first one per register, in its order */

struct inline_value {
	uint32_t base;
	int64_t addend;
};

struct inline_state {
	struct inline_value of[ABI_REG_COUNT];
	uint32_t next; /* number of the next new value */
};

/* Nothing is known of any register. */
void inline_state_init(struct inline_state *state);
/* Carries out one instruction. */
void inline_state_step(struct inline_state *state, const struct inline_insn *insn);

#endif
