/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of registers at each instruction of a function, in the order of addresses. The code
 * after a `ret` or a jump is not reached from there: compilers put a function's rare parts after
 * its end, where registers have been restored. Its values are those of a branch further up that
 * leads to it. Internal to the analysis.
 */
#pragma once

#include "object/insn/value.h"

#define INLINE_FLOW_BRANCHES 64 /* the last ones that lead down */

struct inline_flow {
	struct inline_state state; /* in which the next instruction is executed */
	struct {
		uint64_t target;
		struct inline_state state;
	} branches[INLINE_FLOW_BRANCHES];
	uint64_t branch_count; /* of all so far */
	int is_cut;            /* the instruction before does not lead to the next one */
};

/* At the start of a function. */
void inline_flow_init(struct inline_flow *flow);
/*
 * Makes flow->state that in which the instruction is executed, the one after that of the last
 * inline_flow_step(). Where only a loop leads back to it, the values are those before the jump.
 */
void inline_flow_reach(struct inline_flow *flow, const struct inline_insn *insn);
/* Executes the instruction. */
void inline_flow_step(struct inline_flow *flow, const struct inline_insn *insn);
