/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/inline_value.h"

void inline_state_init(struct inline_state *state)
{
	state->next = INLINE_NEW;
	for (uint32_t r = 0; r < ABI_REG_COUNT; r++)
		state->of[r] = (struct inline_value){state->next++, 0};
}

void inline_state_step(struct inline_state *state, const struct inline_insn *insn)
{
	struct inline_value result = {.base = INLINE_UNKNOWN};

	if (insn->op == INLINE_CONST)
		result = (struct inline_value){INLINE_CONSTANT, insn->value};
	else if ((insn->op == INLINE_COPY || insn->op == INLINE_ADD) && insn->src < ABI_REG_COUNT)
		result = state->of[insn->src];
	if (insn->op == INLINE_ADD)
		result.addend = (int64_t)((uint64_t)result.addend + (uint64_t)insn->value);
	for (uint32_t r = 0; r < ABI_REG_COUNT; r++)
		if (insn->written >> r & 1)
			state->of[r] = (struct inline_value){state->next++, 0};
	if (insn->dst < ABI_REG_COUNT && result.base != INLINE_UNKNOWN)
		state->of[insn->dst] = result;
}
